package quant

import (
	"math"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
)

// local has, for every block B of columns that RoundGroups codes at once, the
// factorization U·D·Uᵀ of B's own part of the damped Hessian, H_BB, and the
// inverse of that: [cols, block] like Feedback.inverse.
type local struct {
	lower, inverse []float32
	pivots         []float32
}

// localize computes hessian and local.
func (f *Feedback) localize(h []float64, add float64) {
	n, size := f.cols, f.block()
	f.hessian = make([]float32, n*n)
	parallel.Ranges(n, 16, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			p := int(f.order[i])
			row := f.hessian[i*n : (i+1)*n]
			for j := range row {
				q := int(f.order[j])
				row[j] = float32(h[max(p, q)*n+min(p, q)])
			}
			row[i] = float32(h[p*n+p] + add)
		}
	})
	f.local = local{make([]float32, n*size), make([]float32, n*size), make([]float32, n)}
	parallel.Ranges((n+size-1)/size, 1, func(lo, hi int) {
		for b := lo; b < hi; b++ {
			f.localBlock(h, add, b*size, min(size, n-b*size))
		}
	})
}

// localBlock factors and inverts the block of m columns from at on.
func (f *Feedback) localBlock(h []float64, add float64, at, m int) {
	n, size := f.cols, f.block()
	// The Cholesky factor L of the block in reverse order; U and D as in factor.
	a := make([]float64, m*m)
	for i := range m {
		p := int(f.order[at+m-1-i])
		for j := range i + 1 {
			q := int(f.order[at+m-1-j])
			a[i*m+j] = h[max(p, q)*n+min(p, q)]
		}
		a[i*m+i] += add
		for j := range i {
			a[i*m+j] = (a[i*m+j] - dot64(a[i*m:][:j], a[j*m:])) / a[j*m+j]
		}
		// The whole matrix has positive pivots, and so has every part of it; the
		// bound keeps rounding from saying otherwise.
		d := a[i*m+i]
		a[i*m+i] = math.Sqrt(max(d-dot64(a[i*m:][:i], a[i*m:]), 1e-12*d))
	}
	for k := range m {
		j := m - 1 - k
		row := f.local.lower[(at+k)*size:][:m]
		for e := range k {
			row[e] = float32(a[(m-1-e)*m+j] / a[j*m+j])
		}
		row[k] = 1
		f.local.pivots[at+k] = float32(a[j*m+j] * a[j*m+j])
	}
	// Columns of the inverse: L·Lᵀ·x = e.
	x := make([]float64, m)
	for c := range m {
		clear(x)
		x[c] = 1
		for i := c; i < m; i++ {
			x[i] = (x[i] - dot64(a[i*m:][:i], x)) / a[i*m+i]
		}
		for i := m - 1; i >= 0; i-- {
			for k := i + 1; k < m; k++ {
				x[i] -= float64(a[k*m+i] * x[k])
			}
			x[i] /= a[i*m+i]
		}
		for i, v := range x {
			f.local.inverse[(at+m-1-i)*size+m-1-c] = float32(v)
		}
	}
}

// Refine goes through a coded matrix once more, group after group, with all other
// groups as they are. decoded [rows, cols] is what w has become; it is updated. code
// is called as by RoundGroups, with c.Decoded as it is; targets, feedback and pivots
// are those of the group by itself, so that Σ D_j·(δ·U)_j² with δ = target − decoded
// is, up to a constant, the error of the whole matrix. Whatever code does to make
// that smaller makes the whole better.
func (f *Feedback) Refine(w, decoded []float32, code func(c *Columns)) {
	own := len(w) / f.cols
	rows := (own + lanes - 1) / lanes * lanes
	errs, codes := make([]float32, f.cols*rows), make([]float32, f.cols*rows)
	for k, col := range f.order {
		for r := range own {
			at := r*f.cols + int(col)
			codes[k*rows+r] = decoded[at]
			errs[k*rows+r] = w[at] - decoded[at]
		}
	}
	size := f.block()
	targets, gradient := make([]float32, size*rows), make([]float32, size*rows)
	for at := 0; at < f.cols; at += size {
		n := min(size, f.cols-at)
		c := &Columns{Index: f.order[at : at+n], Rows: rows, Targets: targets[:n*rows], Decoded: codes[at*rows : (at+n)*rows],
			Feedback: f.local.lower[at*size:], Stride: size, Pivots: f.local.pivots[at : at+n]}
		kernel.MulNN(gradient, rows, f.hessian[at*f.cols:], f.cols, n, errs, rows, f.cols, rows)
		kernel.MulNN(c.Targets, rows, f.local.inverse[at*size:], size, n, gradient, rows, n, rows)
		kernel.Add(c.Targets, c.Targets, c.Decoded)
		e := errs[at*rows : (at+n)*rows]
		kernel.Add(e, e, c.Decoded)
		code(c)
		kernel.Sub(e, e, c.Decoded)
	}
	for k, col := range f.order {
		for r := range own {
			decoded[r*f.cols+int(col)] = codes[k*rows+r]
		}
	}
}
