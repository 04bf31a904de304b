package calibration

import (
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/kernel"
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

// Importance is the diagonal in float32, what quant.Options.Importance takes.
func (h *Hessian) Importance() []float32 {
	out := make([]float32, h.Cols)
	for i, d := range h.Diagonal {
		out[i] = float32(d)
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
		product(h.Sum, h.Cols, t, t, n, true)
	}
	for i := range h.Diagonal {
		h.Diagonal[i] = h.Sum[i*h.Cols+i]
	}
}

func (h *Hessian) addDiagonal(x decoder.Matrix) {
	const grain = 32
	parallel((h.Cols+grain-1)/grain, func(b int) {
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

// drift is Σ x̂·(x − x̂)ᵀ over the inputs of a module in the quantized model (x̂) and
// in the unquantized one, [cols, cols].
func drift(full, quantized decoder.Matrix) []float64 {
	cols := full.Cols
	sum := make([]float64, cols*cols)
	a, b := make([]float32, cols*blockTokens), make([]float32, cols*blockTokens)
	for first := 0; first < full.Rows; first += blockTokens {
		n := min(blockTokens, full.Rows-first)
		transpose(a, quantized, nil, first, n)
		transpose(b, full, &quantized, first, n)
		product(sum, cols, a, b, n, false)
	}
	return sum
}

// transpose stores n rows of x, less those of minus, as columns [cols, n].
func transpose(dst []float32, x decoder.Matrix, minus *decoder.Matrix, first, n int) {
	const tile = 16
	parallel((x.Cols+tile-1)/tile, func(b int) {
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

// product adds a·bᵀ to sum, both [cols, n]; only the lower triangle if so wanted.
func product(sum []float64, cols int, a, b []float32, n int, lower bool) {
	const rows = 48
	blocks := (cols + rows - 1) / rows
	parallel(blocks, func(i int) {
		// The longest rows first, for an even load.
		lo := (blocks - 1 - i) * rows
		hi := min(lo+rows, cols)
		width := cols
		if lower {
			width = hi
		}
		buf := make([]float32, rows*width)
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
