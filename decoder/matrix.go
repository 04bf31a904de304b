package decoder

import (
	"runtime"

	"github.com/smelt-go/smelt/internal/kernel"
)

// Matrix is a dense float32 matrix in row-major order.
type Matrix struct {
	Rows, Cols int
	Data       []float32 // Rows·Cols values
}

// NewMatrix returns a matrix of zeros.
func NewMatrix(rows, cols int) Matrix { return Matrix{rows, cols, make([]float32, rows*cols)} }

// Row returns row i; it shares the matrix's memory.
func (m Matrix) Row(i int) []float32 { return m.Data[i*m.Cols : (i+1)*m.Cols : (i+1)*m.Cols] }

// Clone returns a copy.
func (m Matrix) Clone() Matrix {
	return Matrix{m.Rows, m.Cols, append([]float32(nil), m.Data...)}
}

// resized has the given shape in the memory of m where that is large enough.
// Its contents are arbitrary.
func (m Matrix) resized(rows, cols int) Matrix {
	if cap(m.Data) < rows*cols {
		return NewMatrix(rows, cols)
	}
	return Matrix{rows, cols, m.Data[:rows*cols]}
}

// mul stores rows [from, to) of x·wᵀ in dst, which has a row for each.
func mul(dst Matrix, x Matrix, from, to int, w Matrix) {
	if to <= from {
		return
	}
	kernel.MulF32(dst.Data, dst.Cols, x.Data[from*x.Cols:], x.Cols, to-from, w.Data, w.Cols, w.Rows, w.Cols)
}

// rowGrain is how many of n rows one goroutine takes at a time: enough to reuse
// a weight in cache, few enough to occupy all cores. Results do not depend on it.
func rowGrain(n int) int {
	return min(max(n/(4*runtime.GOMAXPROCS(0)), 16), 256)
}
