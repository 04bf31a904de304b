package runtime

import (
	"fmt"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// gatherTask looks rows of a constant table up where they lie.
type gatherTask struct {
	w    *weight
	dst  []float32
	rows []int32
}

func (p *gatherTask) run(lo, hi int) {
	k := p.w.k
	for i := lo; i < hi; i++ {
		r, dst := int(p.rows[i]), p.dst[i*k:(i+1)*k]
		if r < 0 {
			r += p.w.n
		}
		switch {
		case p.w.f16 != nil:
			kernel.F16ToF32(dst, p.w.f16[r*k:(r+1)*k])
		case p.w.f32 != nil:
			copy(dst, p.w.f32[r*k:(r+1)*k])
		case p.w.packed != nil:
			p.w.packed.Rows(dst, r, 1)
		default:
			p.w.rows.Rows(dst, r, 1)
		}
	}
}

// fastGather handles axis 0 of a constant table.
func fastGather(l *lowering, op *mil.Op) (instr, bool, error) {
	c := l.infer(op)
	t := c.T("x")
	if !floatResult(op) || !constants(c, "axis", "batch_dims") || c.Int("batch_dims", 0) != 0 ||
		c.Int("axis", 0) != 0 && c.Int("axis", 0) != -t.Rank() || c.T("indices").Rank()+t.Rank()-1 > maxRank {
		return instr{}, false, nil
	}
	w := l.weight(op.In("x"))
	if w == nil {
		return instr{}, false, nil
	}
	ix, err := l.must(op, "indices")
	if err != nil {
		return instr{}, false, err
	}
	o, id := l.result(op, 0), l.local()
	row := t.Shape[1:]
	return instr{out: []int{o}, exact: true, alias: -1, run: func(f *frame) error {
		in := f.t[ix]
		for i, r := range in.I {
			if int(r) < -w.n || int(r) >= w.n {
				return fmt.Errorf("indices[%d] is %d, out of range for axis 0 of size %d", i, r, w.n)
			}
		}
		var shape [maxRank]int
		n := copy(shape[:], in.Shape)
		n += copy(shape[n:], row)
		p := local[gatherTask](f, id)
		p.w, p.rows = w, in.I
		p.dst = f.out(o, t.DType, shape[:n]...).F
		f.pool.do(len(in.I), 1+(1<<14)/w.k, p)
		p.dst, p.rows = nil, nil
		return nil
	}}, true, nil
}
