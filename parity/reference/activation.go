package reference

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/internal/elementary"
)

// activations are the scalar functions of the gated MLP by their name in
// config.json.
var activations = map[string]func(float64) float64{
	"gelu":              geluErf,
	"gelu_python":       geluErf,
	"gelu_new":          geluTanh,
	"gelu_fast":         geluTanh,
	"gelu_accurate":     geluTanh,
	"gelu_pytorch_tanh": geluTanh,
	"gelu_python_tanh":  geluTanh,
	"quick_gelu":        func(x float64) float64 { return x / (1 + elementary.Exp(-1.702*x)) },
	"relu":              func(x float64) float64 { return max(x, 0) },
	"relu2":             func(x float64) float64 { return max(x, 0) * max(x, 0) },
	"silu":              silu,
	"swish":             silu,
}

func activationNames() string {
	return strings.Join(slices.Sorted(maps.Keys(activations)), ", ")
}

func silu(x float64) float64 { return x / (1 + elementary.Exp(-x)) }

// geluErf is x·Φ(x), Φ the normal distribution (Hendrycks and Gimpel 2016).
func geluErf(x float64) float64 { return x * 0.5 * (1 + elementary.Erf(x/math.Sqrt2)) }

// geluTanh is the tanh approximation of geluErf from the same paper.
func geluTanh(x float64) float64 {
	return 0.5 * x * (1 + elementary.Tanh(math.Sqrt(2/math.Pi)*(x+float64(0.044715*x*x*x))))
}
