package reference

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/drafter"
)

// sheet is a plain calculator over the tensors of a drafter. Every method
// returns a new matrix; the first error is latched.
type sheet struct {
	weights weightReader
	eps     float64
	act     func(float64) float64
	tap     Tap // may be nil
	err     error
}

func (s *sheet) show(name string, m *Matrix) *Matrix {
	if s.tap != nil && s.err == nil {
		s.tap(name, m)
	}
	return m
}

// linear is x·wᵀ, [T, out].
func (s *sheet) linear(x *Matrix, name string, out int) *Matrix {
	y := NewMatrix(x.Rows, out)
	const tile = 1 << 14
	for first := 0; first < out && s.err == nil; first += tile {
		n := min(tile, out-first)
		w, err := s.weights.matrix(name, first, n, x.Cols)
		if s.err = err; err != nil {
			break
		}
		part := NewMatrix(x.Rows, n)
		linear(part, x, w, nil, fastDot)
		for t := range x.Rows {
			copy(y.Row(t)[first:], part.Row(t))
		}
	}
	return y
}

// norm is RMSNorm of each vector of the given width in a row; name "" has no
// gains.
func (s *sheet) norm(x *Matrix, name string, width int) *Matrix {
	y := x.Clone()
	if s.err != nil {
		return y
	}
	w := slices.Repeat([]float32{1}, width)
	if name != "" {
		if w, s.err = s.weights.vector(name, width); s.err != nil {
			return y
		}
	}
	rmsNorm(y, x, w, s.eps, false)
	return y
}

// rows reads rows of a stored table.
func (s *sheet) rows(name string, width int, ids ...int32) *Matrix {
	m := NewMatrix(len(ids), width)
	for i, id := range ids {
		if s.err == nil {
			s.err = s.weights.read(name, m.Row(i), int(id)*width)
		}
	}
	return m
}

func (s *sheet) add(a, b *Matrix) *Matrix {
	y := NewMatrix(a.Rows, a.Cols)
	add(y, a, b)
	return y
}

// beside puts the rows of two matrices next to each other.
func beside(a, b *Matrix) *Matrix {
	y := NewMatrix(a.Rows, a.Cols+b.Cols)
	for t := range a.Rows {
		copy(y.Row(t), a.Row(t))
		copy(y.Row(t)[a.Cols:], b.Row(t))
	}
	return y
}

// below puts one matrix under another.
func below(a, b *Matrix) *Matrix {
	return &Matrix{Rows: a.Rows + b.Rows, Cols: b.Cols, Data: slices.Concat(a.Data, b.Data)}
}

// mlp is down(act(gate(x))·up(x)); names begin with p.
func (s *sheet) mlp(x *Matrix, p string, inner int) *Matrix {
	gate, up := s.linear(x, p+"gate_proj.weight", inner), s.linear(x, p+"up_proj.weight", inner)
	for i, g := range gate.Data {
		gate.Data[i] = float32(s.act(float64(g))) * up.Data[i]
	}
	return s.linear(gate, p+"down_proj.weight", x.Cols)
}

// rotated turns the heads of x by the positions from first on.
func rotated(x *Matrix, r Rope, first, headDim int) *Matrix {
	y, t := x.Clone(), r.table(first, x.Rows, headDim)
	for i := range y.Rows {
		t.rotate(y.Row(i), i, headDim)
	}
	return y
}

// attend is attention of q over k and v.
func (s *sheet) attend(q, k, v *Matrix, h heads) *Matrix {
	y := NewMatrix(q.Rows, q.Cols)
	if s.err == nil {
		attention(y, q, k, v, h, fastDot)
	}
	return y
}

// embeddings are the rows of tokens: the drafter's own, scaled, if own names
// the tensor, else the target's.
func (s *sheet) embeddings(own string, width int, scale float32, target drafter.Embedder, ids ...int32) *Matrix {
	if own != "" {
		m := s.rows(own, width, ids...)
		for i := range m.Data {
			m.Data[i] *= scale
		}
		return m
	}
	m := NewMatrix(len(ids), width)
	for i, id := range ids {
		if s.err == nil {
			s.err = target.Embed(m.Row(i), id)
		}
	}
	return m
}

// first is the first of the largest.
func first(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// checkDraft checks the arguments of a session's Draft.
func checkDraft(position int, next int32, vocab, n, limit int) error {
	switch {
	case position == 0:
		return fmt.Errorf("reference: nothing has been committed to the drafter")
	case n < 1 || n > limit:
		return fmt.Errorf("reference: %d drafts asked of a drafter that gives 1 to %d", n, limit)
	case next < 0 || int(next) >= vocab:
		return fmt.Errorf("reference: token %d is outside the vocabulary of %d", next, vocab)
	}
	return nil
}
