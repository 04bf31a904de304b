package pass_test

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mil/pass"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

// program builds one function per callback, called main, f1, f2, ….
func program(t *testing.T, opset mil.Opset, fs ...func(b *mil.Builder)) *mil.Program {
	t.Helper()
	p := mil.NewProgram()
	for i, f := range fs {
		name := "main"
		if i > 0 {
			name = "f" + string(rune('0'+i))
		}
		b := mil.NewBuilder(name, opset)
		f(b)
		fn, err := b.Func()
		if err != nil {
			t.Fatal(err)
		}
		p.Functions[name] = fn
	}
	return p
}

func opNames(b *mil.Block) []string {
	var s []string
	for _, o := range b.Ops {
		s = append(s, o.Name)
	}
	return s
}

func TestDeadCode(t *testing.T) {
	p := program(t, mil.CoreML8, func(b *mil.Builder) {
		x := b.Input("x", mil.T(mil.Float16, 2, 4))
		st := b.State("st", mil.T(mil.Float16, 2, 4))
		b.Op("tanh", "dead_end", mil.Args{"x": b.Op("relu", "dead_start", mil.Args{"x": x})})
		b.Op("write_state", "save", mil.Args{"input": st, "data": b.Op("sigmoid", "saved", mil.Args{"x": x})})
		parts := b.OpN("split", "parts", mil.Args{"x": x, "axis": 0, "num_splits": 2})
		yes := b.Op("greater", "yes", mil.Args{"x": b.Op("reduce_max", "m", mil.Args{"x": x, "axes": []int{0, 1}}), "y": 0.0})
		// Read by nobody, but one branch writes the state.
		b.Cond("writes", yes, func() []*mil.Value {
			b.Op("write_state", "inner_save", mil.Args{"input": st, "data": x})
			return []*mil.Value{b.Op("relu", "r1", mil.Args{"x": x})}
		}, func() []*mil.Value { return []*mil.Value{b.Op("relu", "r2", mil.Args{"x": x})} })
		b.Cond("dead_cond", yes,
			func() []*mil.Value { return []*mil.Value{b.Op("relu", "r3", mil.Args{"x": x})} },
			func() []*mil.Value { return []*mil.Value{b.Op("relu", "r4", mil.Args{"x": x})} })
		b.Output("out", parts[1])
	})
	if err := pass.Pipeline(p, pass.Pass{Name: "deadcode", Run: pass.DeadCode}); err != nil {
		t.Fatal(err)
	}
	f := p.Functions["main"]
	got := opNames(f.Body)
	for _, gone := range []string{"dead_end", "dead_start", "dead_cond"} {
		if slices.Contains(got, gone) {
			t.Errorf("%s is still there: %q", gone, got)
		}
	}
	for _, kept := range []string{"save", "saved", "parts", "writes", "yes"} {
		if !slices.Contains(got, kept) {
			t.Errorf("%s is gone: %q", kept, got)
		}
	}
	if len(f.Inputs) != 2 {
		t.Error("an input was dropped")
	}
}

// counted counts how often its contents are read.
type counted struct {
	mil.Const
	reads *int
}

func (c *counted) WriteTo(w io.Writer) (int64, error) {
	*c.reads++
	return c.Const.WriteTo(w)
}

func TestDedupConsts(t *testing.T) {
	reads := 0
	big := func(x float64) mil.Const { return &counted{mil.NewFloats(mil.Float16, []int{4}, 1, 2, 3, x), &reads} }
	shared := big(4)
	build := func(b *mil.Builder) {
		x := b.Input("x", mil.T(mil.Float16, 4))
		for i, c := range []mil.Const{shared, shared, big(4), big(5), mil.NewFloats(mil.Float16, []int{1, 4}, 1, 2, 3, 4)} {
			v := b.Const("w"+string(rune('0'+i)), c)
			if i == 2 {
				b.Tag(v, "role", "special")
			}
			x = b.Op("add", "s", mil.Args{"x": x, "y": v})
		}
		b.Output("out", b.Op("reshape", "r", mil.Args{"x": x, "shape": []int{4}}))
	}
	p := program(t, mil.CoreML8, build, build)
	if err := pass.Pipeline(p, pass.Pass{Name: "dedup", Run: pass.DedupConsts}); err != nil {
		t.Fatal(err)
	}
	// w1 repeats w0; w2 has equal contents but another tag; w3 and w4 differ
	// in contents and in shape.
	for _, f := range p.Functions {
		var got []string
		for _, o := range f.Body.Ops {
			if o.IsConst() && strings.HasPrefix(o.Name, "w") {
				got = append(got, o.Name)
			}
		}
		if d := cmp.Diff([]string{"w0", "w2", "w3", "w4"}, got); d != "" {
			t.Errorf("%s: consts (-want +got)\n%s", f.Name, d)
		}
	}
	a, b := p.Functions["main"], p.Functions["f1"]
	for i, o := range a.Body.Ops {
		if o.IsConst() && o.Out().Const != b.Body.Ops[i].Out().Const {
			t.Errorf("%s is not the same constant in both functions", o.Name)
		}
	}
	// Five identities of type [4]: the shared one is read once.
	if reads != 5 {
		t.Errorf("contents were read %d times, want 5", reads)
	}
}

