package runtime

import (
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

type softmaxTask struct {
	dst, x []float32
	n      int
	round  bool
}

func (p *softmaxTask) run(lo, hi int) {
	for i := lo; i < hi; i++ {
		row := p.dst[i*p.n:][:p.n]
		kernel.Softmax(row, p.x[i*p.n:][:p.n])
		if p.round {
			kernel.RoundF16(row)
		}
	}
}

// fastSoftmax handles the last axis.
func fastSoftmax(l *lowering, op *mil.Op) (instr, bool, error) {
	c := l.infer(op)
	r := c.T("x").Rank()
	if !floatResult(op) || r == 0 || !constants(c, "axis") || c.Int("axis", -1) != -1 && c.Int("axis", -1) != r-1 {
		return instr{}, false, nil
	}
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, false, err
	}
	o, id, round := l.result(op, 0), l.local(), l.rounds(op)
	return instr{out: []int{o}, exact: true, alias: -1, run: func(f *frame) error {
		t := f.t[x]
		y := f.out(o, t.DType, t.Shape...)
		n := t.Shape[len(t.Shape)-1]
		if n == 0 {
			return nil
		}
		p := local[softmaxTask](f, id)
		p.dst, p.x, p.n, p.round = y.F, t.F, n, round
		f.pool.do(len(y.F)/n, 1+(1<<13)/n, p)
		p.dst, p.x = nil, nil
		return nil
	}}, true, nil
}
