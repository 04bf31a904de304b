package runtime

import (
	"math"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// RMSNorm reaches a program as layer_norm([x, -x]) cut to its first half: the
// mean of the pair is zero and its variance is mean(x²). The fused form
// computes x/√(mean(x²)+ε)·γ in float32 and rounds once, as the layer_norm
// does; negation, concat and slice are exact. The sums of squares are added in
// another order, so results differ by at most a rounding.

// rmsNorm is one recognised pattern.
type rmsNorm struct {
	x     *mil.Value
	gamma mil.Const // 2n gains, of which the first n count; nil for ones
	n     int
	eps   float64
}

// findRMSNorm recognises the pattern that ends in the slice op and returns
// the ops it absorbs.
func (l *lowering) findRMSNorm(op *mil.Op) (r rmsNorm, absorbed []*mil.Op, ok bool) {
	norm := l.onlyUse(op.In("x"), "layer_norm")
	if norm == nil {
		return r, nil, false
	}
	pair := l.onlyUse(norm.In("x"), "concat")
	if pair == nil || len(pair.Ins("values")) != 2 {
		return r, nil, false
	}
	r.x = pair.Ins("values")[0]
	t, isTensor := r.x.Tensor()
	neg := l.onlyUse(pair.Ins("values")[1], "mul")
	if neg == nil || !isTensor || t.Rank() == 0 || !mil.Floats.Has(t.DType) || resultType(norm) != t.DType {
		return r, nil, false
	}
	last := t.Rank() - 1
	r.n = t.Shape[last]
	if !negates(neg, r.x) || r.n <= 0 || !l.joinsAt(pair, last) || !l.firstHalf(op, t) {
		return r, nil, false
	}
	c := l.infer(norm)
	axes, _ := c.Ints("axes")
	if len(axes) != 1 || axes[0] != last && axes[0] != -1 || norm.In("beta") != nil && !l.zeros(norm.In("beta")) {
		return r, nil, false
	}
	if g := norm.In("gamma"); g != nil {
		if g.Const == nil || g.Const.Type().NumElements() != 2*r.n {
			return r, nil, false
		}
		r.gamma = g.Const
	}
	r.eps = c.Float("epsilon", 1e-5)
	return r, []*mil.Op{neg, pair, norm}, true
}

// negates says that op is x·(-1).
func negates(op *mil.Op, x *mil.Value) bool {
	for _, p := range [][2]string{{"x", "y"}, {"y", "x"}} {
		c := op.In(p[1])
		if op.In(p[0]) != x || c == nil || c.Const == nil || c.Const.Type().NumElements() != 1 {
			continue
		}
		v, err := mil.ConstFloats(c.Const)
		return err == nil && v[0] == -1
	}
	return false
}

func (l *lowering) zeros(v *mil.Value) bool {
	if v.Const == nil {
		return false
	}
	t, err := l.prog.consts.decode(v.Const)
	return err == nil && allZero(t.F)
}

func (l *lowering) joinsAt(concat *mil.Op, axis int) bool {
	c := l.infer(concat)
	a, ok := c.Ints("axis")
	return ok && len(a) == 1 && (a[0] == axis || a[0] == axis-len(concat.Out().Type.(mil.TensorType).Shape)) && !c.Bool("interleave", false)
}

// firstHalf says that a slice_by_index of [x, -x] gives back the shape of x,
// from the start of every axis.
func (l *lowering) firstHalf(op *mil.Op, x mil.TensorType) bool {
	if op.Kind != "slice_by_index" {
		return false
	}
	out, ok := op.Outputs[0].Type.(mil.TensorType)
	if !ok || !out.Equal(x) {
		return false
	}
	c := l.infer(op)
	begin, ok := c.Ints("begin")
	if !ok || len(begin) != x.Rank() {
		return false
	}
	mask := c.Bools("begin_mask", x.Rank())
	for i, b := range begin {
		if b != 0 && !mask[i] {
			return false
		}
	}
	stride, ok := c.Ints("stride")
	for _, s := range stride {
		if s != 1 {
			return false
		}
	}
	return ok || !c.Has("stride")
}

// fuseRMSNorm recognises the pattern that ends in the slice op.
func (l *lowering) fuseRMSNorm(op *mil.Op) {
	if r, absorbed, ok := l.findRMSNorm(op); ok {
		l.absorb(op, absorbed, func(l *lowering, op *mil.Op) (instr, error) { return l.rmsNorm(op, r) })
	}
}

type rmsTask struct {
	dst, x, gamma []float32
	n             int
	eps           float32
	round         bool
}

func (p *rmsTask) run(lo, hi int) {
	for i := lo; i < hi; i++ {
		row := p.dst[i*p.n:][:p.n]
		kernel.RMSNorm(row, p.x[i*p.n:][:p.n], p.gamma, p.eps)
		if p.round {
			kernel.RoundF16(row)
		}
	}
}

func (l *lowering) rmsNorm(op *mil.Op, r rmsNorm) (instr, error) {
	x, err := l.slot(r.x)
	if err != nil {
		return instr{}, err
	}
	var gamma []float32
	if r.gamma != nil {
		t, err := l.prog.consts.decode(r.gamma)
		if err != nil {
			return instr{}, err
		}
		gamma = t.F[:r.n]
	}
	o, id, round := l.result(op, 0), l.local(), l.rounds(op)
	eps := float32(math.Max(r.eps, 0))
	return instr{out: []int{o}, exact: true, alias: -1, pattern: "rms_norm", run: func(f *frame) error {
		t := f.t[x]
		y := f.out(o, t.DType, t.Shape...)
		p := local[rmsTask](f, id)
		p.dst, p.x, p.gamma, p.n, p.eps, p.round = y.F, t.F, gamma, r.n, eps, round
		f.pool.do(len(y.F)/r.n, 1+(1<<15)/r.n, p)
		p.dst, p.x = nil, nil
		return nil
	}}, nil
}