// Consts of a nested block merge with those outside, not with a sibling's.
func TestDedupScopes(t *testing.T) {
	w := func() mil.Const { return mil.NewFloats(mil.Float16, []int{2}, 1, 2) }
	z := func() mil.Const { return mil.NewFloats(mil.Float16, []int{2}, 3, 4) }
	p := program(t, mil.CoreML8, func(b *mil.Builder) {
		x := b.Input("x", mil.T(mil.Float16, 2))
		x = b.Op("add", "a", mil.Args{"x": x, "y": b.Const("outer", w())})
		yes := b.Op("greater", "yes", mil.Args{"x": b.Op("reduce_max", "m", mil.Args{"x": x, "axes": []int{0}}), "y": 0.0})
		branch := func(n string) func() []*mil.Value {
			return func() []*mil.Value {
				v := b.Op("add", n+"1", mil.Args{"x": x, "y": b.Const(n+"w", w())})
				return []*mil.Value{b.Op("add", n+"2", mil.Args{"x": v, "y": b.Const(n+"z", z())})}
			}
		}
		b.Output("out", b.Cond("c", yes, branch("t"), branch("e"))[0])
	})
	if err := pass.Pipeline(p, pass.Pass{Name: "dedup", Run: pass.DedupConsts}); err != nil {
		t.Fatal(err)
	}
	body := p.Functions["main"].Body
	c := body.Ops[len(body.Ops)-1]
	for i, want := range [][]string{{"t1", "tz", "t2"}, {"e1", "ez", "e2"}} {
		if d := cmp.Diff(want, opNames(c.Blocks[i])); d != "" {
			t.Errorf("block %d (-want +got)\n%s", i, d)
		}
	}
}

func TestEquals(t *testing.T) {
	reads := 0
	a := &counted{mil.NewFloats(mil.Float32, []int{2}, 1, 2), &reads}
	lone := &counted{mil.NewFloats(mil.Float32, []int{3}, 1, 2, 3), &reads}
	half := func() mil.Const {
		c, err := pass.Cast("w", lone, mil.Float16)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	cs := []mil.Const{
		a, lone, half(), half(), a,
		mil.NewStr("x"), mil.NewStr("y"), mil.NewStr("x"),
		mil.NewInts(mil.Int32, []int{2}, 0x3f800000, 0x40000000), // the bits of a
		mil.NewFloats(mil.Float32, []int{2}, 1, 2),
	}
	got, err := pass.Equals(cs)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{0, 1, 2, 2, 0, 5, 6, 5, 8, 0}, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if reads != 1 {
		t.Errorf("%d reads, want 1: identity and type decide the rest", reads)
	}
	// Beyond the first bytes only look-alikes are read.
	long := func(at int) mil.Const {
		v := make([]float64, 10000)
		v[at] = 1
		return &counted{mil.NewFloats(mil.Float16, []int{len(v)}, v...), &reads}
	}
	reads = 0
	got, err = pass.Equals([]mil.Const{long(0), long(1), long(9999), long(9998), long(9999)})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{0, 1, 2, 3, 2}, got); d != "" || reads != 8 {
		t.Errorf("%d reads, want 5 heads and 3 in full (-want +got)\n%s", reads, d)
	}
	if _, err := pass.Equals([]mil.Const{broken{}, &broken{}}); err == nil {
		t.Error("an unreadable constant was compared")
	}
}

// broken cannot be read.
type broken struct{}

func (broken) Type() mil.TensorType             { return mil.T(mil.Float16, 4) }
func (broken) WriteTo(io.Writer) (int64, error) { return 0, errors.New("broken") }

