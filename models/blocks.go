package models

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// weight is the const op of a checkpoint tensor, one a function.
func (g *graph) weight(name string) *mil.Value {
	if v, ok := g.seen[name]; ok {
		return v
	}
	c := g.m.constant(name)
	if c == nil {
		g.Fail(fmt.Errorf("models: tensor %q is missing", name))
		c = mil.NewFloats(mil.Float32, []int{1}, 0)
	}
	v := g.Const(name, c)
	g.seen[name] = v
	return v
}

// linear applies the projection called name. source marks projections whose
// result is added to the residual stream.
func (g *graph) linear(out, name string, x *mil.Value, bias, source bool) *mil.Value {
	args := mil.Args{"x": x, "weight": g.weight(name + ".weight")}
	if bias {
		args["bias"] = g.weight(name + ".bias")
	}
	if source {
		for _, p := range []string{"weight", "bias"} {
			if v, ok := args[p].(*mil.Value); ok {
				g.Tag(v, "residual", "source")
			}
		}
	}
	return g.Op("linear", out, args)
}

// rms is RMSNorm over the last axis, x/√(mean(x²)+ε)·gain, written as the
// layer norm of [x, -x], whose mean is zero and whose variance is mean(x²):
// squares of fp16 values would overflow past 255.
// residual marks norms that read the residual stream, source those whose
// result is added to it.
func (g *graph) rms(out, weight string, x *mil.Value, residual, source bool) *mil.Value {
	gains, err := g.m.gamma(weight)
	if err != nil {
		g.Fail(err)
		return x
	}
	gamma := g.Const(weight, gains)
	if source {
		g.Tag(gamma, "residual", "source")
	}
	return g.rmsWith(out, x, gamma, gains.Type().NumElements()/2, residual)
}

// rmsPlain is RMSNorm without gains.
func (g *graph) rmsPlain(out string, x *mil.Value) *mil.Value {
	t, _ := x.Tensor()
	ones := make([]float64, max(axis(x, t.Rank()-1), 1))
	for i := range ones {
		ones[i] = 1
	}
	name := fmt.Sprintf("ones_%d", len(ones))
	return g.rmsWith(out, x, g.Const(name, g.m.gammaConst(name, twice(ones))), len(ones), false)
}

func twice(v []float64) []float64 { return append(append(make([]float64, 0, 2*len(v)), v...), v...) }

// rmsWith applies the norm over the last axis, n wide, with doubled gains.
func (g *graph) rmsWith(out string, x, gamma *mil.Value, n int, residual bool) *mil.Value {
	t, _ := x.Tensor()
	last := t.Rank() - 1
	neg := g.Op("mul", out+".neg", mil.Args{"x": x, "y": -1.0})
	pair := g.Op("concat", out+".pair", mil.Args{"values": []*mil.Value{x, neg}, "axis": last})
	ln := g.Op("layer_norm", out+".normed", mil.Args{"x": pair, "axes": []int{last}, "gamma": gamma, "epsilon": g.c.Eps})
	if residual {
		g.Tag(ln, "residual", "norm")
	}
	return g.sliceAxis(out, ln, last, 0, n)
}

// gamma is a norm's gains twice over, read once.
func (m *Model) gamma(name string) (mil.Const, error) {
	if c, ok := m.consts["gamma:"+name]; ok {
		return c, nil
	}
	gain, err := m.gain(name)
	if err != nil {
		return nil, err
	}
	return m.gammaConst(name, twice(gain)), nil
}

// gammaConst shares the doubled gains of a norm between functions.
func (m *Model) gammaConst(name string, v []float64) mil.Const {
	key := "gamma:" + name
	if c, ok := m.consts[key]; ok {
		return c
	}
	c := mil.NewFloats(mil.Float32, []int{len(v)}, v...)
	m.consts[key] = c
	return c
}

// sliceAxis takes [from, to) of one axis.
func (g *graph) sliceAxis(name string, x *mil.Value, axis, from, to int) *mil.Value {
	t, _ := x.Tensor()
	begin, end := make([]int, t.Rank()), append([]int(nil), t.Shape...)
	if axis < 0 || len(begin) <= axis {
		return x // the builder has latched an error
	}
	begin[axis], end[axis] = from, to
	return g.Op("slice_by_index", name, mil.Args{"x": x, "begin": begin, "end": end})
}

// softcap is cap·tanh(x/cap); 0 means none.
func (g *graph) softcap(name string, x *mil.Value, cap float64) *mil.Value {
	if cap == 0 {
		return x
	}
	x = g.Op("mul", name+".cap_in", mil.Args{"x": x, "y": 1 / cap})
	x = g.Op("tanh", name+".cap_tanh", mil.Args{"x": x})
	return g.Op("mul", name+".capped", mil.Args{"x": x, "y": cap})
}

// layer is one decoder layer.
func (g *graph) layer(i int, x *mil.Value) *mil.Value {
	p, n := fmt.Sprintf("model.layers.%d.", i), fmt.Sprintf("layers.%d.", i)
	mlpNorm := "post_attention_layernorm"
	if g.c.Sandwich {
		mlpNorm = "pre_feedforward_layernorm"
	}
	a := g.attention(i, g.rms(n+"attn_norm", p+"input_layernorm.weight", x, true, false))
	if g.c.Sandwich {
		a = g.rms(n+"post_attn_norm", p+"post_attention_layernorm.weight", a, false, true)
	}
	x = g.Op("add", n+"resid_mid", mil.Args{"x": x, "y": a})
	f := g.mlp(i, g.rms(n+"mlp_norm", p+mlpNorm+".weight", x, true, false))
	if g.c.Sandwich {
		f = g.rms(n+"post_mlp_norm", p+"post_feedforward_layernorm.weight", f, false, true)
	}
	if g.c.PerLayer == 0 && !g.c.LayerScalar {
		return g.Op("add", n+"out", mil.Args{"x": x, "y": f})
	}
	x = g.Op("add", n+"resid_mlp", mil.Args{"x": x, "y": f})
	return g.gemma4Tail(i, x)
}

// mlp is down(act(gate(x))·up(x)).
func (g *graph) mlp(i int, x *mil.Value) *mil.Value {
	p, n := fmt.Sprintf("model.layers.%d.mlp.", i), fmt.Sprintf("layers.%d.", i)
	gate := g.linear(n+"gate", p+"gate_proj", x, g.c.MLPBias, false)
	gate = g.activation(n+"gate_act", gate)
	up := g.linear(n+"up", p+"up_proj", x, g.c.MLPBias, false)
	act := g.Op("mul", n+"mlp_act", mil.Args{"x": gate, "y": up})
	return g.linear(n+"mlp_out", p+"down_proj", act, g.c.MLPBias, !g.c.Sandwich)
}

// activation is the model's gate function.
func (g *graph) activation(name string, x *mil.Value) *mil.Value {
	switch g.c.Activation {
	case "silu":
		return g.Op("silu", name, mil.Args{"x": x})
	case "gelu_tanh":
		return g.Op("gelu", name, mil.Args{"x": x, "mode": "TANH_APPROXIMATION"})
	}
	return g.Op("gelu", name, mil.Args{"x": x, "mode": "EXACT"})
}
