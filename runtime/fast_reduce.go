package runtime

import (
	"math"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// maxTask finds the largest element of rows, or its index. As in the general
// form, the first NaN beats everything. A unit is a piece of a row: a row of
// logits is long.
type maxTask struct {
	x      []float32
	n      int
	pieces int     // of a row
	best   []piece // by unit
}

// piece is what a part of a row has found: its largest element and the index
// of its first NaN, or -1.
type piece struct {
	top float32
	nan int32
}

// pieceLen is the number of elements of a piece.
const pieceLen = 1 << 14

func (p *maxTask) run(lo, hi int) {
	for u := lo; u < hi; u++ {
		from := u % p.pieces * pieceLen
		part := p.x[u/p.pieces*p.n+from:][:min(pieceLen, p.n-from)]
		b := piece{kernel.Max(part), -1}
		// A sum of squares is NaN only if an element is.
		if s := kernel.SumSquares(part); s != s {
			for i, v := range part {
				if v != v {
					b.nan = int32(from + i)
					break
				}
			}
		}
		p.best[u] = b
	}
}

// row combines the pieces of row r: the first NaN, or the largest element and
// the piece that holds it first.
func (p *maxTask) row(r int) (top float32, at int, nan int32) {
	top = float32(math.Inf(-1))
	for i, b := range p.best[r*p.pieces:][:p.pieces] {
		if b.nan >= 0 {
			return 0, 0, b.nan
		}
		if b.top > top {
			top, at = b.top, i
		}
	}
	return top, at, -1
}

func (p *maxTask) value(r int) float32 {
	top, _, nan := p.row(r)
	if nan >= 0 {
		return float32(math.NaN())
	}
	return top
}

func (p *maxTask) index(r int) int32 {
	_, at, nan := p.row(r)
	if nan >= 0 {
		return nan
	}
	from := at * pieceLen
	return int32(from + kernel.ArgMax(p.x[r*p.n+from:][:min(pieceLen, p.n-from)]))
}

// fastMax handles reduce_argmax and reduce_max over the last axis.
func fastMax(l *lowering, op *mil.Op) (instr, bool, error) {
	c := l.infer(op)
	t := c.T("x")
	r := t.Rank()
	if !mil.Floats.Has(t.DType) || r == 0 || r > maxRank || !constants(c, "axis", "axes", "keep_dims", "output_dtype") {
		return instr{}, false, nil
	}
	axis, dt := c.Int("axis", -1), resultType(op)
	if op.Kind == "reduce_max" {
		axes, ok := c.Ints("axes")
		if !ok || len(axes) != 1 {
			return instr{}, false, nil
		}
		axis = axes[0]
	} else if dt != mil.Int32 {
		return instr{}, false, nil
	}
	if axis != -1 && axis != r-1 {
		return instr{}, false, nil
	}
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, false, err
	}
	keep := c.Bool("keep_dims", false)
	o, id := l.result(op, 0), l.local()
	return instr{out: []int{o}, exact: true, alias: -1, run: func(f *frame) error {
		in := f.t[x]
		var shape [maxRank]int
		copy(shape[:], in.Shape[:r])
		n := shape[r-1]
		shape[r-1] = 1
		rank := r
		if !keep {
			rank--
		}
		y := f.out(o, dt, shape[:rank]...)
		p := local[maxTask](f, id)
		p.x, p.n, p.pieces = in.F, n, max(1, (n+pieceLen-1)/pieceLen)
		units := y.Len() * p.pieces
		if cap(p.best) < units {
			p.best = make([]piece, units)
		}
		p.best = p.best[:units]
		f.pool.do(units, 1+(1<<15)/max(1, min(n, pieceLen)), p)
		for r := range y.Len() {
			if y.F != nil {
				y.F[r] = p.value(r)
			} else {
				y.I[r] = p.index(r)
			}
		}
		p.x = nil
		return nil
	}}, true, nil
}
