package pass_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mil/pass"
	"github.com/smelt-go/smelt/runtime"
)

// The cleaning passes keep every output bit of every program, leave nothing
// for a second run to do, and give the same program each time.
func TestCleaningKeepsMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := drawSteps(t)
		p, err := assemble(steps)
		if err != nil {
			t.Fatal(err)
		}
		want := mustRun(t, p, runtime.FP32)
		clean := pass.Standard(1, false)
		if err := pass.Pipeline(p, clean...); err != nil {
			t.Fatal(err)
		}
		if got := mustRun(t, p, runtime.FP32); !same(got, want) {
			t.Fatalf("outputs changed: %v, were %v\n%s", got, want, mil.Text(p))
		}
		for _, name := range p.Names() {
			checkClean(t, p.Functions[name])
		}
		text := mil.Text(p)
		if err := pass.Pipeline(p, clean...); err != nil {
			t.Fatal(err)
		}
		if mil.Text(p) != text {
			t.Fatalf("a second run changed\n%s\ninto\n%s", text, mil.Text(p))
		}
		q, err := assemble(steps)
		if err != nil {
			t.Fatal(err)
		}
		if err := pass.Pipeline(q, clean...); err != nil {
			t.Fatal(err)
		}
		if mil.Text(q) != text {
			t.Fatalf("the same input gave another program:\n%s\n%s", text, mil.Text(q))
		}
	})
}

// checkClean wants no unread op and no two equal constants in the top block.
func checkClean(t *rapid.T, f *mil.Function) {
	read := map[*mil.Value]bool{}
	for _, v := range f.Body.Outputs {
		read[v] = true
	}
	f.Body.Walk(func(o *mil.Op) {
		for _, a := range o.Args {
			for _, v := range a.Values {
				read[v] = true
			}
		}
		for _, b := range o.Blocks {
			for _, v := range b.Outputs {
				read[v] = true
			}
		}
	})
	f.Body.Walk(func(o *mil.Op) {
		if len(o.Outputs) == 1 && !read[o.Out()] && len(o.Blocks) == 0 {
			t.Fatalf("%s: %s %q is dead", f.Name, o.Kind, o.Name)
		}
	})
	seen := map[string]bool{}
	for _, o := range f.Body.Ops {
		if !o.IsConst() || o.Out().Type.(mil.TensorType).DType == mil.String {
			continue
		}
		b, err := mil.ConstBytes(o.Out().Const)
		if err != nil {
			t.Fatal(err)
		}
		k := o.Out().Type.String() + string(b)
		if seen[k] {
			t.Fatalf("%s: const %q repeats another", f.Name, o.Name)
		}
		seen[k] = true
	}
}

// Lowering leaves no fp32 behind, verifies for a file, and changes results by
// roundings only.
func TestLowerFP16Property(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := drawSteps(t)
		for i := range steps {
			if steps[i].kind == "cond" || steps[i].kind == "index" { // a rounding may take the other branch or index
				steps[i].kind = "softmax"
			}
		}
		p, err := assemble(steps)
		if err != nil {
			t.Fatal(err)
		}
		want := mustRun(t, p, runtime.FP32)
		if err := pass.Pipeline(p, pass.Standard(1, true)...); err != nil {
			t.Fatal(err)
		}
		if err := mil.Verify(p); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(mil.Text(p), "\n") {
			// 1e-12 is nothing in fp16, and rsqrt takes an fp32 epsilon.
			if strings.Contains(line, "fp32") && !strings.Contains(line, "epsilon_0 = const(1e-12): tensor<fp32, []>") {
				t.Fatalf("fp32 is left in %s\n%s", line, mil.Text(p))
			}
		}
		got := mustRun(t, p, runtime.Typed)
		for i := range want {
			if d := math.Abs(float64(got[i] - want[i])); !(d <= 0.05) {
				t.Fatalf("element %d is %v, was %v\n%s", i, got[i], want[i], mil.Text(p))
			}
		}
	})
}

// Whatever the names were, Names makes them legal and unique, and only them.
func TestNamesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := drawSteps(t)
		p, err := assemble(steps)
		if err != nil {
			t.Fatal(err)
		}
		want := mustRun(t, p, runtime.FP32)
		name := rapid.SampledFrom([]string{"a.b", "a_b", "fp16", "x", "out", "0", "", "keep_me"})
		for _, f := range p.Functions {
			f.Body.Walk(func(o *mil.Op) {
				if rapid.Bool().Draw(t, "op") {
					o.Name = name.Draw(t, "name")
				}
				for _, v := range o.Outputs {
					if v.Name != "out" && v.Name != "earlier" && rapid.Bool().Draw(t, "value") {
						v.Name = name.Draw(t, "name")
					}
				}
			})
		}
		if err := pass.Names(p); err != nil {
			t.Fatal(err)
		}
		if err := mil.VerifyDraft(p); err != nil {
			t.Fatal(err)
		}
		if got := mustRun(t, p, runtime.FP32); !same(got, want) {
			t.Fatal("outputs changed")
		}
	})
}

