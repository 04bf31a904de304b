package runtime

import (
	"math"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// maxTask finds the largest element of rows, or its index. As in the general
// form, the first NaN beats everything.
type maxTask struct {
	x     []float32
	n     int
	value []float32 // either
	index []int32   // or
}

func (p *maxTask) run(lo, hi int) {
	for r := lo; r < hi; r++ {
		row := p.x[r*p.n:][:p.n]
		at := -1
		// A sum of squares is NaN only if an element is.
		if s := kernel.SumSquares(row); s != s {
			for i, v := range row {
				if v != v {
					at = i
					break
				}
			}
		}
		switch {
		case p.value == nil && at >= 0:
			p.index[r] = int32(at)
		case p.value == nil:
			p.index[r] = int32(kernel.ArgMax(row))
		case at >= 0:
			p.value[r] = float32(math.NaN())
		default:
			p.value[r] = kernel.Max(row)
		}
	}
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
		p.x, p.n, p.value, p.index = in.F, n, y.F, y.I
		f.pool.do(y.Len(), 1+(1<<15)/max(n, 1), p)
		p.x, p.value, p.index = nil, nil, nil
		return nil
	}}, true, nil
}
