package mil

import (
	"fmt"
	"slices"
)

// Reductions over axes, and the index of an extreme value along one axis.

var reductionSpecs = concatSpecs(
	reductions(map[string]string{
		"reduce_sum":         "sum",
		"reduce_mean":        "arithmetic mean",
		"reduce_max":         "largest element",
		"reduce_min":         "smallest element",
		"reduce_prod":        "product",
		"reduce_sum_square":  "sum of squares",
		"reduce_l1_norm":     "sum of absolute values",
		"reduce_l2_norm":     "square root of the sum of squares",
		"reduce_log_sum":     "logarithm of the sum",
		"reduce_log_sum_exp": "logarithm of the sum of exponentials, shifted by the maximum",
	}),
	[]OpSpec{
		argReduction("reduce_argmax", "index of the largest element along axis, the first of equals"),
		argReduction("reduce_argmin", "index of the smallest element along axis, the first of equals"),
	},
)

func reductions(doc map[string]string) []OpSpec {
	var out []OpSpec
	for kind, line := range doc {
		out = append(out, op(kind, line+" over axes (default all)", inferReduction,
			req("x", Numbers), optAttr("axes", Ints32, nil), optAttr("keep_dims", Bools, false)))
	}
	return out
}

// ReducedAxes reads the parameter axes (or the scalar axis) of a reduction,
// sorted and normalised; absent means all axes.
func (c *Infer) ReducedAxes(param string, rank int) ([]int, error) {
	v, ok := c.Ints(param)
	if !ok {
		v = make([]int, rank)
		for i := range v {
			v[i] = i
		}
		return v, nil
	}
	out := make([]int, len(v))
	for i, a := range v {
		n, err := Axis(a, rank)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// ReducedShape is shape with the given axes removed, or kept with size 1.
func ReducedShape(shape, axes []int, keep bool) []int {
	out := make([]int, 0, len(shape))
	for i, d := range shape {
		switch {
		case !slices.Contains(axes, i):
			out = append(out, d)
		case keep:
			out = append(out, 1)
		}
	}
	return out
}

func inferReduction(c *Infer) ([]Type, error) {
	x := c.T("x")
	axes, err := c.ReducedAxes("axes", x.Rank())
	if err != nil {
		return nil, err
	}
	return one(TensorType{x.DType, ReducedShape(x.Shape, axes, c.Bool("keep_dims", false))}), nil
}

func argReduction(kind, doc string) OpSpec {
	return op(kind, doc, func(c *Infer) ([]Type, error) {
		x := c.T("x")
		axis, err := Axis(c.Int("axis", -1), x.Rank())
		if err != nil {
			return nil, err
		}
		d, err := indexDType(c.Str("output_dtype", "int32"))
		return one(TensorType{d, ReducedShape(x.Shape, []int{axis}, c.Bool("keep_dims", false))}), err
	},
		req("x", Numbers), optAttr("axis", Ints32, -1), optAttr("keep_dims", Bools, false),
		optAttr("output_dtype", Strings, "int32").since(CoreML7))
}

// indexDType parses the element type of returned indices.
func indexDType(name string) (DType, error) {
	switch name {
	case "int32":
		return Int32, nil
	case "uint16":
		return UInt16, nil
	}
	return InvalidDType, fmt.Errorf("indices cannot be %q (want int32 or uint16)", name)
}