func TestLowerFP16Golden(t *testing.T) {
	p := program(t, mil.CoreML8, func(b *mil.Builder) {
		x := b.Input("x", mil.T(mil.Float32, 1, 4))
		n := b.Input("n", mil.T(mil.Int32, 1))
		kv := b.State("kv", mil.T(mil.Float32, 1, 4))
		w := b.Op("constexpr_lut_to_dense", "w", mil.Args{
			"indices": mil.NewInts(mil.UInt1, []int{4, 4}, make([]int, 16)...),
			"lut":     mil.NewFloats(mil.Float32, []int{1, 1, 2, 1}, 0.1, 1),
		})
		gain := b.Const("gain", mil.NewFloats(mil.Float32, []int{4}, 1, 1.0/3, 1e-9, 4))
		h := b.Op("linear", "h", mil.Args{"x": x, "weight": w})
		island := b.Op("mul", "island", mil.Args{"x": h, "y": gain})
		b.Tag(island, pass.TagKeep, pass.KeepFP32)
		big := b.Op("mul", "big", mil.Args{"x": island, "y": 1e9})
		b.Tag(big, pass.TagKeep, pass.KeepFP32)
		back := b.Op("tanh", "back", mil.Args{"x": big})
		g := b.Op("mul", "gained", mil.Args{"x": back, "y": gain})
		f := b.Op("cast", "f", mil.Args{"x": n, "dtype": "fp32"})
		s := b.Op("add", "s", mil.Args{"x": g, "y": f})
		norm := b.Op("layer_norm", "norm", mil.Args{"x": s, "axes": []int{1}, "gamma": gain, "epsilon": 1e-9})
		b.Op("write_state", "save", mil.Args{"input": kv, "data": norm})
		kept := b.Op("exp", "kept", mil.Args{"x": norm})
		b.Tag(kept, pass.TagKeep, pass.KeepFP32)
		b.Output("out", kept)
		b.Output("old", b.Op("relu", "r", mil.Args{"x": b.Op("read_state", "read", mil.Args{"input": kv})}))
	})
	if err := pass.Pipeline(p, pass.Pass{Name: "fp16", Run: pass.LowerFP16}); err != nil {
		t.Fatal(err)
	}
	if err := mil.Verify(p); err != nil {
		t.Error(err)
	}
	golden(t, "fp16.txt", mil.Text(p))
}