// residual builds x + f(norm(x)) twice over a stream that starts from an
// embedding, with the tags of a model.
func residual() (*mil.Program, error) {
	b := mil.NewBuilder("main", mil.CoreML8)
	ids := b.Input("x", mil.T(mil.Int32, 2))
	embed := b.Const("embed", weights(1, 5, 4))
	b.Tag(embed, pass.TagResidual, pass.ResidualSource)
	x := b.Op("gather", "rows", mil.Args{"x": embed, "indices": ids, "axis": 0})
	norm := func(name string, x *mil.Value, stream bool) *mil.Value {
		v := b.Op("layer_norm", name, mil.Args{"x": x, "axes": []int{1}, "gamma": b.Const(name+".gamma", weights(0, 4)), "epsilon": 1e-5})
		if stream {
			b.Tag(v, pass.TagResidual, pass.ResidualNorm)
		}
		return v
	}
	for i := range 2 {
		n := fmt.Sprintf("layers.%d.", i)
		h := norm(n+"norm", x, true)
		h = norm(n+"inner", h, false) // shares the literal epsilon, is not on the stream
		w := b.Const(n+"w", weights(i, 4, 4))
		bias := b.Const(n+"b", weights(i, 4))
		b.Tag(w, pass.TagResidual, pass.ResidualSource)
		b.Tag(bias, pass.TagResidual, pass.ResidualSource)
		x = b.Op("add", n+"out", mil.Args{"x": x, "y": b.Op("linear", n+"proj", mil.Args{"x": h, "weight": w, "bias": bias})})
	}
	b.Output("stream", x)
	b.Output("out", norm("final", x, true))
	f, err := b.Func()
	if err != nil {
		return nil, err
	}
	p := mil.NewProgram()
	p.Functions["main"] = f
	return p, nil
}

// runResidual returns the outputs stream and out.
func runResidual(t *testing.T, p *mil.Program, mode runtime.Mode) (stream, out []float32) {
	t.Helper()
	pr, err := runtime.Load(p, runtime.Options{Mode: mode, Threads: 1, NoFusion: true})
	if err != nil {
		t.Fatal(err)
	}
	x := runtime.NewTensor(mil.Int32, 2)
	x.I[0], x.I[1] = 3, 1
	res, err := pr.New().Run("main", map[string]*runtime.Tensor{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	return res["stream"].F, res["out"].F
}

func TestScaleResidualIsExact(t *testing.T) {
	p, err := residual()
	if err != nil {
		t.Fatal(err)
	}
	// Wrapped constants with factor 1, lest the interpreter takes another path
	// for them than for literals.
	for _, s := range []float64{0.5, 2} {
		if err := pass.ScaleResidual(p, s); err != nil {
			t.Fatal(err)
		}
	}
	stream, want := runResidual(t, p, runtime.FP32)
	for _, s := range []float64{0.5, 1.0 / 64, 8} {
		p, err := residual()
		if err != nil {
			t.Fatal(err)
		}
		if err := pass.Pipeline(p, pass.Standard(s, false)...); err != nil {
			t.Fatal(err)
		}
		scaled, got := runResidual(t, p, runtime.FP32)
		if !same(got, want) {
			t.Errorf("scale %v: the normed output is %v, was %v", s, got, want)
		}
		for i := range stream {
			if scaled[i] != stream[i]*float32(s) {
				t.Errorf("scale %v: element %d of the stream is %v, want %v·%v", s, i, scaled[i], stream[i], s)
			}
		}
	}
	// A wrong exponent of the epsilon must show, or the test above is blind.
	p, err = residual()
	if err != nil {
		t.Fatal(err)
	}
	if err := pass.ScaleResidual(p, 1.0/64); err != nil {
		t.Fatal(err)
	}
	for _, o := range p.Functions["main"].Body.Ops {
		if o.Tags[pass.TagResidual] == pass.ResidualNorm {
			o.Set("epsilon", mil.Inline(mil.NewFloats(mil.Float32, nil, 1e-5/64)))
		}
	}
	if _, got := runResidual(t, p, runtime.FP32); same(got, want) {
		t.Error("an epsilon scaled by s instead of s² goes unnoticed")
	}
}

func TestScaleResidualThenFP16(t *testing.T) {
	p, err := residual()
	if err != nil {
		t.Fatal(err)
	}
	_, want := runResidual(t, p, runtime.FP32)
	if err := pass.Pipeline(p, pass.Standard(0.25, true)...); err != nil {
		t.Fatal(err)
	}
	text := mil.Text(p)
	for _, want := range []string{
		"const(5.9604645e-07): tensor<fp16, []>", // 1e-5/16 in steps of 2^-24
		"const(1.001358e-05): tensor<fp16, []>",  // the inner norms keep theirs
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	_, got := runResidual(t, p, runtime.Typed)
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 2e-3 {
			t.Errorf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
}
