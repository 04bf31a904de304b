package runtime

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/mil"
)

// program wraps functions for Load.
func program(t *testing.T, bs ...*mil.Builder) *mil.Program {
	t.Helper()
	p := mil.NewProgram()
	for _, b := range bs {
		f, err := b.Func()
		if err != nil {
			t.Fatal(err)
		}
		p.Functions[f.Name] = f
	}
	return p
}

func load(t *testing.T, p *mil.Program, o Options) *Program {
	t.Helper()
	pr, err := Load(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return pr
}

func vec(d mil.DType, v ...float32) *Tensor {
	return &Tensor{DType: d, Shape: []int{len(v)}, F: v}
}

func chain() *mil.Builder {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float16, 4))
	y := b.Input("y", mil.T(mil.Float16, 4))
	a := b.Op("add", "a", mil.Args{"x": x, "y": y})
	c := b.Op("add", "c", mil.Args{"x": a, "y": a})
	d := b.Op("add", "d", mil.Args{"x": c, "y": x})
	b.Output("d", d)
	return b
}

func TestRunRoundsOncePerOp(t *testing.T) {
	p := program(t, chain())
	// 0.1 is not an fp16 number; 2048+1 is halfway and rounds to even.
	in := map[string]*Tensor{"x": vec(mil.Float16, 0.1, 2048, 1, -1), "y": vec(mil.Float16, 0, 1, 1, 1)}
	got, err := load(t, p, Options{}).New().Run("", in)
	if err != nil {
		t.Fatal(err)
	}
	want := []float32{0.2998046875, 6144, 5, -1}
	if diff := cmp.Diff(want, got["d"].F); diff != "" {
		t.Error(diff)
	}
	if in["x"].F[0] != 0.1 {
		t.Error("the caller's input was changed")
	}
	got, err = load(t, p, Options{Mode: FP32}).New().Run("", in)
	if err != nil {
		t.Fatal(err)
	}
	if want := []float32{0.3, 6146, 5, -1}; cmp.Diff(want, got["d"].F) != "" {
		t.Errorf("fp32: got %v, want %v", got["d"].F, want)
	}
}

func TestTapSeesEveryValueInOrder(t *testing.T) {
	in := load(t, program(t, chain()), Options{}).New()
	x := map[string]*Tensor{"x": vec(mil.Float16, 1, 2, 3, 4), "y": vec(mil.Float16, 1, 1, 1, 1)}
	var seen []string
	for range 2 {
		if _, err := in.Run("main", x, WithTap(func(n string, t *Tensor) { seen = append(seen, fmt.Sprint(n, t.F)) })); err != nil {
			t.Fatal(err)
		}
	}
	one := []string{"a[2 3 4 5]", "c[4 6 8 10]", "d[5 8 11 14]"}
	if diff := cmp.Diff(append(one, one...), seen); diff != "" {
		t.Error(diff)
	}
}

func TestRunErrors(t *testing.T) {
	pr := load(t, program(t, chain()), Options{})
	x, y := vec(mil.Float16, 1, 2, 3, 4), vec(mil.Float16, 1, 1, 1, 1)
	for _, c := range []struct {
		name, fn, want string
		in             map[string]*Tensor
	}{
		{"function", "prefill", `no function "prefill" (the program has [main])`, nil},
		{"missing", "", `function main: input "y" is missing`, map[string]*Tensor{"x": x}},
		{"extra", "", `no input is called z (the function takes x, y)`, map[string]*Tensor{"x": x, "y": y, "z": x}},
		{"dtype", "", `input "y": is tensor<fp32, [4]>, want tensor<fp16, [4]>`, map[string]*Tensor{"x": x, "y": vec(mil.Float32, 1, 2, 3, 4)}},
		{"shape", "", `input "y": is tensor<fp16, [3]>`, map[string]*Tensor{"x": x, "y": vec(mil.Float16, 1, 2, 3)}},
		{"length", "", `has 2 float and 0 integer elements`, map[string]*Tensor{"x": x, "y": {DType: mil.Float16, Shape: []int{4}, F: []float32{1, 2}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := pr.New().Run(c.fn, c.in)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestLoadNamesFunctionOpAndKind(t *testing.T) {
	b := chain()
	p := program(t, b)
	p.Functions["main"].Body.Ops[1].Kind = "frobnicate"
	_, err := Load(p, Options{})
	if err == nil || !strings.Contains(err.Error(), `function main: op "c" (frobnicate)`) {
		t.Errorf("got %v", err)
	}
}

// counter adds step to a state and returns the value from before.
func counter(name string) *mil.Builder {
	b := mil.NewBuilder(name, mil.CoreML8)
	st := b.State("sum", mil.T(mil.Float16, 2))
	x := b.Input("step", mil.T(mil.Float16, 2))
	old := b.Op("read_state", "old", mil.Args{"input": st})
	now := b.Op("add", "now", mil.Args{"x": old, "y": x})
	b.Op("write_state", "write", mil.Args{"input": st, "data": now})
	twice := b.Op("add", "twice", mil.Args{"x": old, "y": old})
	b.Output("now", now)
	b.Output("twice", twice)
	return b
}

func TestStatesLiveInTheInstance(t *testing.T) {
	pr := load(t, program(t, counter("main"), counter("other")), Options{})
	a, b := pr.New(), pr.New()
	step := map[string]*Tensor{"step": vec(mil.Float16, 1, 2)}
	for k := range 5 {
		out, err := a.Run([]string{"main", "other"}[k%2], step)
		if err != nil {
			t.Fatal(err)
		}
		n := float32(k)
		if diff := cmp.Diff([]float32{n + 1, 2*n + 2}, out["now"].F); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff([]float32{2 * n, 4 * n}, out["twice"].F); diff != "" {
			t.Fatalf("the value read before the write changed: %s", diff)
		}
	}
	if s, _ := a.State("sum"); cmp.Diff([]float32{5, 10}, s.F) != "" {
		t.Errorf("state is %v", s.F)
	}
	if s, _ := b.State("sum"); cmp.Diff([]float32{0, 0}, s.F) != "" {
		t.Errorf("another instance's state is %v", s.F)
	}
	if err := a.SetState("sum", vec(mil.Float16, 0.1, 7)); err != nil {
		t.Fatal(err)
	}
	if s, _ := a.State("sum"); s.F[0] != 0.0999755859375 {
		t.Errorf("SetState did not round: %v", s.F[0])
	}
	a.ResetStates()
	if s, _ := a.State("sum"); cmp.Diff([]float32{0, 0}, s.F) != "" {
		t.Errorf("after the reset the state is %v", s.F)
	}
	if err := a.SetState("total", vec(mil.Float16, 1, 2)); err == nil || !strings.Contains(err.Error(), `no state "total" (the program has [sum])`) {
		t.Errorf("got %v", err)
	}
	if _, err := a.Run("main", map[string]*Tensor{"step": step["step"], "sum": step["step"]}); err == nil || !strings.Contains(err.Error(), "SetState") {
		t.Errorf("got %v", err)
	}
}

func TestInstancesRunConcurrently(t *testing.T) {
	pr := load(t, program(t, counter("main")), Options{Threads: 3})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			in := pr.New()
			for k := range 20 {
				out, err := in.Run("main", map[string]*Tensor{"step": vec(mil.Float16, float32(g), 1)})
				if err != nil {
					t.Error(err)
					return
				}
				if want := float32((k + 1) * g); out["now"].F[0] != want {
					t.Errorf("instance %d, step %d: %v, want %v", g, k, out["now"].F[0], want)
				}
			}
		})
	}
	wg.Wait()
}
