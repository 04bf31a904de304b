package mil

import "fmt"

// Elementwise operators: binary arithmetic and comparison with NumPy
// broadcasting, unary functions, cast and clip.

var elementwiseSpecs = concatSpecs(
	binaryOps(Numbers, keepDType, map[string]string{
		"add":       "x + y; int32 wraps",
		"sub":       "x - y; int32 wraps",
		"mul":       "x * y; int32 wraps",
		"real_div":  "x / y; int32 truncates toward zero",
		"floor_div": "floor(x / y)",
		"mod":       "x - y*floor(x / y), the sign of y",
		"pow":       "x to the power y",
		"maximum":   "the larger of x and y; NaN wins",
		"minimum":   "the smaller of x and y; NaN wins",
	}),
	binaryOps(Numbers, toBool, map[string]string{
		"equal":         "x == y",
		"not_equal":     "x != y",
		"greater":       "x > y",
		"greater_equal": "x >= y",
		"less":          "x < y",
		"less_equal":    "x <= y",
	}),
	binaryOps(Bools, toBool, map[string]string{
		"logical_and": "x and y",
		"logical_or":  "x or y",
		"logical_xor": "x exclusive-or y",
	}),
	unaryOps(Floats, map[string]string{
		"acos":  "inverse cosine",
		"asin":  "inverse sine",
		"atan":  "inverse tangent",
		"atanh": "inverse hyperbolic tangent",
		"ceil":  "smallest integer not below x",
		"cos":   "cosine",
		"cosh":  "hyperbolic cosine",
		"erf":   "Gauss error function",
		"exp":   "e to the power x",
		"floor": "largest integer not above x",
		"round": "nearest integer, halves to even",
		"sin":   "sine",
		"sinh":  "hyperbolic sine",
		"sqrt":  "square root",
		"tan":   "tangent",
		"tanh":  "hyperbolic tangent",
	}),
	unaryOps(Numbers, map[string]string{
		"abs":    "absolute value",
		"exp2":   "2 to the power x",
		"sign":   "-1, 0 or 1",
		"square": "x squared",
	}),
	unaryOps(Bools, map[string]string{"logical_not": "not x"}),
	[]OpSpec{
		withEpsilon("log", "natural logarithm of x + epsilon", 1e-45),
		withEpsilon("rsqrt", "1 / sqrt(x + epsilon)", 1e-12),
		withEpsilon("inverse", "1 / (x + epsilon)", 1e-4),
		op("clip", "x limited to [alpha, beta]", checked(checkClip),
			req("x", Floats).bind("T"), attr("alpha", Floats).bind("T"), attr("beta", Floats).bind("T")),
		op("threshold", "x limited from below: max(x, alpha)", sameAs("x"),
			req("x", Numbers).bind("T"), attr("alpha", Numbers).bind("T")),
		op("cast", "x converted to dtype; floats truncate toward zero, integers wrap", inferCast,
			req("x", castable).wide(castable|SmallInts, CoreML7), attr("dtype", Strings)),
		op("identity", "x", sameAs("x"), req("x", AnyDType)),
	},
)

var castable = Numbers | Bools

func concatSpecs(groups ...[]OpSpec) []OpSpec {
	var out []OpSpec
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}

func keepDType(d DType) DType { return d }
func toBool(DType) DType      { return Bool }

// binaryOps makes one broadcasting spec for each operator of doc.
func binaryOps(d Domain, result func(DType) DType, doc map[string]string) []OpSpec {
	var out []OpSpec
	for kind, line := range doc {
		out = append(out, op(kind, line+"; broadcast", func(c *Infer) ([]Type, error) {
			x, y := c.T("x"), c.T("y")
			s, err := Broadcast(x.Shape, y.Shape)
			return one(TensorType{result(x.DType), s}), err
		}, req("x", d).bind("T"), req("y", d).bind("T")))
	}
	return out
}

// unaryOps makes one spec of a single input x for each operator of doc.
func unaryOps(d Domain, doc map[string]string) []OpSpec {
	var out []OpSpec
	for kind, line := range doc {
		out = append(out, op(kind, line, sameAs("x"), req("x", d)))
	}
	return out
}

// withEpsilon describes a function of x + epsilon. The default is built in
// x's element type, so that in fp16 the tiny ones are zero.
func withEpsilon(kind, doc string, def float64) OpSpec {
	return op(kind, doc, sameAs("x"), req("x", Floats).bind("T"),
		optAttr("epsilon", Floats, def).bind("T").free(CoreML7))
}

func checkClip(c *Infer) error {
	lo, hi := c.Float("alpha", 0), c.Float("beta", 0)
	if c.Opset >= CoreML7 && c.Const("alpha") != nil && c.Const("beta") != nil && lo >= hi {
		return fmt.Errorf("alpha %g must be below beta %g", lo, hi)
	}
	return nil
}

func inferCast(c *Infer) ([]Type, error) {
	x := c.T("x")
	name := c.Str("dtype", "")
	d, err := ParseDType(name)
	if err != nil || !c.Spec.Param("x").DomainAt(c.Opset).Has(d) {
		return nil, fmt.Errorf("cannot cast to %q in %v", name, c.Opset)
	}
	return one(TensorType{d, x.Shape}), nil
}
