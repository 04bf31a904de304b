package decoder

import (
	"math"

	"github.com/smelt-go/smelt/internal/elementary"
	"github.com/smelt-go/smelt/internal/kernel"
)

// activation is the function of a gated MLP by its name in config.json, which
// the configuration has checked.
func activation(name string) func(dst, x []float32) {
	switch name {
	case "silu", "swish":
		return kernel.Silu
	case "gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh":
		return kernel.GeluTanh
	case "relu":
		return each(func(x float64) float64 { return max(x, 0) })
	case "relu2":
		return each(func(x float64) float64 { return max(x, 0) * max(x, 0) })
	case "quick_gelu":
		return each(func(x float64) float64 { return x / (1 + elementary.Exp(-1.702*x)) })
	}
	// gelu and gelu_python: x·Φ(x), Φ the normal distribution.
	return each(func(x float64) float64 { return x * 0.5 * (1 + elementary.Erf(x/math.Sqrt2)) })
}

func each(f func(float64) float64) func(dst, x []float32) {
	return func(dst, x []float32) {
		for i, v := range x {
			dst[i] = float32(f(float64(v)))
		}
	}
}
