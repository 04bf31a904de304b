package quant

import (
	"math"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
)

// factor computes lower and pivots from the lower triangle of h; false if the
// matrix is not positive definite.
//
// U·D·Uᵀ is the Cholesky factorization with rows and columns in reverse. The
// matrix is scaled to a unit diagonal first. Panels are computed in float64; what
// a panel takes off the rest is a float32 product over its columns, subtracted in
// float64. Entries of the factor are at most 1 in magnitude, so that the products
// err by about 1e-7, much less than the damping.
func (f *Feedback) factor(h []float64, add float64) bool {
	n := f.cols
	a := make([]float64, n*n)
	scale := make([]float64, n)
	for i := range n {
		j := int(f.order[n-1-i])
		scale[i] = 1 / math.Sqrt(h[j*n+j]+add)
	}
	parallel.Ranges(n, 16, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			p := int(f.order[n-1-i])
			for j := range i + 1 {
				q := int(f.order[n-1-j])
				v := h[max(p, q)*n+min(p, q)]
				if i == j {
					v += add
				}
				a[i*n+j] = v * scale[i] * scale[j]
			}
		}
	})
	if !cholesky(a, n) {
		return false
	}
	f.lower, f.pivots = make([]float32, n*n), make([]float32, n)
	parallel.Ranges(n, 16, func(lo, hi int) {
		for k := lo; k < hi; k++ {
			j := n - 1 - k
			inv := scale[j] / a[j*n+j]
			f.pivots[k] = float32(1 / (inv * inv))
			row := f.lower[k*n : (k+1)*n]
			row[k] = 1
			for e := range k {
				i := n - 1 - e
				row[e] = float32(a[i*n+j] / scale[i] * inv)
			}
		}
	})
	f.invert()
	f.localize(h, add)
	return true
}

// invert computes inverse.
func (f *Feedback) invert() {
	n, size := f.cols, f.block()
	f.inverse = make([]float32, n*size)
	parallel.Ranges((n+size-1)/size, 1, func(lo, hi int) {
		x := make([]float64, size*size)
		for b := lo; b < hi; b++ {
			at := b * size
			m := min(size, n-at)
			for i := range m {
				row := x[i*size:][:i+1]
				clear(row)
				row[i] = 1
				for k := range i {
					c := float64(f.lower[(at+i)*n+at+k])
					for j, v := range x[k*size:][:k+1] {
						row[j] -= float64(c * v)
					}
				}
				for j, v := range row {
					f.inverse[(at+i)*size+j] = float32(v)
				}
			}
		}
	})
}

// cholesky replaces the lower triangle of a by its factor; false if a pivot is
// not positive.
func cholesky(a []float64, n int) bool {
	const width = 32
	panel := make([]float32, n*width)
	for k := 0; k < n; k += width {
		m := min(width, n-k)
		for j := k; j < k+m; j++ {
			row := a[j*n+k:]
			d := a[j*n+j]
			for _, v := range row[:j-k] {
				d -= float64(v * v)
			}
			if !(d > 0) {
				return false
			}
			d = math.Sqrt(d)
			a[j*n+j] = d
			for i := j + 1; i < k+m; i++ {
				a[i*n+j] = (a[i*n+j] - dot64(a[i*n+k:][:j-k], row)) / d
			}
		}
		rest := k + m
		parallel.Ranges(n-rest, 16, func(lo, hi int) {
			for i := rest + lo; i < rest+hi; i++ {
				row := a[i*n+k:][:m]
				for j := range m {
					at := a[(k+j)*n+k:]
					row[j] = (row[j] - dot64(row[:j], at)) / at[j]
				}
				p := panel[(i-rest)*width:][:width]
				clear(p)
				for j, v := range row {
					p[j] = float32(v)
				}
			}
		})
		parallel.Ranges(n-rest, 48, func(lo, hi int) {
			buf := make([]float32, (hi-lo)*hi)
			kernel.MulF32(buf, hi, panel[lo*width:], width, hi-lo, panel, width, hi, width)
			for i := lo; i < hi; i++ {
				row := a[(rest+i)*n+rest:][:i+1]
				for j, v := range buf[(i-lo)*hi:][:i+1] {
					row[j] -= float64(v)
				}
			}
		})
	}
	return true
}

func dot64(a, b []float64) (sum float64) {
	b = b[:len(a)]
	for i, v := range a {
		sum += float64(v * b[i])
	}
	return sum
}
