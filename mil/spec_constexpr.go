package mil

import (
	"fmt"
	"math/bits"
	"slices"
)

// Compressed constants. They take constants only, and their result counts as
// one. Up to CoreML7 a file holds their parameters as attributes; here they
// are always inputs.

var (
	quantized   = Dom(Int4, UInt4, Int8, UInt8, Float16, Float32)
	lutIndices  = Dom(UInt1, UInt2, UInt3, UInt4, UInt6, UInt8)
	lutElements = Dom(Int8, UInt8, Float16, Float32)
	packedBytes = Dom(UInt8)
	bits1       = Dom(UInt1)
	// flatShape is the shape that the CoreML6 forms need beside bytes.
	flatShape  = optAttr("shape", Dom(UInt32), nil)
	vectorAxis = optAttr("vector_axis", Ints32, nil).since(CoreML8)
)

var constexprSpecs = []OpSpec{
	op("constexpr_affine_dequantize", "scale·(quantized_data − zero_point), per tensor or along axis", inferAffine,
		attr("quantized_data", Dom(Int8, UInt8)), attr("zero_point", Dom(Int8, UInt8, Float32)),
		attr("scale", Floats), attr("axis", Ints32)).from(CoreML6),
	op("constexpr_blockwise_shift_scale", "scale·(data − offset), one scale and offset a block", inferShiftScale,
		attr("data", quantized), attr("scale", Floats), optAttr("offset", quantized, nil)).from(CoreML8),
	op("constexpr_lut_to_dense", "palettized weights: every index becomes its entry of the lookup table", inferLUT,
		attr("indices", packedBytes).wide(lutIndices, CoreML8), attr("lut", lutElements), flatShape, vectorAxis).from(CoreML6),
	op("constexpr_sparse_to_dense", "the non-zero elements spread to the positions the mask marks", inferSparse,
		attr("nonzero_data", lutElements).wide(quantized, CoreML8), attr("mask", packedBytes).wide(bits1, CoreML8), flatShape).from(CoreML6),
	op("constexpr_cast", "an fp16 constant as fp32", inferConstexprCast,
		attr("source_val", Dom(Float16)), attr("output_dtype", Strings)).from(CoreML6),
	op("constexpr_lut_to_sparse", "palettized sparse weights: the mask and the looked up non-zero elements", inferLUTSparse,
		attr("indices_mask", bits1), attr("indices_nonzero_data", lutIndices), attr("lut", lutElements), vectorAxis).from(CoreML8),
	op("constexpr_sparse_blockwise_shift_scale", "quantized sparse weights: the mask and scale·(nonzero_data − offset)", inferSparseShiftScale,
		attr("data_mask", bits1), attr("nonzero_data", quantized), attr("scale", Floats), optAttr("offset", quantized, nil)).from(CoreML8),
}

func inferAffine(c *Infer) ([]Type, error) {
	q := c.T("quantized_data")
	axis, err := Axis(c.Int("axis", 0), q.Rank())
	if err != nil {
		return nil, err
	}
	for _, p := range []string{"scale", "zero_point"} {
		if t := c.T(p); t.Rank() > 1 || t.Rank() == 1 && t.Shape[0] != q.Shape[axis] {
			return nil, fmt.Errorf("%s is %v, want a scalar or %d entries for axis %d", p, t, q.Shape[axis], axis)
		}
	}
	return one(TensorType{c.T("scale").DType, q.Shape}), nil
}

// checkBlocks checks scale and offset against quantized data.
func (c *Infer) checkBlocks(data TensorType) error {
	s := c.T("scale")
	if data.Rank() < 1 {
		return fmt.Errorf("data is %v, want rank 1 or more", data)
	}
	if err := checkGroups("scale", s.Shape, data.Shape); err != nil {
		return err
	}
	if !c.Has("offset") {
		return nil
	}
	o := c.T("offset")
	if !slices.Equal(o.Shape, s.Shape) || !o.DType.IsFloat() && o.DType != data.DType {
		return fmt.Errorf("offset is %v, want the shape of scale %v and a float type or %v", o, s, data.DType)
	}
	return nil
}

// checkGroups checks that every axis of data divides into the given numbers
// of blocks.
func checkGroups(name string, groups, data []int) error {
	if len(groups) != len(data) {
		return fmt.Errorf("%s has %d block counts %s for data %s", name, len(groups), shapeString(groups), shapeString(data))
	}
	for i, g := range groups {
		if g < 1 || data[i]%g != 0 {
			return fmt.Errorf("%s: %d blocks do not divide axis %d of %s", name, g, i, shapeString(data))
		}
	}
	return nil
}

func inferShiftScale(c *Infer) ([]Type, error) {
	d := c.T("data")
	return one(TensorType{c.T("scale").DType, d.Shape}), c.checkBlocks(d)
}

