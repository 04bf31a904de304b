package replay

import (
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/elementary"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
)

// rotated turns the heads of every row by its position. freq are the angular
// frequencies of a head's pairs (i, i+dim/2).
func rotated(x decoder.Matrix, freq []float32, positions []int) decoder.Matrix {
	y := x.Clone()
	half := len(freq)
	if half == 0 || x.Cols%(2*half) != 0 {
		return y
	}
	parallel.Ranges(y.Rows, 64, func(lo, hi int) {
		cos, sin := make([]float32, half), make([]float32, half)
		for t := lo; t < hi; t++ {
			for i, w := range freq {
				angle := float64(float32(positions[t]) * w)
				cos[i], sin[i] = float32(elementary.Cos(angle)), float32(elementary.Sin(angle))
			}
			row := y.Row(t)
			for head := 0; head < len(row); head += 2 * half {
				a, b := row[head:head+half], row[head+half:head+2*half]
				for i := range a {
					u, v := a[i], b[i]
					a[i] = float32(u*cos[i]) - float32(v*sin[i])
					b[i] = float32(v*cos[i]) + float32(u*sin[i])
				}
			}
		}
	})
	return y
}

// span is a range of rows of keys and values.
type span struct {
	k, v     decoder.Matrix
	from, to int
}

// heads describes the attention of a layer.
type heads struct {
	query, kv, dim int
	scale          float32
}

// attend is softmax(scale·q·kᵀ)·v for every row over the keys of its spans.
func (c *calc) attend(q decoder.Matrix, h heads, spans func(row int) []span) decoder.Matrix {
	out := decoder.NewMatrix(q.Rows, q.Cols)
	if c.err != nil {
		return out
	}
	parallel.Ranges(q.Rows, 8, func(lo, hi int) {
		var scores []float32
		part := make([]float32, h.dim)
		for row := lo; row < hi; row++ {
			ss := spans(row)
			n := 0
			for _, s := range ss {
				n += s.to - s.from
			}
			if cap(scores) < n {
				scores = make([]float32, 2*n)
			}
			scores = scores[:n]
			for head := range h.query {
				at, kvAt := head*h.dim, head/(h.query/h.kv)*h.dim
				query := q.Row(row)[at : at+h.dim]
				k := 0
				for _, s := range ss {
					if m := s.to - s.from; m > 0 {
						kernel.MulF32(scores[k:], m, query, h.dim, 1, s.k.Data[s.from*s.k.Cols+kvAt:], s.k.Cols, m, h.dim)
						k += m
					}
				}
				kernel.MulScalar(scores, scores, h.scale)
				kernel.Softmax(scores, scores)
				dst := out.Row(row)[at : at+h.dim]
				k = 0
				for _, s := range ss {
					if m := s.to - s.from; m > 0 {
						kernel.MulNN(part, h.dim, scores[k:], m, 1, s.v.Data[s.from*s.v.Cols+kvAt:], s.v.Cols, m, h.dim)
						kernel.Add(dst, dst, part)
						k += m
					}
				}
			}
		}
	})
	return out
}
