package mil

import (
	"fmt"
	"math"
)

// Activation functions. Their constants must share x's element type up to
// CoreML6 and may be of either floating point type later.

var activationSpecs = concatSpecs(
	unaryOps(Floats, map[string]string{
		"relu":     "max(x, 0)",
		"relu6":    "min(max(x, 0), 6)",
		"sigmoid":  "1 / (1 + exp(-x))",
		"silu":     "x * sigmoid(x)",
		"softplus": "log(1 + exp(x))",
		"softsign": "x / (1 + |x|)",
	}),
	[]OpSpec{
		activation("elu", "x if x > 0, else alpha*(exp(x) - 1)", sameAs("x"), "alpha"),
		activation("leaky_relu", "x if x >= 0, else alpha*x", sameAs("x"), "alpha"),
		activation("thresholded_relu", "x if x >= alpha, else 0", sameAs("x"), "alpha"),
		activation("prelu", "x if x > 0, else alpha[c]*x, c along axis 1", checked(checkPrelu), "alpha"),
		activation("clamped_relu", "min(beta, x) if x >= 0, else min(beta, alpha*x)", sameAs("x"), "alpha", "beta"),
		activation("linear_activation", "alpha*x + beta", sameAs("x"), "alpha", "beta"),
		activation("scaled_tanh", "alpha * tanh(beta*x)", sameAs("x"), "alpha", "beta"),
		activation("sigmoid_hard", "min(max(alpha*x + beta, 0), 1)", sameAs("x"), "alpha", "beta"),
		activation("softplus_parametric", "alpha[c] * log(1 + exp(beta[c]*x)), c along axis 1",
			checked(func(c *Infer) error { return checkChannels(c, 3, 0, "alpha", "beta") }), "alpha", "beta"),
		op("gelu", "x * Phi(x), exact or approximated by tanh or sigmoid", checked(checkGelu),
			req("x", Floats), optAttr("mode", Strings, "EXACT")),
		op("softmax", "exp(x - max) / sum(exp(x - max)) along axis",
			checked(func(c *Infer) error {
				_, err := Axis(c.Int("axis", -1), c.T("x").Rank())
				return err
			}),
			req("x", Floats), optAttr("axis", Ints32, -1)),
	},
)

func activation(kind, doc string, infer func(*Infer) ([]Type, error), consts ...string) OpSpec {
	params := []Param{req("x", Floats).bind("T")}
	for _, name := range consts {
		params = append(params, attr(name, Floats).bind("T").free(CoreML7))
	}
	return op(kind, doc, infer, params...)
}

// checkChannels demands that each bound param is a vector along axis 1 of x
// and that x has at least lo and (unless hi is 0) at most hi axes.
func checkChannels(c *Infer, lo, hi int, params ...string) error {
	x := c.T("x")
	if r := x.Rank(); r < lo || hi > 0 && r > hi {
		return fmt.Errorf("x has rank %d, want at least %d%s", r, lo, upTo(hi))
	}
	for _, p := range params {
		if !c.Has(p) {
			continue
		}
		t := c.T(p)
		if t.Rank() != 1 || !sameDim(t.Shape[0], x.Shape[1]) {
			return fmt.Errorf("%s is %v, want one value for each of the %d channels of x (axis 1)", p, t, x.Shape[1])
		}
	}
	return nil
}

func upTo(hi int) string {
	if hi == 0 {
		return ""
	}
	return fmt.Sprintf(", at most %d", hi)
}

func checkPrelu(c *Infer) error {
	if err := checkChannels(c, 3, 5, "alpha"); err != nil {
		return err
	}
	k := c.Const("alpha")
	if c.T("x").Rank() == 4 || k == nil {
		return nil
	}
	v, err := ConstFloats(k)
	if err != nil {
		return err
	}
	for _, a := range v {
		if math.Abs(a-v[0]) > 1e-5 {
			return fmt.Errorf("x of rank %d needs equal values in alpha", c.T("x").Rank())
		}
	}
	return nil
}

func checkGelu(c *Infer) error {
	switch m := c.Str("mode", "EXACT"); m {
	case "EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION":
		return nil
	default:
		return fmt.Errorf("unknown mode %q (known: EXACT, TANH_APPROXIMATION, SIGMOID_APPROXIMATION)", m)
	}
}
