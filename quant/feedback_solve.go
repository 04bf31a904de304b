package quant

import (
	"runtime"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
)

// Solve replaces rows m of a matrix [rows, cols] by m·(H + damping)⁻¹, the solution
// of a least squares problem on the inputs that H sums up, in float32.
func (f *Feedback) Solve(m []float32) {
	rows := len(m) / f.cols
	parallel.Ranges(rows, feedbackBlock(rows, f.cols, runtime.GOMAXPROCS(0)), func(lo, hi int) { f.solve(m[lo*f.cols : hi*f.cols]) })
}

func (f *Feedback) solve(m []float32) {
	own, n, size := len(m)/f.cols, f.cols, f.block()
	if f.turned {
		turnRows(m, n)
		defer turnRowsBack(m, n)
	}
	rows := (own + lanes - 1) / lanes * lanes
	x := make([]float32, n*rows)
	for k, col := range f.order {
		for r := range own {
			x[k*rows+r] = m[r*n+int(col)]
		}
	}
	sum, turned := make([]float32, size*rows), make([]float32, size*n)
	last := (n - 1) / size * size
	// z·Uᵀ = m, from the last column to the first.
	for at := last; at >= 0; at -= size {
		b := min(size, n-at)
		rest := n - at - b
		own := x[at*rows : (at+b)*rows]
		if rest > 0 {
			for i := range rest {
				for j, v := range f.lower[(at+b+i)*n+at:][:b] {
					turned[j*rest+i] = v
				}
			}
			kernel.MulNN(sum, rows, turned, rest, b, x[(at+b)*rows:], rows, rest, rows)
			kernel.Sub(own, own, sum[:b*rows])
		}
		for i := range b {
			for j, v := range f.inverse[(at+i)*size:][:b] {
				turned[j*b+i] = v
			}
		}
		kernel.MulNN(sum, rows, turned, b, b, own, rows, b, rows)
		copy(own, sum)
	}
	for k, d := range f.pivots {
		row := x[k*rows : (k+1)*rows]
		kernel.MulScalar(row, row, 1/d)
	}
	// y·U = z·D⁻¹, from the first to the last.
	for at := 0; at < n; at += size {
		b := min(size, n-at)
		own := x[at*rows : (at+b)*rows]
		if at > 0 {
			kernel.MulNN(sum, rows, f.lower[at*n:], n, b, x, rows, at, rows)
			kernel.Sub(own, own, sum[:b*rows])
		}
		kernel.MulNN(sum, rows, f.inverse[at*size:], size, b, own, rows, b, rows)
		copy(own, sum)
	}
	for k, col := range f.order {
		for r := range own {
			m[r*n+int(col)] = x[k*rows+r]
		}
	}
}
