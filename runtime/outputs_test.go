package runtime

import (
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/internal/alloctest"
	"github.com/smelt-go/smelt/mil"
)

func TestOutputsRunsWhatTheyNeed(t *testing.T) {
	d := tinyDecoder
	pr := load(t, d.program(t), Options{Threads: 1})
	in := pr.New()
	keys, values := d.cache()
	args := d.inputs(story, 0, keys, values)
	out, err := in.Run("prefill", args)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(out["new_keys"].F)
	keep := Outputs("new_values", "new_keys")
	out, err = in.Run("prefill", args, keep)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != 2 || !slices.Equal(out["new_keys"].F, want) {
		t.Errorf("%d outputs, or other keys than in a full run", len(out))
	}
	seen := map[string]bool{}
	if _, err = in.Run("prefill", args, keep, WithTap(func(n string, _ *Tensor) { seen[n] = true })); err != nil {
		t.Fatal(err)
	}
	if !seen["l1_k_rot"] || !seen["l0_mlp_out"] || seen["head"] || seen["l1_mlp_out"] || seen["argmax"] {
		t.Errorf("a run for keys and values computes %v", seen)
	}
	alloctest.Zero(t, 5, func() { in.Run("prefill", args, keep) })
	if _, err := in.Run("prefill", args, Outputs("logit")); err == nil || !strings.Contains(err.Error(), `no output is called "logit"`) || !strings.Contains(err.Error(), "new_keys") {
		t.Errorf("unknown output: %v", err)
	}
	// A full run afterwards is complete again.
	if out, err = in.Run("prefill", args); err != nil || len(out) != 4 {
		t.Errorf("%d outputs, %v", len(out), err)
	}
}

func TestOutputsKeepsWritesToStates(t *testing.T) {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float16, 2))
	s := b.State("s", mil.T(mil.Float16, 2))
	sum := b.Op("add", "sum", mil.Args{"x": b.Op("read_state", "old", mil.Args{"input": s}), "y": x})
	b.Op("write_state", "new", mil.Args{"input": s, "data": sum})
	b.Output("out", b.Op("mul", "double", mil.Args{"x": sum, "y": 2.0}))
	in := load(t, program(t, b), Options{}).New()
	args := map[string]*Tensor{"x": vec(mil.Float16, 1, 2)}
	for range 3 {
		out, err := in.Run("main", args, Outputs())
		if err != nil || len(out) != 0 {
			t.Fatalf("%v, %v", out, err)
		}
	}
	if got, _ := in.State("s"); !slices.Equal(got.F, []float32{3, 6}) {
		t.Errorf("the state is %v after three runs without outputs", got.F)
	}
}

func TestRoundedInputsAreNotLookedAt(t *testing.T) {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float16, 1))
	b.Output("out", b.Op("identity", "same", mil.Args{"x": x}))
	in := load(t, program(t, b), Options{}).New()
	args := map[string]*Tensor{"x": vec(mil.Float16, 1+1e-5)}
	for _, c := range []struct {
		opts []RunOption
		want float32
	}{{nil, 1}, {[]RunOption{Rounded("y")}, 1}, {[]RunOption{Rounded("x")}, 1 + 1e-5}} {
		out, err := in.Run("main", args, c.opts...)
		if err != nil {
			t.Fatal(err)
		}
		if got := out["out"].F[0]; got != c.want {
			t.Errorf("%d options: %g, want %g", len(c.opts), got, c.want)
		}
	}
}

func TestProfileCountsCallsAndBytes(t *testing.T) {
	d := tinyDecoder
	in := load(t, d.program(t), Options{Threads: 1}).New()
	keys, values := d.cache()
	args := d.inputs(story[:1], 0, keys, values)
	var p Profile
	for range 3 {
		if _, err := in.Run("decode", args, WithProfile(&p)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.Run("decode", args); err != nil {
		t.Fatal(err)
	}
	ops := p.Ops()
	i := slices.IndexFunc(ops, func(c OpCost) bool { return c.Name == "logits" })
	if i < 0 {
		t.Fatalf("no logits among %v", ops)
	}
	if r := p.Runs("decode"); r.Runs != 3 || r.Time < ops[i].Time {
		t.Errorf("%+v, want 3 runs that take longer than one op", r)
	}
	c := ops[i]
	bytes := int64(3 * (2*d.vocab*d.hidden + 4*d.hidden + 4*d.vocab))
	if c.Function != "decode" || c.Kind != "linear" || c.Calls != 3 || c.Time <= 0 || c.Bytes != bytes {
		t.Errorf("%+v, want 3 calls of decode that move %d bytes", c, bytes)
	}
	for _, c := range ops {
		if c.Calls != 3 {
			t.Errorf("%s ran %d times", c.Name, c.Calls)
		}
		if c.Name == "start" && c.Bytes != 0 {
			t.Errorf("a reshape moves %d bytes", c.Bytes)
		}
	}
}

func TestReadBandwidthIsThatOfAMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 256 MB")
	}
	if b := ReadBandwidth(0); b < 1e8 || b > 1e13 {
		t.Errorf("%g bytes a second", b)
	}
}
