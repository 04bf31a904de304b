package decoder

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
)

// headTile is how many rows of the head are in memory at once.
const headTile = 1024

// Norm is the residual stream after the final norm [tokens, hidden]: the input
// of the head. Not all layers need have run.
func (d *Decoder) Norm(s *State) (Matrix, error) {
	gamma, err := d.gamma("model.norm.weight", d.config.Hidden)
	if err != nil {
		return Matrix{}, err
	}
	x := NewMatrix(s.Hidden.Rows, s.Hidden.Cols)
	parallel.Ranges(x.Rows, 64, func(lo, hi int) {
		norm(x.Data[lo*x.Cols:hi*x.Cols], s.Hidden.Data[lo*x.Cols:hi*x.Cols], gamma, d.config.NormEps)
	})
	return x, nil
}

// Select returns some rows of m, in a matrix of its own.
func (m Matrix) Select(rows []int) Matrix {
	out := NewMatrix(len(rows), m.Cols)
	for i, r := range rows {
		copy(out.Row(i), m.Row(r))
	}
	return out
}

// A Head computes logits of one model.
type Head struct {
	d *Decoder
	t checkpoint.Tensor
}

// NewHead is the head of d; w may replace its matrix.
func (d *Decoder) NewHead(w Weights) (*Head, error) {
	t, err := d.weight(d.Head(), w, d.config.Vocab, d.config.Hidden)
	if err != nil {
		return nil, err
	}
	return &Head{d, t.Tensor}, nil
}

// tile reads rows of the matrix into w.
func (h *Head) tile(w *Matrix, first, n int) error {
	*w = w.resized(n, h.d.config.Hidden)
	return readRows(*w, h.t, first)
}

// logits stores those of rows [lo, hi) of x for the rows of w.
func (h *Head) logits(dst Matrix, x Matrix, lo, hi int, w Matrix) {
	mul(dst, x, lo, hi, w)
	softcap(dst.Data, h.d.config.FinalSoftcap)
}

