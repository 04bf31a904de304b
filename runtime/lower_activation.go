package runtime

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/mil"
)

// Activations, evaluated in float64 and rounded once.

var activationLowerers = map[string]lowerer{
	"relu":     unary(func(x float32) float32 { return max(x, 0) }, nil),
	"relu6":    unary(func(x float32) float32 { return min(max(x, 0), 6) }, nil),
	"sigmoid":  unary(in64(sigmoid), nil),
	"silu":     unary(in64(func(x float64) float64 { return x * sigmoid(x) }), nil),
	"softplus": unary(in64(softplus), nil),
	"softsign": unary(in64(func(x float64) float64 { return x / (1 + math.Abs(x)) }), nil),
	"gelu":     lowerGelu,
	"softmax":  lowerSoftmax,

	"elu": withConsts([]string{"alpha"}, func(v []float64, x float64) float64 {
		if x < 0 {
			return v[0] * math.Expm1(x)
		}
		return x
	}),
	"leaky_relu": withConsts([]string{"alpha"}, func(v []float64, x float64) float64 {
		if x < 0 {
			return v[0] * x
		}
		return x
	}),
	"thresholded_relu": withConsts([]string{"alpha"}, func(v []float64, x float64) float64 {
		if x < v[0] {
			return 0
		}
		return x
	}),
	"clamped_relu": withConsts([]string{"alpha", "beta"}, func(v []float64, x float64) float64 {
		if x < 0 {
			x *= v[0]
		}
		return min(x, v[1])
	}),
	"linear_activation": withConsts([]string{"alpha", "beta"}, func(v []float64, x float64) float64 {
		return float64(v[0]*x) + v[1]
	}),
	"scaled_tanh": withConsts([]string{"alpha", "beta"}, func(v []float64, x float64) float64 {
		return v[0] * math.Tanh(v[1]*x)
	}),
	"sigmoid_hard": withConsts([]string{"alpha", "beta"}, func(v []float64, x float64) float64 {
		return min(max(float64(v[0]*x)+v[1], 0), 1)
	}),

	"prelu": perChannel([]string{"alpha"}, func(v []float64, x float64) float64 {
		if x < 0 {
			return v[0] * x
		}
		return x
	}),
	"softplus_parametric": perChannel([]string{"alpha", "beta"}, func(v []float64, x float64) float64 {
		return v[0] * softplus(v[1]*x)
	}),
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func lowerGelu(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "mode")
	if err != nil {
		return instr{}, err
	}
	var fn func(float64) float64
	switch mode := c.Str("mode", "EXACT"); mode {
	case "EXACT":
		fn = func(x float64) float64 { return 0.5 * x * math.Erfc(-x/math.Sqrt2) }
	case "TANH_APPROXIMATION":
		fn = func(x float64) float64 {
			return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+float64(0.044715*x*x*x))))
		}
	case "SIGMOID_APPROXIMATION":
		fn = func(x float64) float64 { return x * sigmoid(1.702*x) }
	default:
		return instr{}, fmt.Errorf("unknown mode %q", mode)
	}
	return unary(in64(fn), nil)(l, op)
}

// perChannel lowers a function whose parameters are vectors along axis 1.
func perChannel(names []string, fn func(v []float64, x float64) float64) lowerer {
	return func(l *lowering, op *mil.Op) (instr, error) {
		in, err := l.operands(op, append([]string{"x"}, names...)...)
		if err != nil {
			return instr{}, err
		}
		return l.like(op, in[0], false, func(f *frame, x, out *Tensor) error {
			_, channels, inner := axisSplit(x.Shape, 1)
			for i, s := range in[1:] {
				if f.t[s].Len() != channels {
					return fmt.Errorf("%s is %v, want %d elements", names[i], f.t[s], channels)
				}
			}
			f.par(len(x.F)/max(inner, 1), 1, func(lo, hi int) {
				v := make([]float64, len(names))
				for r := lo; r < hi; r++ {
					for i, s := range in[1:] {
						v[i] = float64(f.t[s].F[r%channels])
					}
					for i := r * inner; i < (r+1)*inner; i++ {
						out.F[i] = float32(fn(v, float64(x.F[i])))
					}
				}
			})
			return nil
		}), nil
	}
}

func lowerSoftmax(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	c, err := l.known(op, "axis")
	if err != nil {
		return instr{}, err
	}
	axis, err := mil.Axis(c.Int("axis", -1), c.T("x").Rank())
	if err != nil {
		return instr{}, err
	}
	return l.like(op, x, false, func(f *frame, x, out *Tensor) error {
		outer, n, inner := axisSplit(x.Shape, axis)
		f.par(outer*inner, 1+2048/max(n, 1), func(lo, hi int) {
			e := make([]float64, n)
			for r := lo; r < hi; r++ {
				at := r/inner*n*inner + r%inner
				for i := range e {
					e[i] = float64(x.F[at+i*inner])
				}
				softmax64(e)
				for i, v := range e {
					out.F[at+i*inner] = float32(v)
				}
			}
		})
		return nil
	}), nil
}