func TestLowerFP16Faults(t *testing.T) {
	relu := func(c mil.Const) func(b *mil.Builder) {
		return func(b *mil.Builder) {
			x := b.Input("x", mil.T(mil.Float32, 4))
			b.Output("out", b.Op("add", "a", mil.Args{"x": x, "y": b.Const("layers.0.w", c)}))
		}
	}
	for _, c := range []struct {
		name, want string
		p          *mil.Program
	}{
		{"range", `const "layers_0_w": element 1 is -70000, beyond fp16's 65504`, program(t, mil.CoreML8, relu(mil.NewFloats(mil.Float32, []int{4}, 1, -70000, 2, 3)))},
		{"opset", "fp16 inputs and outputs need CoreML6", program(t, mil.CoreML5, relu(mil.NewFloats(mil.Float32, []int{4}, 1, 2, 3, 4)))},
	} {
		if err := pass.LowerFP16(c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	// A lazy constant is judged when it is written.
	lazy := &counted{mil.NewFloats(mil.Float32, []int{4}, 1, -70000, 2, 3), new(int)}
	p := program(t, mil.CoreML8, relu(lazy))
	if err := pass.LowerFP16(p); err != nil || *lazy.reads != 0 {
		t.Errorf("lowering read the weight %d times (error %v)", *lazy.reads, err)
	}
	_, err := p.Functions["main"].Body.Ops[0].Out().Const.WriteTo(io.Discard)
	if want := `const "layers_0_w": element 1 is -70000`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestLowerFP16SharesConsts(t *testing.T) {
	w := mil.NewFloats(mil.Float32, []int{5000}, make([]float64, 5000)...)
	f := func(b *mil.Builder) {
		x := b.Input("x", mil.T(mil.Float32, 5000))
		b.Output("out", b.Op("add", "a", mil.Args{"x": x, "y": b.Const("w", w)}))
	}
	p := program(t, mil.CoreML8, f, f)
	if err := pass.LowerFP16(p); err != nil {
		t.Fatal(err)
	}
	if a, b := p.Functions["main"].Body.Ops[0], p.Functions["f1"].Body.Ops[0]; a.Out().Const != b.Out().Const {
		t.Error("a constant that two functions shared is two constants now")
	}
}

func TestScaleResidualFaults(t *testing.T) {
	tagged := func(f func(b *mil.Builder, x *mil.Value) *mil.Value) *mil.Program {
		return program(t, mil.CoreML8, func(b *mil.Builder) {
			x := b.Input("x", mil.T(mil.Float32, 1, 2))
			b.Output("out", f(b, x))
		})
	}
	tag := func(b *mil.Builder, v *mil.Value, val string) *mil.Value {
		b.Tag(v, pass.TagResidual, val)
		return v
	}
	for _, c := range []struct {
		name, want string
		s          float64
		f          func(b *mil.Builder, x *mil.Value) *mil.Value
	}{
		{"not a power of two", "is no power of two", 0.3, func(b *mil.Builder, x *mil.Value) *mil.Value { return b.Op("relu", "r", mil.Args{"x": x}) }},
		{"no source", "no residual stream", 0.5, func(b *mil.Builder, x *mil.Value) *mil.Value { return b.Op("relu", "r", mil.Args{"x": x}) }},
		{"source is no const", "only a const", 0.5, func(b *mil.Builder, x *mil.Value) *mil.Value {
			return tag(b, b.Op("relu", "r", mil.Args{"x": x}), pass.ResidualSource)
		}},
		{"norm without epsilon", "needs a constant epsilon", 0.5, func(b *mil.Builder, x *mil.Value) *mil.Value {
			return tag(b, b.Op("relu", "r", mil.Args{"x": x}), pass.ResidualNorm)
		}},
		{"unknown tag", "unknown tag residual=sauce", 0.5, func(b *mil.Builder, x *mil.Value) *mil.Value {
			return tag(b, b.Op("relu", "r", mil.Args{"x": x}), "sauce")
		}},
		{"integer source", "cannot be scaled", 0.5, func(b *mil.Builder, x *mil.Value) *mil.Value {
			tag(b, b.Const("c", mil.NewInts(mil.Int32, nil, 1)), pass.ResidualSource)
			return b.Op("relu", "r", mil.Args{"x": x})
		}},
	} {
		if err := pass.ScaleResidual(tagged(c.f), c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

func TestNamesFaults(t *testing.T) {
	build := func() *mil.Program {
		return program(t, mil.CoreML8, func(b *mil.Builder) {
			b.Output("out", b.Op("relu", "r", mil.Args{"x": b.Input("x", mil.T(mil.Float16, 1))}))
		})
	}
	for want, fault := range map[string]func(p *mil.Program, f *mil.Function){
		`input name "a.b"`:       func(p *mil.Program, f *mil.Function) { f.Inputs[0].Name = "a.b" },
		`output name "state"`:    func(p *mil.Program, f *mil.Function) { f.Body.Outputs[0].Name = "state" },
		`name "x" is used twice`: func(p *mil.Program, f *mil.Function) { f.Body.Outputs[0].Name = "x" },
		`function name "0"`:      func(p *mil.Program, f *mil.Function) { p.Functions["0"] = f },
	} {
		p := build()
		fault(p, p.Functions["main"])
		if err := pass.Names(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// The pass that breaks a program is named, and nothing runs after it.
func TestPipelineBlames(t *testing.T) {
	p := program(t, mil.CoreML8, func(b *mil.Builder) {
		b.Output("out", b.Op("relu", "r", mil.Args{"x": b.Input("x", mil.T(mil.Float16, 1))}))
	})
	ran := []string{}
	step := func(name string, f func(p *mil.Program) error) pass.Pass {
		return pass.Pass{Name: name, Run: func(p *mil.Program) error { ran = append(ran, name); return f(p) }}
	}
	err := pass.Pipeline(p,
		step("good", func(p *mil.Program) error { return nil }),
		step("bad", func(p *mil.Program) error { p.Functions["main"].Body.Outputs = nil; return nil }),
		step("never", func(p *mil.Program) error { return nil }))
	if err == nil || !strings.Contains(err.Error(), "wrong after bad") || len(ran) != 2 {
		t.Errorf("error %v after %q", err, ran)
	}
	err = pass.Pipeline(p, step("never", func(p *mil.Program) error { return nil }))
	if err == nil || !strings.Contains(err.Error(), "before any pass") || len(ran) != 2 {
		t.Errorf("error %v after %q", err, ran)
	}
}
