package mil

import (
	"fmt"
	"math"
)

// Constants, and operators that make tensors from sizes, positions or
// conditions.

var generatorSpecs = []OpSpec{
	op("const", "a constant", inferConst),
	op("shape", "the sizes of x as int32", func(c *Infer) ([]Type, error) {
		return one(T(Int32, c.T("x").Rank())), nil
	}, req("x", basicMovable)),
	op("fill", "a tensor of the given shape, all elements value", inferFill,
		req("shape", Ints32), optAttr("value", basicMovable, 0.)),
	op("fill_like", "a tensor of the shape of ref_tensor, all elements value", func(c *Infer) ([]Type, error) {
		return one(TensorType{c.dtype("value"), c.T("ref_tensor").Shape}), nil
	}, req("ref_tensor", basicMovable), optAttr("value", basicMovable, 0.)).from(CoreML6),
	op("range_1d", "start, start+step, … up to but without end", inferRange,
		req("end", Numbers).bind("T"), req("start", Numbers).bind("T"), req("step", Numbers).bind("T")),
	op("one_hot", "on_value at position indices[i] of a new axis, off_value elsewhere", inferOneHot,
		req("indices", Ints32), req("one_hot_vector_size", Ints32), optAttr("axis", Ints32, -1),
		optAttr("on_value", basicMovable, likeOther("off_value", 1)).bind("T"),
		optAttr("off_value", basicMovable, likeOther("on_value", 0)).bind("T")),
	op("non_zero", "the indices of the non-zero elements, one row each", func(c *Infer) ([]Type, error) {
		return one(T(Int32, Unknown, c.T("x").Rank())), nil
	}, req("x", basicMovable)),
	op("select", "a where cond holds, else b; all broadcast", inferSelect,
		req("cond", Bools), req("a", basicMovable).bind("T"), req("b", basicMovable).bind("T")),
}

// dtype is the element type of a parameter or of its default.
func (c *Infer) dtype(param string) DType {
	if v := c.Op.In(param); v != nil {
		return c.T(param).DType
	}
	if k := c.Const(param); k != nil {
		return k.Type().DType
	}
	c.fail("input %s is missing", param)
	return InvalidDType
}

// number reads a scalar of any numeric type that is known now.
func (c *Infer) number(param string) (float64, bool) {
	k := c.Const(param)
	if k == nil {
		return 0, false
	}
	v, err := ConstFloats(k)
	if err != nil || len(v) != 1 {
		c.fail("input %s is %v, want one number", param, k.Type())
		return 0, false
	}
	return v[0], true
}

// likeOther is the default v in the type of another parameter, int32 if that
// is unbound too.
func likeOther(other string, v int) func(*Infer) any {
	return func(c *Infer) any {
		o := c.Op.In(other)
		if t, ok := tensorOf(o); ok && t.DType.IsFloat() {
			return NewFloats(t.DType, nil, float64(v))
		} else if ok && t.DType == Bool {
			return v != 0
		}
		return v
	}
}

func inferConst(c *Infer) ([]Type, error) {
	if len(c.Op.Outputs) == 1 && c.Op.Outputs[0].Const != nil {
		return []Type{c.Op.Outputs[0].Const.Type()}, nil
	}
	return nil, fmt.Errorf("has no contents")
}

func inferFill(c *Infer) ([]Type, error) {
	s := c.T("shape")
	if s.Rank() != 1 || s.Shape[0] == Unknown {
		return nil, fmt.Errorf("shape is %v, want a vector of known length", s)
	}
	out, ok := c.Ints("shape")
	if !ok {
		out = unknowns(s.Shape[0])
	}
	for _, d := range out {
		if ok && d < 0 {
			return nil, fmt.Errorf("shape %v holds a negative size", out)
		}
	}
	return one(TensorType{c.dtype("value"), out}), nil
}

// RangeLen is the number of elements of a range_1d.
func RangeLen(start, end, step float64) (int, error) {
	n := math.Ceil((end - start) / step)
	if math.IsNaN(n) || n > math.MaxInt32 {
		return 0, fmt.Errorf("range from %v to %v in steps of %v has no end", start, end, step)
	}
	return max(0, int(n)), nil
}

func inferRange(c *Infer) ([]Type, error) {
	n := Unknown
	start, ok1 := c.number("start")
	end, ok2 := c.number("end")
	step, ok3 := c.number("step")
	var err error
	if ok1 && ok2 && ok3 {
		n, err = RangeLen(start, end, step)
	}
	return one(T(c.T("start").DType, n)), err
}

func inferOneHot(c *Infer) ([]Type, error) {
	x := c.T("indices")
	axis, err := Axis(c.Int("axis", -1), x.Rank()+1)
	if err != nil {
		return nil, err
	}
	depth := Unknown
	if v, ok := c.Ints("one_hot_vector_size"); ok {
		if len(v) != 1 || v[0] < 0 {
			return nil, fmt.Errorf("one_hot_vector_size is %v, want one number that is not negative", v)
		}
		depth = v[0]
	}
	return one(TensorType{c.dtype("on_value"), insert(x.Shape, axis, depth)}), nil
}

// inferSelect broadcasts all three. The reference converter leaves cond out
// and so declares too small a result where cond alone has the full shape.
func inferSelect(c *Infer) ([]Type, error) {
	a := c.T("a")
	s, err := Broadcast(a.Shape, c.T("b").Shape)
	if err == nil {
		s, err = Broadcast(s, c.T("cond").Shape)
	}
	return one(TensorType{a.DType, s}), err
}
