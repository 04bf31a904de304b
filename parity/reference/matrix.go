package reference

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"gonum.org/v1/gonum/blas/gonum"

	"github.com/smelt-go/smelt/internal/elementary"
)

// Matrix is a dense float32 matrix in row-major order.
type Matrix struct {
	Rows, Cols int
	Data       []float32 // Rows·Cols values
}

// NewMatrix returns a matrix of zeros.
func NewMatrix(rows, cols int) *Matrix {
	return &Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
}

// resized returns a matrix of the given shape in the memory of m where that is
// large enough. Its contents are arbitrary.
func resized(m *Matrix, rows, cols int) *Matrix {
	if m == nil || cap(m.Data) < rows*cols {
		return NewMatrix(rows, cols)
	}
	return &Matrix{Rows: rows, Cols: cols, Data: m.Data[:rows*cols]}
}

// Row returns row i; it shares the matrix's memory.
func (m *Matrix) Row(i int) []float32 { return m.Data[i*m.Cols : (i+1)*m.Cols : (i+1)*m.Cols] }

// Clone returns a copy.
func (m *Matrix) Clone() *Matrix {
	c := NewMatrix(m.Rows, m.Cols)
	copy(c.Data, m.Data)
	return c
}

// MaxAbs returns the largest magnitude; NaN if any value is NaN.
func (m *Matrix) MaxAbs() float32 { return maxAbs(m.Data) }

// maxAbs compares bits: magnitudes are ordered like them, NaN last.
func maxAbs(xs []float32) float32 {
	var peak uint32
	for _, x := range xs {
		peak = max(peak, math.Float32bits(x)&^(1<<31))
	}
	return math.Float32frombits(peak)
}

// dotBlock is the number of terms summed in float32 before the sum moves to
// float64.
const dotBlock = 256

// A dotFunc returns Σ aᵢ·bᵢ of vectors of one length.
type dotFunc func(a, b []float32) float64

// fastDot is assembly on some processors: the order of its sums depends on
// them.
func fastDot(a, b []float32) float64 {
	var sum float64
	for len(a) > dotBlock {
		sum += float64(gonum.Implementation{}.Sdot(dotBlock, a, 1, b, 1))
		a, b = a[dotBlock:], b[dotBlock:]
	}
	return sum + float64(gonum.Implementation{}.Sdot(len(a), a, 1, b, 1))
}

// exactDot gives the same bits on every processor: eight lanes in a fixed
// order, each product rounded by itself. It is two to three times slower than
// fastDot.
func exactDot(a, b []float32) float64 {
	var sum float64
	for len(a) > 0 {
		n := min(len(a), dotBlock)
		sum += dotLanes(a[:n], b[:n])
		a, b = a[n:], b[n:]
	}
	return sum
}

func dotLanes(a, b []float32) float64 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for len(a) >= 8 && len(b) >= 8 {
		x, y := (*[8]float32)(a), (*[8]float32)(b)
		s0 += float32(x[0] * y[0])
		s1 += float32(x[1] * y[1])
		s2 += float32(x[2] * y[2])
		s3 += float32(x[3] * y[3])
		s4 += float32(x[4] * y[4])
		s5 += float32(x[5] * y[5])
		s6 += float32(x[6] * y[6])
		s7 += float32(x[7] * y[7])
		a, b = a[8:], b[8:]
	}
	for i, x := range a {
		s0 += float32(x * b[i])
	}
	return float64((s0+s1)+(s2+s3)) + float64((s4+s5)+(s6+s7))
}

// linear computes y = x·wᵀ + bias: x [T, in], w [out, in] as Hugging Face
// stores it, bias [out] or nil, y [T, out].
func linear(y, x, w *Matrix, bias []float32, dot dotFunc) {
	const outs, rows = 16, 16 // a tile of w and one of x that stay in cache together
	parallel(w.Rows, outs, func(lo, hi int) {
		for t0 := 0; t0 < x.Rows; t0 += rows {
			t1 := min(t0+rows, x.Rows)
			for o := lo; o < hi; o++ {
				weight := w.Row(o)
				var b float64
				if bias != nil {
					b = float64(bias[o])
				}
				for t := t0; t < t1; t++ {
					y.Data[t*y.Cols+o] = float32(dot(x.Row(t), weight) + b)
				}
			}
		}
	})
}

// rmsNorm writes x/sqrt(mean(x²)+eps)·(offset+w) to dst for each vector of
// len(w) values in a row. dst and x may be the same matrix.
func rmsNorm(dst, x *Matrix, w []float32, eps float64, unitOffset bool) {
	var offset float32
	if unitOffset {
		offset = 1
	}
	parallel(x.Rows, 1, func(lo, hi int) {
		for t := lo; t < hi; t++ {
			in, out := x.Row(t), dst.Row(t)
			for i := 0; i < len(in); i += len(w) {
				v := in[i : i+len(w)]
				var sum float64
				for _, e := range v {
					sum += float64(float64(e) * float64(e))
				}
				scale := 1 / math.Sqrt(sum/float64(len(v))+eps)
				for j, e := range v {
					out[i+j] = float32(float64(e) * scale * float64(offset+w[j]))
				}
			}
		}
	})
}

// add writes a+b to dst.
func add(dst, a, b *Matrix) {
	for i, x := range a.Data {
		dst.Data[i] = x + b.Data[i]
	}
}

// softcap replaces x by cap·tanh(x/cap).
func softcap(xs []float32, cap float32) {
	for i, x := range xs {
		xs[i] = float32(elementary.Tanh(float64(x/cap))) * cap
	}
}

// parallel calls f for consecutive ranges of at most grain items that cover
// [0, n), on all cores. Ranges do not depend on the number of cores, and f
// must write only what belongs to its range.
func parallel(n, grain int, f func(lo, hi int)) {
	chunks := (n + grain - 1) / grain
	workers := min(runtime.GOMAXPROCS(0), chunks)
	if workers <= 1 {
		for lo := 0; lo < n; lo += grain {
			f(lo, min(lo+grain, n))
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				lo := (int(next.Add(1)) - 1) * grain
				if lo >= n {
					return
				}
				f(lo, min(lo+grain, n))
			}
		})
	}
	wg.Wait()
}