// flat reads the shape of a CoreML6 form and checks that the bytes hold that
// many elements of width bits.
func (c *Infer) flat(data string, width int) ([]int, error) {
	shape, ok := c.Ints("shape")
	if !ok {
		return nil, fmt.Errorf("shape is missing (%v needs it)", c.Opset)
	}
	t := c.T(data)
	if n := (Volume(shape)*width + 7) / 8; t.Rank() != 1 || t.Shape[0] != n {
		return nil, fmt.Errorf("%s is %v, want %d bytes for %d elements of %d bits", data, t, n, Volume(shape), width)
	}
	return shape, nil
}

func inferLUT(c *Infer) ([]Type, error) {
	ix, lut := c.T("indices"), c.T("lut")
	if c.Opset < CoreML8 {
		if lut.Rank() != 1 || !slices.Contains([]int{2, 4, 16, 64, 256}, lut.Shape[0]) {
			return nil, fmt.Errorf("lut is %v, want a vector of 2, 4, 16, 64 or 256", lut)
		}
		shape, err := c.flat("indices", bits.Len(uint(lut.Shape[0]))-1)
		return one(TensorType{lut.DType, shape}), err
	}
	if c.Has("shape") {
		return nil, fmt.Errorf("shape has no place in %v: indices have the shape of the result", c.Opset)
	}
	out, _, err := c.lookup(ix.Shape, ix.DType)
	return one(TensorType{lut.DType, out}), err
}

// lookup is the shape of palettized data with the given indices, and the
// vector size.
func (c *Infer) lookup(shape []int, d DType) (out []int, vector int, err error) {
	lut := c.T("lut")
	n := len(shape)
	if n < 1 || lut.Rank() != n+2 {
		return nil, 0, fmt.Errorf("lut is %v, want two axes more than the indices %s", lut, shapeString(shape))
	}
	if err := checkGroups("lut", lut.Shape[:n], shape); err != nil {
		return nil, 0, err
	}
	if lut.Shape[n] != 1<<d.Bits() {
		return nil, 0, fmt.Errorf("lut has %d entries, %v indices want %d", lut.Shape[n], d, 1<<d.Bits())
	}
	out, vector = slices.Clone(shape), lut.Shape[n+1]
	axis, ok := c.Ints("vector_axis")
	if ok && len(axis) != 1 {
		return nil, 0, fmt.Errorf("vector_axis is %v, want one number", axis)
	}
	if vector < 1 || vector > 1 && !ok {
		return nil, 0, fmt.Errorf("lut is %v: vectors of %d need vector_axis", lut, vector)
	}
	if ok {
		k, err := Axis(axis[0], n)
		if err != nil {
			return nil, 0, err
		}
		out[k] *= vector
	}
	return out, vector, nil
}

func inferSparse(c *Infer) ([]Type, error) {
	d, m := c.T("nonzero_data"), c.T("mask")
	if d.Rank() != 1 {
		return nil, fmt.Errorf("nonzero_data is %v, want rank 1", d)
	}
	shape := m.Shape
	if c.Opset < CoreML8 {
		var err error
		if shape, err = c.flat("mask", 1); err != nil {
			return nil, err
		}
	} else if c.Has("shape") {
		return nil, fmt.Errorf("shape has no place in %v: the mask has the shape of the result", c.Opset)
	}
	return one(TensorType{d.DType, shape}), c.checkMask("mask", d.Shape[0])
}

// checkMask checks that a mask marks n positions, if its bits are at hand.
func (c *Infer) checkMask(param string, n int) error {
	k := c.Const(param)
	if k == nil {
		return nil
	}
	raw, err := ConstBytes(k)
	if err != nil {
		return err
	}
	ones := 0
	for _, b := range raw {
		ones += bits.OnesCount8(b)
	}
	if ones != n {
		return fmt.Errorf("%s marks %d positions, there are %d non-zero elements", param, ones, n)
	}
	return nil
}

func inferConstexprCast(c *Infer) ([]Type, error) {
	if d := c.Str("output_dtype", ""); d != Float32.String() {
		return nil, fmt.Errorf("output_dtype is %q, want fp32", d)
	}
	return one(TensorType{Float32, c.T("source_val").Shape}), nil
}

func inferLUTSparse(c *Infer) ([]Type, error) {
	m, d := c.T("indices_mask"), c.T("indices_nonzero_data")
	if d.Rank() != 1 {
		return nil, fmt.Errorf("indices_nonzero_data is %v, want rank 1", d)
	}
	out, vector, err := c.lookup(m.Shape, d.DType)
	if err != nil {
		return nil, err
	}
	return []Type{TensorType{m.DType, out}, T(c.T("lut").DType, d.Shape[0]*vector)}, c.checkMask("indices_mask", d.Shape[0])
}

func inferSparseShiftScale(c *Infer) ([]Type, error) {
	m, d := c.T("data_mask"), c.T("nonzero_data")
	if d.Rank() != 1 {
		return nil, fmt.Errorf("nonzero_data is %v, want rank 1", d)
	}
	if err := c.checkBlocks(TensorType{d.DType, m.Shape}); err != nil {
		return nil, err
	}
	return []Type{m, TensorType{c.T("scale").DType, d.Shape}}, c.checkMask("data_mask", d.Shape[0])
}
