package mil

import "fmt"

// Run-time quantization of activations.

var quantizeSpecs = []OpSpec{
	op("quantize", "clamp(round(input / scale) + zero_point) to int8 or uint8", inferQuantize,
		req("input", Floats).bind("F"), optAttr("zero_point", eightBit, nil), attr("scale", Floats).bind("F"),
		optAttr("axis", Ints32, nil), attr("output_dtype", Strings)).from(CoreML7),
	op("dequantize", "scale * (input - zero_point)", inferDequantize,
		req("input", eightBit).bind("Q"), optAttr("zero_point", eightBit, nil).bind("Q"), attr("scale", Floats),
		optAttr("axis", Ints32, nil)).from(CoreML7),
}

var eightBit = Dom(Int8, UInt8)

func inferQuantize(c *Infer) ([]Type, error) {
	name := c.Str("output_dtype", "")
	d, err := ParseDType(name)
	if err != nil || !eightBit.Has(d) {
		return nil, fmt.Errorf("output_dtype %q (want int8 or uint8)", name)
	}
	if c.Has("zero_point") && c.T("zero_point").DType != d {
		return nil, fmt.Errorf("zero_point is %v, output_dtype is %v", c.T("zero_point").DType, d)
	}
	return one(TensorType{d, c.T("input").Shape}), checkScale(c)
}

func inferDequantize(c *Infer) ([]Type, error) {
	return one(TensorType{c.T("scale").DType, c.T("input").Shape}), checkScale(c)
}

// checkScale demands scalars without an axis, or vectors along axis.
func checkScale(c *Infer) error {
	in, s := c.T("input"), c.T("scale")
	if s.Rank() == 0 {
		if c.Has("axis") {
			return fmt.Errorf("axis makes no sense beside a scalar scale")
		}
		if c.Has("zero_point") && c.T("zero_point").Rank() != 0 {
			return fmt.Errorf("zero_point is %v beside a scalar scale", c.T("zero_point"))
		}
		return nil
	}
	if s.Rank() != 1 || !c.Has("axis") {
		return fmt.Errorf("scale is %v: want a scalar, or a vector and an axis", s)
	}
	axis, err := Axis(c.Int("axis", 0), in.Rank())
	if err != nil {
		return err
	}
	for _, p := range []string{"scale", "zero_point"} {
		if !c.Has(p) {
			continue
		}
		if t := c.T(p); t.Rank() != 1 || !sameDim(t.Shape[0], in.Shape[axis]) {
			return fmt.Errorf("%s is %v, want %d elements (axis %d of input)", p, t, in.Shape[axis], axis)
		}
	}
	return nil
}
