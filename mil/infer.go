package mil

import (
	"fmt"
	"maps"
	"slices"
)

// Infer is what an OpSpec's inference function sees: the op, the opset and
// accessors that fall back on the table's defaults.
type Infer struct {
	Op    *Op
	Spec  *OpSpec
	Opset Opset

	err error
}

// Kinds lists every operator of the table in sorted order.
func Kinds() []string { return slices.Sorted(maps.Keys(table)) }

// NewInfer prepares inference of op.
func NewInfer(op *Op, opset Opset) (*Infer, error) {
	s, ok := Spec(op.Kind)
	if !ok {
		return nil, fmt.Errorf("mil: %s %q: %s", op.Kind, op.Name, unknownOperator(op.Kind))
	}
	return &Infer{Op: op, Spec: s, Opset: opset}, nil
}

// InferTypes runs type inference of one op.
func InferTypes(op *Op, opset Opset) ([]Type, error) {
	c, err := NewInfer(op, opset)
	if err != nil {
		return nil, err
	}
	ts, err := c.Spec.Infer(c)
	if err == nil {
		err = c.err
	}
	if err != nil {
		return nil, fmt.Errorf("mil: %s %q: %w", op.Kind, op.Name, err)
	}
	return ts, nil
}

func (c *Infer) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// Has reports whether param is bound.
func (c *Infer) Has(param string) bool { return c.Op.In(param) != nil }

// T is the tensor type bound to param; the zero TensorType if unbound.
func (c *Infer) T(param string) TensorType {
	v := c.Op.In(param)
	if v == nil {
		return TensorType{}
	}
	t, ok := v.Tensor()
	if !ok {
		c.fail("input %s is %v, want a tensor", param, v.Type)
	}
	return t
}

// Const returns the constant bound to param, or the default as a constant,
// or nil if neither exists or the value is only known at run time.
func (c *Infer) Const(param string) Const {
	if v := c.Op.In(param); v != nil {
		return v.Const
	}
	p := c.Spec.Param(param)
	if p == nil || p.Default == nil || p.Since > c.Opset {
		return nil
	}
	return c.DefaultConst(p)
}

// DefaultConst materialises the default of p for this op, or nil.
func (c *Infer) DefaultConst(p *Param) Const {
	d := p.Default
	if f, ok := d.(func(*Infer) any); ok {
		d = f(c)
	}
	switch d := d.(type) {
	case nil:
		return nil
	case Const:
		return d
	case bool:
		return NewBools(nil, d)
	case []bool:
		return NewBools([]int{len(d)}, d...)
	case int:
		return NewInts(Int32, nil, d)
	case []int:
		return NewInts(Int32, []int{len(d)}, d...)
	case float64:
		return NewFloats(c.floatDType(p), nil, d)
	case string:
		return NewStr(d)
	}
	c.fail("default of %s has an unsupported type", p.Name)
	return nil
}

// floatDType is the type a floating point literal for p takes: that of its
// Bind group, else of x, else fp32.
func (c *Infer) floatDType(p *Param) DType {
	if d := c.groupDType(p); d.IsFloat() {
		return d
	}
	if t, ok := tensorOf(c.Op.In("x")); ok && t.DType.IsFloat() {
		return t.DType
	}
	return Float32
}

func tensorOf(v *Value) (TensorType, bool) {
	if v == nil {
		return TensorType{}, false
	}
	return v.Tensor()
}

// Ints reads an integer (or bool) vector or scalar; ok is false if the value
// is absent or known only at run time.
func (c *Infer) Ints(param string) (v []int, ok bool) {
	k := c.Const(param)
	if k == nil {
		return nil, false
	}
	v, err := ConstInts(k)
	if err != nil {
		c.fail("input %s: %w", param, err)
		return nil, false
	}
	return v, true
}

// Int reads an integer scalar, or def if absent or not known.
func (c *Infer) Int(param string, def int) int {
	if v, ok := c.Ints(param); ok && len(v) == 1 {
		return v[0]
	}
	return def
}

// Bool reads a bool scalar, or def.
func (c *Infer) Bool(param string, def bool) bool {
	if v, ok := c.Ints(param); ok && len(v) == 1 {
		return v[0] != 0
	}
	return def
}

// Bools reads a bool vector of length n; absent means all false.
func (c *Infer) Bools(param string, n int) []bool {
	out := make([]bool, n)
	if v, ok := c.Ints(param); ok {
		for i := range min(n, len(v)) {
			out[i] = v[i] != 0
		}
	}
	return out
}

// Float reads a floating point scalar, or def.
func (c *Infer) Float(param string, def float64) float64 {
	k := c.Const(param)
	if k == nil {
		return def
	}
	v, err := ConstFloats(k)
	if err != nil || len(v) != 1 {
		c.fail("input %s: want one number", param)
		return def
	}
	return v[0]
}

// Str reads a string scalar, or def.
func (c *Infer) Str(param, def string) string {
	k := c.Const(param)
	if k == nil {
		return def
	}
	s, err := ConstString(k)
	if err != nil {
		c.fail("input %s: %w", param, err)
	}
	return s
}

// Axis normalises a possibly negative axis against rank.
func Axis(axis, rank int) (int, error) {
	if axis < -rank || axis >= rank {
		return 0, fmt.Errorf("axis %d is out of range for rank %d", axis, rank)
	}
	if axis < 0 {
		axis += rank
	}
	return axis, nil
}

// Broadcast returns the common shape under NumPy's rules. Unknown dimensions
// broadcast to the other side unless that is 1.
func Broadcast(a, b []int) ([]int, error) {
	n := max(len(a), len(b))
	out := make([]int, n)
	for i := range n {
		x, y := 1, 1
		if j := i - (n - len(a)); j >= 0 {
			x = a[j]
		}
		if j := i - (n - len(b)); j >= 0 {
			y = b[j]
		}
		switch {
		case x == y, y == 1:
			out[i] = x
		case x == 1:
			out[i] = y
		case x == Unknown:
			out[i] = y
		case y == Unknown:
			out[i] = x
		default:
			return nil, fmt.Errorf("shapes %s and %s do not broadcast", shapeString(a), shapeString(b))
		}
	}
	return out, nil
}

func one(t TensorType) []Type { return []Type{t} }
