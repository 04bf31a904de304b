package mil

import (
	"fmt"
	"slices"
)

// Slices: a region of a tensor, read or replaced.

// sliceParams are the parameters that say which region.
var sliceParams = []Param{
	position("begin"), position("end"),
	optAttr("stride", Ints32, nil).wide(signedIndices, CoreML7).bind("U"),
	optAttr("begin_mask", Bools, nil), optAttr("end_mask", Bools, nil), optAttr("squeeze_mask", Bools, nil),
}

var sliceSpecs = []OpSpec{
	op("slice_by_index", "x[begin:end:stride] as NumPy slices; squeeze_mask takes single indices", inferSlice,
		append([]Param{movable("x")}, sliceParams...)...),
	op("slice_update", "x with x[begin:end:stride] replaced by update", inferSliceUpdate,
		append([]Param{req("x", Movable).bind("T"), req("update", Movable).bind("T")}, sliceParams...)...).from(CoreML8),
	op("slice_by_size", "size[i] elements of every axis from begin[i] on, -1 for all that follow", inferSliceBySize,
		movable("x"), position("begin"), position("size")),
}

// Slice reads the slice parameters as far as they are known.
func (c *Infer) Slice() SliceParams {
	rank := c.T("x").Rank()
	p := SliceParams{
		BeginMask: c.Bools("begin_mask", rank), EndMask: c.Bools("end_mask", rank), SqueezeAll: c.Bools("squeeze_mask", rank),
	}
	p.Begin, _ = c.Ints("begin")
	p.End, _ = c.Ints("end")
	p.Stride, _ = c.Ints("stride")
	return p
}

func inferSlice(c *Infer) ([]Type, error) {
	x := c.T("x")
	axes, err := c.Slice().Resolve(x.Shape)
	if err != nil {
		return nil, err
	}
	return one(TensorType{x.DType, SliceShape(axes)}), nil
}

func inferSliceUpdate(c *Infer) ([]Type, error) {
	x, u := c.T("x"), c.T("update")
	axes, err := c.Slice().Resolve(x.Shape)
	if err != nil {
		return nil, err
	}
	if want := (TensorType{u.DType, SliceShape(axes)}); !u.Compatible(want) {
		return nil, fmt.Errorf("update is %v, the slice is %v", u, want)
	}
	if u.Rank() == 0 {
		return nil, fmt.Errorf("update is a scalar, which slice_update does not take")
	}
	return one(x), nil
}

// SizedShape is the shape of a slice_by_size; begin may be nil if not known.
func SizedShape(x, begin, size []int) ([]int, error) {
	if len(size) != len(x) || begin != nil && len(begin) != len(x) {
		return nil, fmt.Errorf("begin %v and size %v want %d entries, one an axis", begin, size, len(x))
	}
	out := slices.Clone(size)
	for i, d := range x {
		bad := size[i] < -1
		if begin != nil && d != Unknown {
			at := wrap(begin[i], d)
			if size[i] == -1 {
				out[i] = d - at
			}
			bad = bad || at < 0 || at > d || at+out[i] > d
		}
		if bad || d != Unknown && size[i] > d {
			return nil, fmt.Errorf("begin %v and size %v do not lie inside %s", begin, size, shapeString(x))
		}
	}
	return out, nil
}

func inferSliceBySize(c *Infer) ([]Type, error) {
	x := c.T("x")
	for _, p := range []string{"begin", "size"} {
		if t := c.T(p); t.Rank() != 1 || !sameDim(t.Shape[0], x.Rank()) {
			return nil, fmt.Errorf("%s is %v, want %d entries, one an axis", p, t, x.Rank())
		}
	}
	size, ok := c.Ints("size")
	if !ok {
		return one(TensorType{x.DType, unknowns(x.Rank())}), nil
	}
	begin, _ := c.Ints("begin")
	out, err := SizedShape(x.Shape, begin, size)
	return one(TensorType{x.DType, out}), err
}
