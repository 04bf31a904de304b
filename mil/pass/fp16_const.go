package pass

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/mil"
)

// constTwins says in which types an fp32 const is needed. The op itself
// becomes the fp16 form, or stays fp32 if nothing wants that.
type constTwins struct {
	wantHalf, wantFull bool
	half, full         *mil.Value
}

func (t *constTwins) pick(full bool) *mil.Value {
	if full {
		return t.full
	}
	return t.half
}

// planConsts looks at all readers of every fp32 const of f.
func planConsts(f *mil.Function) map[*mil.Value]*constTwins {
	m := map[*mil.Value]*constTwins{}
	for v, us := range usesOf(f) {
		if v.Op == nil || !v.Op.IsConst() || v.Const.Type().DType != mil.Float32 {
			continue
		}
		t := &constTwins{}
		m[v] = t
		for _, u := range us {
			full := false
			if u.op != nil {
				spec, ok := mil.Spec(u.op.Kind)
				full = ok && wantsFull(u.op, spec.Param(u.param), v, f.Opset)
			}
			t.wantFull = t.wantFull || full
			t.wantHalf = t.wantHalf || !full
		}
	}
	return m
}

// wantsFull reports whether o reads the fp32 const v as it is.
func wantsFull(o *mil.Op, p *mil.Param, v *mil.Value, opset mil.Opset) bool {
	if o.Tags[TagKeep] == KeepFP32 || v.Op.Tags[TagKeep] == KeepFP32 {
		return true
	}
	spec, ok := mil.Spec(o.Kind)
	if !ok || p == nil || p.Name != "epsilon" || !p.DomainAt(opset).Has(mil.Float32) || !spec.Alone(o, p, opset) {
		return false
	}
	x, ok := scalar(v.Const)
	return ok && vanishes(x)
}

// scalar reads a one-element floating point literal.
func scalar(c mil.Const) (float64, bool) {
	if !c.Type().DType.IsFloat() || c.Type().NumElements() != 1 {
		return 0, false
	}
	x, err := mil.ConstFloats(c)
	if err != nil || len(x) != 1 {
		return 0, false
	}
	return x[0], true
}

// constOp emits the forms of a const that are needed.
func (l *lowerer) constOp(o *mil.Op) error {
	v := o.Out()
	l.out = append(l.out, o)
	if v.Const.Type().DType != mil.Float32 {
		return nil
	}
	t := l.consts[v]
	if t == nil { // nobody reads it
		if o.Tags[TagKeep] == KeepFP32 {
			return nil
		}
		t = &constTwins{wantHalf: true}
		l.consts[v] = t
	}
	if !t.wantHalf {
		t.full = v
		return nil
	}
	if t.wantFull {
		twin := newConst(l.names.Unique(v.Name+"_fp32"), v.Const)
		l.out = append(l.out, twin)
		t.full = twin.Out()
	}
	c, err := l.castConst(o.Name, v.Const)
	if err != nil {
		return err
	}
	v.Const, v.Type, t.half = c, c.Type(), v
	return nil
}

// castConst gives the fp16 form of an fp32 constant, the same object for the
// same contents. What is in memory and small is checked now.
func (l *lowerer) castConst(name string, c mil.Const) (mil.Const, error) {
	k := keyOf(c)
	if m, ok := l.memo[k]; ok && sameShape(m, c) {
		return m, nil
	}
	m, err := castNow(name, c)
	if err == nil {
		l.memo[k] = m
	}
	return m, err
}

func sameShape(a, b mil.Const) bool {
	return mil.TensorType{DType: mil.Bool, Shape: a.Type().Shape}.Equal(mil.TensorType{DType: mil.Bool, Shape: b.Type().Shape})
}

// maxEager is the number of elements up to which literals are cast at once.
const maxEager = 4096

func castNow(name string, c mil.Const) (mil.Const, error) {
	if _, literal := c.(*mil.Literal); !literal || c.Type().NumElements() > maxEager {
		return Cast(name, c, mil.Float16)
	}
	x, err := mil.ConstFloats(c)
	if err != nil {
		return nil, fmt.Errorf("const %q: %w", name, err)
	}
	for i, f := range x {
		if math.IsNaN(f) {
			return nil, fmt.Errorf("const %q: element %d is NaN", name, i)
		}
		if math.Abs(f) > FP16Max {
			return nil, fmt.Errorf("const %q: element %d is %g, beyond fp16's %d (scale the residual stream, or keep it in fp32)", name, i, f, FP16Max)
		}
	}
	if len(x) == 1 {
		return smallScalar(mil.T(mil.Float16, c.Type().Shape...), x[0]), nil
	}
	return mil.NewFloats(mil.Float16, c.Type().Shape, x...), nil
}
