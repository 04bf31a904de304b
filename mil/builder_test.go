package mil

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// build runs f and returns the text of the function.
func build(t *testing.T, opset Opset, f func(b *Builder)) string {
	t.Helper()
	b := NewBuilder("main", opset)
	f(b)
	fn, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	return Text(program(fn))
}

func program(fs ...*Function) *Program {
	p := NewProgram()
	for _, f := range fs {
		p.Functions[f.Name] = f
	}
	return p
}

func TestBuilderNamesAndDefaults(t *testing.T) {
	got := build(t, CoreML8, func(b *Builder) {
		x := b.Input("x", T(Float16, 2, 4))
		a := b.Op("softmax", "layers.3.probs", Args{"x": x})
		c := b.Op("softmax", "layers.3.probs", Args{"x": a, "axis": -1})
		d := b.Op("reduce_sum", "state", Args{"x": c, "axes": []int{1}, "keep_dims": true})
		e := b.Op("real_div", "q", Args{"x": c, "y": d})
		b.Output("probs", e)
	})
	want := `func main[CoreML8](x: tensor<fp16, [2, 4]>) {
  layers_3_probs_axis_0 = const(-1): tensor<int32, []>
  layers_3_probs = softmax(x=x, axis=layers_3_probs_axis_0): tensor<fp16, [2, 4]>
  layers_3_probs_1 = softmax(x=layers_3_probs, axis=layers_3_probs_axis_0): tensor<fp16, [2, 4]>
  state__axes_0 = const([1]): tensor<int32, [1]>
  state__keep_dims_0 = const(true): tensor<bool, []>
  state_ = reduce_sum(x=layers_3_probs_1, axes=state__axes_0, keep_dims=state__keep_dims_0): tensor<fp16, [2, 1]>
  probs = real_div(x=layers_3_probs_1, y=state_): tensor<fp16, [2, 4]>
  return probs
}
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestBuilderLiteralTypes(t *testing.T) {
	got := build(t, CoreML8, func(b *Builder) {
		x := b.Input("x", T(Float16, 1, 2, 4))
		n := b.Input("n", T(Int32, 3))
		h := b.Op("mul", "h", Args{"x": x, "y": 2})
		r := b.Op("rsqrt", "r", Args{"x": h})                       // 1e-12 is nothing in fp16: fp32
		q := b.Op("rsqrt", "q", Args{"x": r, "epsilon": 1e-5})      // fits fp16
		l := b.Op("layer_norm", "l", Args{"x": q, "axes": []int{2}, // bound to gamma: the smallest fp16
			"gamma": NewFloats(Float16, []int{4}, 1, 1, 1, 1), "epsilon": 1e-9})
		m := b.Op("add", "m", Args{"x": n, "y": 7})
		b.Output("l_out", l)
		b.Output("m_out", m)
	})
	for _, want := range []string{
		"h_y_0 = const(2): tensor<fp16, []>",
		"r_epsilon_0 = const(1e-12): tensor<fp32, []>",
		"q_epsilon_0 = const(1.001358e-05): tensor<fp16, []>",
		"l_epsilon_0 = const(5.9604645e-08): tensor<fp16, []>",
		"m_y_0 = const(7): tensor<int32, []>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestBuilderOutputs(t *testing.T) {
	got := build(t, CoreML8, func(b *Builder) {
		x := b.Input("x", T(Float16, 4))
		kv := b.State("kv", T(Float16, 4))
		w := b.Const("w", NewFloats(Float16, []int{4}, 1, 2, 3, 4))
		y := b.Op("add", "logits", Args{"x": x, "y": w})
		b.Op("mul", "tail", Args{"x": y, "y": 3.0})
		b.Output("tail", y)                                           // takes the name from another op
		b.Output("again", y)                                          // one value, two names
		b.Output("passed", x)                                         // an input
		b.Output("weights", w)                                        // a constant
		b.Output("cache", b.Op("read_state", "r", Args{"input": kv})) // a state's contents
	})
	want := `func main[CoreML8](x: tensor<fp16, [4]>, kv: state<tensor<fp16, [4]>>) {
  w = const([1, 2, 3, 4]): tensor<fp16, [4]>
  tail = add(x=x, y=w): tensor<fp16, [4]>
  tail_y_0 = const(3): tensor<fp16, []>
  tail_1 = mul(x=tail, y=tail_y_0): tensor<fp16, [4]>
  again = identity(x=tail): tensor<fp16, [4]>
  passed = identity(x=x): tensor<fp16, [4]>
  weights = identity(x=w): tensor<fp16, [4]>
  r = read_state(input=kv): tensor<fp16, [4]>
  cache = identity(x=r): tensor<fp16, [4]>
  return tail, again, passed, weights, cache
}
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestBuilderState(t *testing.T) {
	got := build(t, CoreML8, func(b *Builder) {
		kv := b.State("kv", T(Float16, 2, 4))
		x := b.Input("x", T(Float16, 1, 4))
		old := b.Op("read_state", "old", Args{"input": kv})
		up := b.Op("slice_update", "up", Args{"x": old, "update": x, "begin": []int{1, 0}, "end": []int{2, 4}})
		if v := b.Op("write_state", "save", Args{"input": kv, "data": up}); v != nil {
			t.Error("write_state has no output to return")
		}
		parts := b.OpN("split", "parts", Args{"x": up, "axis": 0, "num_splits": 2})
		b.Output("first", parts[0])
	})
	for _, want := range []string{
		"  write_state(input=kv, data=up) name=save\n",
		"  first, parts_1 = split(x=up,",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestBuilderControlFlow(t *testing.T) {
	got := build(t, CoreML8, func(b *Builder) {
		x := b.Input("x", T(Float16, 4))
		n := b.Input("n", T(Int32, 1))
		p := b.Op("greater", "p", Args{"x": b.Op("squeeze", "n0", Args{"x": n, "axes": []int{0}}), "y": 0})
		c := b.Cond("pick", p,
			func() []*Value { return []*Value{b.Op("mul", "twice", Args{"x": x, "y": 2.0})} },
			func() []*Value { return []*Value{b.Op("mul", "twice", Args{"x": x, "y": -2.0})} })
		w := b.While("loop", []*Value{n, c[0]},
			func(v []*Value) *Value {
				return b.Op("squeeze", "go", Args{"x": b.Op("less", "lt", Args{"x": v[0], "y": 10}), "axes": []int{0}})
			},
			func(v []*Value) []*Value {
				return []*Value{b.Op("add", "next", Args{"x": v[0], "y": 1}), b.Op("mul", "grow", Args{"x": v[1], "y": 2.0})}
			})
		b.Output("out", w[1])
	})
	for _, want := range []string{
		"  pick = cond(pred=p): tensor<fp16, [4]> {\n    twice_y_0 = const(2)",
		"    yield twice\n  } {\n    twice_1_y_0 = const(-2)",
		"} { (n_body: tensor<int32, [1]>, pick_body: tensor<fp16, [4]>)\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// A literal defined inside a nested block is not visible outside it.
func TestBuilderLiteralScope(t *testing.T) {
	got := build(t, CoreML8, func(b *Builder) {
		x := b.Input("x", T(Float16, 4))
		p := b.Op("reduce_max", "m", Args{"x": x, "axes": []int{0}, "keep_dims": false})
		q := b.Op("greater", "q", Args{"x": p, "y": 1.0})
		c := b.Cond("c", q,
			func() []*Value { return []*Value{b.Op("mul", "a", Args{"x": x, "y": 3.0})} },
			func() []*Value { return []*Value{b.Op("mul", "b", Args{"x": x, "y": 1.0})} })
		b.Output("out", b.Op("mul", "z", Args{"x": c[0], "y": 3.0}))
	})
	if n := strings.Count(got, "= const(3)"); n != 2 {
		t.Errorf("3 is defined %d times, want once inside and once outside", n)
	}
	if n := strings.Count(got, "= const(1)"); n != 1 {
		t.Errorf("1 is defined %d times, want once, outside", n)
	}
}

func TestBuilderConstexprInline(t *testing.T) {
	got := build(t, CoreML8, func(b *Builder) {
		x := b.Input("x", T(Float16, 1, 4))
		w := b.Op("constexpr_blockwise_shift_scale", "w", Args{
			"data":  NewInts(Int4, []int{2, 4}, 1, 2, 3, 4, -1, -2, -3, -4),
			"scale": NewFloats(Float16, []int{2, 1}, 0.5, 0.25),
		})
		b.Output("y", b.Op("linear", "y", Args{"x": x, "weight": w}))
	})
	if want := "data=[1, 2, 3, 4, -1, -2, -3, -4]:int4[2, 4], scale=[0.5, 0.25]:fp16[2, 1]"; !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
	if !strings.Contains(got, "y_bias_0 = const([0, 0]): tensor<fp16, [2]>") {
		t.Errorf("the default bias is missing:\n%s", got)
	}
}

func TestBuilderErrors(t *testing.T) {
	x := func(b *Builder) *Value { return b.Input("x", T(Float16, 2, 3)) }
	for _, c := range []struct {
		name string
		f    func(b *Builder)
		want string
	}{
		{"unknown op", func(b *Builder) { b.Op("frobnicate", "f", Args{"x": x(b)}) }, `frobnicate "f"(x=x tensor<fp16, [2, 3]>): unknown operator`},
		{"unknown parameter", func(b *Builder) { b.Op("add", "f", Args{"x": x(b), "z": 1}) }, `no parameter "z" (have x, y)`},
		{"missing", func(b *Builder) { b.Op("add", "f", Args{"x": x(b)}) }, "y: the required parameter is not bound"},
		{"shapes", func(b *Builder) { b.Op("add", "f", Args{"x": x(b), "y": []float64{1, 2}}) }, "do not broadcast"},
		{"domain", func(b *Builder) { b.Op("logical_not", "f", Args{"x": x(b)}) }, "want one of [bool]"},
		{"fraction", func(b *Builder) { b.Op("add", "f", Args{"x": b.Input("n", T(Int32, 1)), "y": 0.5}) }, "fractional literal"},
		{"fp16 range", func(b *Builder) { b.Op("add", "f", Args{"x": x(b), "y": 1e6}) }, "1e+06 does not fit fp16"},
		{"int range", func(b *Builder) { b.Op("add", "f", Args{"x": b.Input("n", T(Int32, 1)), "y": 1 << 40}) }, "does not fit int32"},
		{"literal type", func(b *Builder) { b.Op("add", "f", Args{"x": x(b), "y": int8(1)}) }, "a int8 is no literal"},
		{"nil value", func(b *Builder) { b.Op("add", "f", Args{"x": x(b), "y": (*Value)(nil)}) }, "y is a nil value"},
		{"many values", func(b *Builder) { v := x(b); b.Op("add", "f", Args{"x": v, "y": []*Value{v, v}}) }, "takes one value, got 2"},
		{"const-ness", func(b *Builder) {
			b.Op("transpose", "f", Args{"x": x(b), "perm": b.Input("p", T(Int32, 2))})
		}, "p must be known at compile time"},
		{"opset", func(b *Builder) { b.fn.Opset = CoreML7; b.Op("read_state", "f", Args{"input": x(b)}) }, "needs CoreML8"},
		{"input name", func(b *Builder) { b.Input("a.b", T(Float16, 1)) }, `input name "a.b" is not legal`},
		{"input twice", func(b *Builder) { x(b); x(b) }, `input name "x" is taken`},
		{"output name", func(b *Builder) { b.Output("true", b.Op("relu", "r", Args{"x": x(b)})) }, `output name "true" is not legal`},
		{"output is an input's name", func(b *Builder) { b.Output("x", b.Op("relu", "r", Args{"x": x(b)})) }, "the name is an input's"},
		{"output twice", func(b *Builder) {
			v := x(b)
			b.Output("o", b.Op("relu", "r", Args{"x": v}))
			b.Output("o", b.Op("relu", "s", Args{"x": v}))
		}, "the name is another output's"},
		{"no output", func(b *Builder) { x(b) }, "the function has no outputs"},
		{"several outputs", func(b *Builder) { b.Op("split", "s", Args{"x": x(b), "axis": 0, "num_splits": 2}) }, "has 2 outputs (use OpN)"},
		{"tag", func(b *Builder) { b.Tag(x(b), "k", "v") }, "not the output of an op"},
		{"const by Op", func(b *Builder) { b.Op("const", "c", nil) }, "use Builder.Const"},
		{"nil const", func(b *Builder) { b.Const("c", nil) }, "has no contents"},
		{"foreign value", func(b *Builder) {
			o := NewBuilder("other", CoreML8)
			b.Output("y", b.Op("relu", "r", Args{"x": x(o)}))
		}, "x is not defined before this op"},
	} {
		b := NewBuilder("main", CoreML8)
		c.f(b)
		_, err := b.Func()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func TestBuilderLatches(t *testing.T) {
	b := NewBuilder("main", CoreML8)
	x := b.Input("x", T(Float16, 2))
	bad := b.Op("nonsense", "first", Args{"x": x})
	n := len(b.fn.Body.Ops)
	y := b.Op("add", "second", Args{"x": bad, "y": x, "z": x})
	parts := b.OpN("split", "third", Args{"x": y})
	b.Tag(parts[3], "a", "b")
	b.Cond("fourth", y, func() []*Value { t.Error("a branch ran after the error"); return nil }, nil)
	b.While("fifth", []*Value{y}, nil, nil)
	b.Output("out", b.Const("c", nil))
	b.State("s", T(Int32))
	if len(b.fn.Body.Ops) != n || len(b.fn.Inputs) != 1 {
		t.Error("the function grew after the error")
	}
	if _, err := b.Func(); err == nil || !strings.Contains(err.Error(), "first") || strings.Contains(err.Error(), "second") {
		t.Errorf("error %v, want only the first mistake", err)
	}
}
