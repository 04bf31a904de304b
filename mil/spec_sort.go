package mil

import "fmt"

// Sorting, selection and running sums along one axis.

var sortSpecs = []OpSpec{
	op("argsort", "indices that sort x along axis, equal elements in order of index",
		func(c *Infer) ([]Type, error) {
			x := c.T("x")
			_, err := Axis(c.Int("axis", -1), x.Rank())
			return one(TensorType{Int32, x.Shape}), err
		},
		req("x", Numbers), optAttr("axis", Ints32, -1), optAttr("ascending", Bools, false)),
	op("topk", "the k largest (or smallest) elements along axis, and their indices", inferTopK,
		req("x", Numbers).wide(Numbers|SmallInts, CoreML7),
		optAttr("k", Ints32, 1).wide(Dom(Int8, Int16, Int32), CoreML7),
		optAttr("axis", Ints32, -1),
		optAttr("ascending", Bools, false),
		optAttr("sort", Bools, true).since(CoreML6),
		optAttr("return_indices", Bools, true).since(CoreML6),
		optAttr("output_indices_dtype", Strings, func(c *Infer) any {
			if c.Bool("return_indices", true) {
				return "int32"
			}
			return nil
		}).since(CoreML7)),
	op("cumsum", "running sum along axis; exclusive starts at 0, reverse runs from the end",
		checked(func(c *Infer) error {
			if a, r := c.Int("axis", 0), c.T("x").Rank(); a < -1 || a >= r {
				return fmt.Errorf("axis %d is out of range [-1, %d]", a, r-1)
			}
			return nil
		}),
		req("x", Numbers), optAttr("axis", Ints32, 0),
		optAttr("exclusive", Bools, false), optAttr("reverse", Bools, false)),
}

func inferTopK(c *Infer) ([]Type, error) {
	x := c.T("x")
	axis, err := Axis(c.Int("axis", -1), x.Rank())
	if err != nil {
		return nil, err
	}
	k, n := c.Int("k", 1), x.Shape[axis]
	switch {
	case k == -1 && c.Opset >= CoreML7:
		k = n
	case k < 0 || n != Unknown && k > n:
		return nil, fmt.Errorf("k %d is out of range for axis %d of size %d", k, axis, n)
	}
	s := append([]int(nil), x.Shape...)
	s[axis] = k
	if !c.Bool("return_indices", true) {
		if c.Has("output_indices_dtype") {
			return nil, fmt.Errorf("output_indices_dtype needs return_indices")
		}
		return one(TensorType{x.DType, s}), nil
	}
	d, err := indexDType(c.Str("output_indices_dtype", "int32"))
	return []Type{TensorType{x.DType, s}, TensorType{d, s}}, err
}
