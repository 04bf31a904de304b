package calibration

import (
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
)

// Hessian is Σ x·xᵀ over inputs x of a module.
type Hessian struct {
	Cols   int
	Tokens int
	Sum    []float64 // [Cols, Cols], the lower triangle; nil in a Diagonal one
	// Diagonal is that of Sum.
	Diagonal []float64
}

// NewHessian returns an empty sum. A diagonal one takes much less time.
func NewHessian(cols int, diagonal bool) *Hessian {
	h := &Hessian{Cols: cols, Diagonal: make([]float64, cols)}
	if !diagonal {
		h.Sum = make([]float64, cols*cols)
	}
	return h
}

// quiet is added to the importance of every column, as a share of their mean: one
// that is quiet on this text need not be on others.
const quiet = 0.1

// Importance is the damped diagonal in float32, what quant.Options.Importance takes.
func (h *Hessian) Importance() []float32 {
	var mean float64
	for _, d := range h.Diagonal {
		mean += d
	}
	mean /= float64(h.Cols)
	out := make([]float32, h.Cols)
	for i, d := range h.Diagonal {
		out[i] = float32(d + float64(quiet*mean))
	}
	return out
}

// blockTokens is how many products are summed in float32.
const blockTokens = 1024

// Add sums the rows of x.
func (h *Hessian) Add(x decoder.Matrix) {
	h.Tokens += x.Rows
	if h.Sum == nil {
		h.addDiagonal(x)
		return
	}
	t := make([]float32, h.Cols*blockTokens)
	for first := 0; first < x.Rows; first += blockTokens {
		n := min(blockTokens, x.Rows-first)
		transpose(t, x, nil, first, n)
		product(h.Sum, h.Cols, t, t, n, h.Cols, true)
	}
	for i := range h.Diagonal {
		h.Diagonal[i] = h.Sum[i*h.Cols+i]
	}
}

func (h *Hessian) addDiagonal(x decoder.Matrix) {
	const grain = 32
	parallel.Ranges((h.Cols+grain-1)/grain, 1, func(b, _ int) {
		at := b * grain
		n := min(grain, h.Cols-at)
		var sum [grain]float32
		for first := 0; first < x.Rows; first += blockTokens {
			clear(sum[:])
			for t := first; t < min(first+blockTokens, x.Rows); t++ {
				for i, v := range x.Row(t)[at : at+n] {
					sum[i] += float32(v * v)
				}
			}
			for i, v := range sum[:n] {
				h.Diagonal[at+i] += float64(v)
			}
		}
	})
}

// drifted are the inputs of modules in the quantized model and in the unquantized
// one.
type drifted struct {
	full *decoder.Matrix
	x    decoder.Matrix
	sum  []float32 // Σ x̂·(x − x̂)ᵀ, once it is needed
}

// product is W·Σ(x − x̂)·x̂ᵀ for a matrix [rows, cols].
func (d *drifted) product(w []float32, cols int, alone bool) []float32 {
	rows := len(w) / cols
	if alone && 2*rows < cols {
		return d.through(w, rows, cols)
	}
	if d.sum == nil {
		d.sum = narrow(d.outer(*d.full, &d.x, cols))
	}
	y := make([]float32, len(w))
	const grain = 48
	parallel.Ranges((rows+grain-1)/grain, 1, func(b, _ int) {
		lo, hi := b*grain, min((b+1)*grain, rows)
		kernel.MulF32(y[lo*cols:], cols, w[lo*cols:], cols, hi-lo, d.sum, cols, cols, cols)
	})
	return y
}

// outer is Σ x̂·(a − less)ᵀ, [columns of x̂, columns of a].
func (d *drifted) outer(a decoder.Matrix, less *decoder.Matrix, cols int) []float64 {
	sum := make([]float64, cols*a.Cols)
	p, q := make([]float32, cols*blockTokens), make([]float32, a.Cols*blockTokens)
	for first := 0; first < a.Rows; first += blockTokens {
		n := min(blockTokens, a.Rows-first)
		transpose(p, d.x, nil, first, n)
		transpose(q, a, less, first, n)
		product(sum, a.Cols, p, q, n, cols, false)
	}
	return sum
}

// through is product by way of the outputs W·(x − x̂): less work where there are
// few of them.
func (d *drifted) through(w []float32, rows, cols int) []float32 {
	out := decoder.NewMatrix(d.x.Rows, rows)
	const grain = 256
	parallel.Ranges((out.Rows+grain-1)/grain, 1, func(b, _ int) {
		lo, hi := b*grain, min((b+1)*grain, out.Rows)
		e := make([]float32, (hi-lo)*cols)
		kernel.Sub(e, d.full.Data[lo*cols:hi*cols], d.x.Data[lo*cols:hi*cols])
		kernel.MulF32(out.Data[lo*rows:], rows, e, cols, hi-lo, w, cols, rows, cols)
	})
	sum := d.outer(out, nil, cols)
	y := make([]float32, rows*cols)
	for c := range cols {
		for r := range rows {
			y[r*cols+c] = float32(sum[c*rows+r])
		}
	}
	return y
}

func narrow(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}

// transpose stores n rows of x, less those of minus, as columns [cols, n].
func transpose(dst []float32, x decoder.Matrix, minus *decoder.Matrix, first, n int) {
	const tile = 16
	parallel.Ranges((x.Cols+tile-1)/tile, 1, func(b, _ int) {
		from, to := b*tile, min((b+1)*tile, x.Cols)
		for t := range n {
			row := x.Row(first + t)
			if minus == nil {
				for c := from; c < to; c++ {
					dst[c*n+t] = row[c]
				}
				continue
			}
			less := minus.Row(first + t)
			for c := from; c < to; c++ {
				dst[c*n+t] = row[c] - less[c]
			}
		}
	})
}

// product adds a·bᵀ, a [rows, n] and b [cols, n], to sum [rows, cols]; of a square
// one only the lower triangle, if so wanted.
func product(sum []float64, cols int, a, b []float32, n, rows int, lower bool) {
	const grain = 48
	blocks := (rows + grain - 1) / grain
	parallel.Ranges(blocks, 1, func(i, _ int) {
		// The longest rows first, for an even load.
		lo := (blocks - 1 - i) * grain
		hi := min(lo+grain, rows)
		width := cols
		if lower {
			width = hi
		}
		buf := make([]float32, grain*width)
		kernel.MulF32(buf, width, a[lo*n:], n, hi-lo, b, n, width, n)
		for r := lo; r < hi; r++ {
			to := width
			if lower {
				to = r + 1
			}
			dst := sum[r*cols : r*cols+to]
			for c, v := range buf[(r-lo)*width:][:to] {
				dst[c] += float64(v)
			}
		}
	})
}
