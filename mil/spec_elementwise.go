package mil

// Elementwise operators: binary arithmetic and comparison with NumPy
// broadcasting, unary functions, cast and clip.

var elementwiseSpecs = concatSpecs(
	binaryOps(Numbers, "add", "sub", "mul", "real_div", "pow", "maximum", "minimum", "floor_div", "mod"),
	compare(Numbers, "greater", "greater_equal", "less", "less_equal"),
)

func concatSpecs(groups ...[]OpSpec) []OpSpec {
	var out []OpSpec
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}

func binaryOps(d Domain, kinds ...string) []OpSpec {
	var out []OpSpec
	for _, k := range kinds {
		out = append(out, OpSpec{
			Kind: k, Since: CoreML5, Doc: k + "(x, y), broadcast",
			Params: []Param{{Name: "x", Domain: d, Bind: "T"}, {Name: "y", Domain: d, Bind: "T"}},
			Infer: func(c *Infer) ([]Type, error) {
				s, err := Broadcast(c.T("x").Shape, c.T("y").Shape)
				return one(TensorType{c.T("x").DType, s}), err
			},
		})
	}
	return out
}

func compare(d Domain, kinds ...string) []OpSpec {
	out := binaryOps(d, kinds...)
	for i := range out {
		out[i].Infer = func(c *Infer) ([]Type, error) {
			s, err := Broadcast(c.T("x").Shape, c.T("y").Shape)
			return one(TensorType{Bool, s}), err
		}
	}
	return out
}