// Logits computes the logits of x, normed rows, and emits them in pieces:
// entries of the vocabulary from first on, of row. Pieces of a row come in
// order, one at a time; rows come from several goroutines. emit keeps nothing.
func (h *Head) Logits(ctx context.Context, x Matrix, emit func(row, first int, logits []float32) error) error {
	return tiles(ctx, x.Rows, []*Head{h}, func(lo, hi, first int, w []Matrix) error {
		y := NewMatrix(hi-lo, w[0].Rows)
		h.logits(y, x, lo, hi, w[0])
		for i := range y.Rows {
			if err := emit(lo+i, first, y.Row(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// tiles goes through the vocabulary of heads in step, and through rows on all
// cores.
func tiles(ctx context.Context, rows int, hs []*Head, f func(lo, hi, first int, w []Matrix) error) error {
	vocab := hs[0].d.config.Vocab
	ws := make([]Matrix, len(hs))
	grain := min(rowGrain(rows), 64)
	errs := make([]error, (rows+grain-1)/grain)
	for first := 0; first < vocab; first += headTile {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("decoder: stopped in the head: %w", err)
		}
		n := min(headTile, vocab-first)
		for i, h := range hs {
			if i > 0 && h.t == hs[0].t {
				ws[i] = ws[0]
				continue
			}
			if err := h.tile(&ws[i], first, n); err != nil {
				return err
			}
		}
		parallel.Ranges(rows, grain, func(lo, hi int) { errs[lo/grain] = f(lo, hi, first, ws) })
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// Divergence is how a model's distribution over the next token compares with a
// reference's at one position.
type Divergence struct {
	KL   float64 // Σ p·(ln p − ln q), p of the reference, in nats
	Same bool    // both put the same token first
	// NLL and Reference are −ln q and −ln p of the token that follows, where
	// there is one.
	NLL, Reference float64
}

// Compare compares, row by row, the head of a model on x with the head of a
// reference on ref. next has the tokens that follow; nil leaves NLL out. Neither
// logits nor probabilities of all rows are ever in memory.
//
// Exponentials are float32 (2 ulp), sums float64 across tiles: KL is accurate to
// about 1e-6.
func Compare(ctx context.Context, h *Head, x Matrix, refHead *Head, ref Matrix, next []int32) ([]Divergence, error) {
	if x.Rows != ref.Rows || h.d.config.Vocab != refHead.d.config.Vocab {
		return nil, fmt.Errorf("decoder: %d rows and %d tokens cannot be compared with %d and %d", x.Rows, h.d.config.Vocab, ref.Rows, refHead.d.config.Vocab)
	}
	if next != nil && len(next) != x.Rows {
		return nil, fmt.Errorf("decoder: %d following tokens for %d rows", len(next), x.Rows)
	}
	same := h == refHead && &x.Data[0] == &ref.Data[0]
	sums := make([]comparison, x.Rows)
	err := tiles(ctx, x.Rows, []*Head{refHead, h}, func(lo, hi, first int, w []Matrix) error {
		n := w[0].Rows
		p, q := NewMatrix(hi-lo, n), NewMatrix(hi-lo, n)
		refHead.logits(p, ref, lo, hi, w[0])
		if same {
			copy(q.Data, p.Data)
		} else {
			h.logits(q, x, lo, hi, w[1])
		}
		soft := make([]float32, n)
		for i := range hi - lo {
			target := -1
			if next != nil {
				target = int(next[lo+i]) - first
			}
			if err := sums[lo+i].add(p.Row(i), q.Row(i), soft, first, target); err != nil {
				return fmt.Errorf("decoder: row %d: %w", lo+i, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]Divergence, x.Rows)
	for i := range sums {
		out[i] = sums[i].result()
	}
	return out, nil
}

// comparison takes in the logits of a row tile by tile.
type comparison struct {
	p, q  expSum
	cross float64 // Σ exp(p − peak of p)·(p − q)
}

// expSum is Σ exp(x − peak), with where the peak is and the target's logit.
type expSum struct {
	peak, sum float64
	at        int
	target    float64
}

func (c *comparison) add(p, q, soft []float32, first, target int) error {
	sum, at := expTile(soft, q)
	c.q.add(q, sum, at, first, target)
	sum, at = expTile(soft, p)
	// soft holds exp(p − p[at])/sum.
	kernel.Sub(q, p, q)
	var cross [1]float32
	kernel.MulF32(cross[:], 1, soft, len(soft), 1, q, len(q), 1, len(q))
	before := c.p.peak
	fresh := c.p.sum == 0
	c.p.add(p, sum, at, first, target)
	if !fresh {
		c.cross *= math.Exp(before - c.p.peak)
	}
	c.cross += float64(cross[0]) * sum * math.Exp(float64(p[at])-c.p.peak)
	if s := c.p.sum + c.q.sum + c.cross; s-s != 0 {
		return errors.New("logits are not finite")
	}
	return nil
}

// expTile stores exp(x − max)/sum and returns the sum and where the maximum is.
func expTile(dst, x []float32) (sum float64, at int) {
	at = kernel.ArgMax(x)
	kernel.Softmax(dst, x)
	return 1 / float64(dst[at]), at
}

// add takes in a tile with the given sum of exponentials about x[at].
func (s *expSum) add(x []float32, sum float64, at, first, target int) {
	peak := float64(x[at])
	switch {
	case s.sum == 0:
		s.peak, s.sum, s.at = peak, sum, first+at
	case peak > s.peak:
		s.sum = s.sum*math.Exp(s.peak-peak) + sum
		s.peak, s.at = peak, first+at
	default:
		s.sum += sum * math.Exp(peak-s.peak)
	}
	if target >= 0 && target < len(x) {
		s.target = float64(x[target])
	}
}

func (s *expSum) log() float64 { return s.peak + math.Log(s.sum) }

func (c *comparison) result() Divergence {
	return Divergence{
		KL:   c.cross/c.p.sum - c.p.log() + c.q.log(),
		Same: c.p.at == c.q.at, NLL: c.q.log() - c.q.target, Reference: c.p.log() - c.p.target,
	}
}
