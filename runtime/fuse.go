package runtime

import (
	"slices"

	"github.com/smelt-go/smelt/mil"
)

// Patterns are found in the list of ops of a block before it is lowered. A
// pattern takes the place of the op that ends it; the ops that it absorbs are
// skipped, since nothing else uses their results.

// A fusion marks the patterns of one kind in a list of ops.
type fusion func(l *lowering, ops []*mil.Op)

// fusions are applied in this order.
var fusions = []fusion{
	each("slice_by_index", (*lowering).fuseRMSNorm),
	each("softmax", (*lowering).fuseAttention),
	each("add", (*lowering).fuseRope),
	(*lowering).fuseProducts,
}

// each tries find on the ops of a kind that no pattern has taken.
func each(kind string, find func(l *lowering, op *mil.Op)) fusion {
	return func(l *lowering, ops []*mil.Op) {
		for _, op := range ops {
			if op.Kind == kind && l.fused[op] == nil && !l.skip[op] {
				find(l, op)
			}
		}
	}
}

// patterns marks the patterns of a list of ops.
func (l *lowering) patterns(ops []*mil.Op) {
	l.findUsers(ops)
	for _, f := range l.prog.fusions {
		f(l, ops)
	}
}

// findUsers lists the ops of a block that read a value.
func (l *lowering) findUsers(ops []*mil.Op) {
	for _, op := range ops {
		for _, a := range op.Args {
			for _, v := range a.Values {
				if u := l.users[v]; len(u) == 0 || u[len(u)-1] != op {
					l.users[v] = append(u, op)
				}
			}
		}
	}
}

// absorb makes low the lowerer of a pattern that ends in op.
func (l *lowering) absorb(op *mil.Op, parts []*mil.Op, low lowerer) {
	for _, p := range parts {
		l.skip[p] = true
	}
	l.fused[op] = low
}

// onlyUse returns the producer of v if it is of that kind and v has no other
// consumer.
func (l *lowering) onlyUse(v *mil.Value, kind string) *mil.Op {
	if v == nil || v.Op == nil || v.Op.Kind != kind || l.uses[v] != 1 || len(v.Op.Outputs) != 1 || l.skip[v.Op] || l.fused[v.Op] != nil {
		return nil
	}
	return v.Op
}

// onlyUser returns the op that alone reads the result of op, once, if it is
// of that kind.
func (l *lowering) onlyUser(op *mil.Op, kind string) *mil.Op {
	v := op.Out()
	if l.uses[v] != 1 || len(l.users[v]) != 1 {
		return nil
	}
	u := l.users[v][0]
	if u.Kind != kind || len(u.Outputs) != 1 || l.skip[u] || l.fused[u] != nil {
		return nil
	}
	return u
}

// shapeOf is the shape of a value if it is a float tensor of known sizes.
func shapeOf(v *mil.Value) []int {
	if v == nil {
		return nil
	}
	t, ok := v.Tensor()
	if !ok || !mil.Floats.Has(t.DType) || t.NumElements() < 0 {
		return nil
	}
	return t.Shape
}

// sliceOf says that op takes [from, to) of one axis of its input, and all of
// the others.
func (l *lowering) sliceOf(op *mil.Op, axis, from, to int) bool {
	in := shapeOf(op.In("x"))
	if op.Kind != "slice_by_index" || axis >= len(in) {
		return false
	}
	c := l.infer(op)
	for _, p := range []string{"begin", "end", "stride", "begin_mask", "end_mask", "squeeze_mask"} {
		if c.Has(p) && c.Const(p) == nil {
			return false
		}
	}
	axes, err := c.Slice().Resolve(in)
	if err != nil || len(axes) != len(in) || !slices.Equal(mil.SliceShape(axes), shapeOf(op.Out())) || len(shapeOf(op.Out())) != len(in) {
		return false
	}
	for k, a := range axes {
		start, n := 0, in[k]
		if k == axis {
			start, n = from, to-from
		}
		if a.Start != start || a.N != n || a.Step != 1 && n > 1 {
			return false
		}
	}
	return true
}

// constScalar is the value of a constant of one element.
func constScalar(v *mil.Value) (float32, bool) {
	if v == nil || v.Const == nil || v.Const.Type().NumElements() != 1 {
		return 0, false
	}
	f, err := mil.ConstFloats(v.Const)
	if err != nil || len(f) != 1 {
		return 0, false
	}
	return float32(f[0]), true
}

// scaledBy returns the operand of a multiplication by a constant number.
func scaledBy(op *mil.Op) (x *mil.Value, c float32, ok bool) {
	if op == nil || op.Kind != "mul" {
		return nil, 0, false
	}
	for _, p := range [][2]string{{"x", "y"}, {"y", "x"}} {
		if c, ok := constScalar(op.In(p[1])); ok && shapeOf(op.In(p[0])) != nil {
			return op.In(p[0]), c, true
		}
	}
	return nil, 0, false
}

// constBool reads a constant flag; ok is false if it is not known.
func (l *lowering) flag(op *mil.Op, param string) (value, ok bool) {
	c := l.infer(op)
	if c.Has(param) && c.Const(param) == nil {
		return false, false
	}
	return c.Bool(param, false), true
}

// isPermutation says that op is a transpose with that perm.
func (l *lowering) isPermutation(op *mil.Op, perm ...int) bool {
	if op == nil || op.Kind != "transpose" {
		return false
	}
	p, ok := l.infer(op).Ints("perm")
	return ok && slices.Equal(p, perm)
}
