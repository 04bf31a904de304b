package runtime

import (
	"slices"
	"testing"

	"github.com/smelt-go/smelt/mil"
)

// TestWhileSwaps returns loop variables in another order than they came in:
// (a, b, n) → (b, a+b+k, n−1) makes Fibonacci-like numbers.
func TestWhileSwaps(t *testing.T) {
	b := mil.NewBuilder("main", mil.CoreML8)
	n := b.Input("n", mil.T(mil.Int32, 1))
	k := b.Input("k", mil.T(mil.Int32, 1)) // read from inside
	one := func(v int) *mil.Value {
		return b.Const("start", mil.NewInts(mil.Int32, []int{1}, v))
	}
	out := b.While("loop", []*mil.Value{one(0), one(1), n},
		func(v []*mil.Value) *mil.Value {
			more := b.Op("greater", "more", mil.Args{"x": v[2], "y": 0})
			return b.Op("squeeze", "test", mil.Args{"x": more})
		},
		func(v []*mil.Value) []*mil.Value {
			sum := b.Op("add", "sum", mil.Args{"x": v[0], "y": v[1]})
			return []*mil.Value{v[1], b.Op("add", "next", mil.Args{"x": sum, "y": k}), b.Op("sub", "less", mil.Args{"x": v[2], "y": 1})}
		})
	for i, name := range []string{"a", "b", "left"} {
		b.Output(name, out[i])
	}
	inst := load(t, program(t, b), Options{}).New()
	for _, tt := range []struct{ n, k, a, b int32 }{{0, 0, 0, 1}, {1, 0, 1, 1}, {10, 0, 55, 89}, {3, 10, 22, 43}, {3, 10, 22, 43}} {
		got, err := inst.Run("", map[string]*Tensor{"n": intsOf(tt.n), "k": intsOf(tt.k)})
		if err != nil {
			t.Fatal(err)
		}
		if got["a"].I[0] != tt.a || got["b"].I[0] != tt.b || got["left"].I[0] != min(tt.n, 0) {
			t.Errorf("%d steps with %d: %v, %v, left %v, want %d, %d", tt.n, tt.k, got["a"].I, got["b"].I, got["left"].I, tt.a, tt.b)
		}
	}
}

// TestCondInWhile nests: a Collatz sequence counts its steps. A branch may
// return a value from outside as it is.
func TestCondInWhile(t *testing.T) {
	b := mil.NewBuilder("main", mil.CoreML8)
	n := b.Input("n", mil.T(mil.Int32, 1))
	flag := func(name string, x *mil.Value) *mil.Value { return b.Op("squeeze", name, mil.Args{"x": x}) }
	out := b.While("loop", []*mil.Value{n, b.Const("zero", mil.NewInts(mil.Int32, []int{1}, 0))},
		func(v []*mil.Value) *mil.Value {
			return flag("test", b.Op("greater", "more", mil.Args{"x": v[0], "y": 1}))
		},
		func(v []*mil.Value) []*mil.Value {
			half := b.Op("floor_div", "half", mil.Args{"x": v[0], "y": 2})
			rest := b.Op("mod", "rest", mil.Args{"x": v[0], "y": 2})
			next := b.Cond("next", flag("odd", b.Op("equal", "is_odd", mil.Args{"x": rest, "y": 1})),
				func() []*mil.Value {
					tripled := b.Op("mul", "tripled", mil.Args{"x": v[0], "y": 3})
					return []*mil.Value{b.Op("add", "plus", mil.Args{"x": tripled, "y": 1})}
				},
				func() []*mil.Value { return []*mil.Value{half} })
			return []*mil.Value{next[0], b.Op("add", "count", mil.Args{"x": v[1], "y": 1})}
		})
	b.Output("steps", out[1])
	inst := load(t, program(t, b), Options{}).New()
	for n, want := range map[int32]int32{1: 0, 2: 1, 6: 8, 27: 111} {
		got, err := inst.Run("", map[string]*Tensor{"n": intsOf(n)})
		if err != nil {
			t.Fatal(err)
		}
		if got["steps"].I[0] != want {
			t.Errorf("%d takes %v steps, want %d", n, got["steps"].I, want)
		}
	}
}

// cache builds a function that writes a row of a state and returns what it
// read before and after. early keeps the first read alive past the write: the
// value itself, or a view of it.
func cache(t *testing.T, rows, cols int, early string) *Instance {
	t.Helper()
	b := mil.NewBuilder("main", mil.CoreML8)
	at := b.Input("at", mil.T(mil.Int32, 2))
	end := b.Input("end", mil.T(mil.Int32, 2))
	row := b.Input("row", mil.T(mil.Float16, 1, cols))
	s := b.State("s", mil.T(mil.Float16, rows, cols))
	before := b.Op("read_state", "before", mil.Args{"input": s})
	old := before
	if early == "view" {
		old = b.Op("reshape", "view", mil.Args{"x": before, "shape": []int{cols, rows}})
	}
	next := b.Op("slice_update", "next", mil.Args{"x": before, "update": row, "begin": at, "end": end})
	b.Op("write_state", "write", mil.Args{"input": s, "data": next})
	after := b.Op("read_state", "after", mil.Args{"input": s})
	if early != "" {
		b.Output("old", b.Op("add", "old", mil.Args{"x": old, "y": 0.0}))
	}
	b.Output("new", b.Op("add", "new", mil.Args{"x": after, "y": 0.0}))
	return load(t, program(t, b), Options{}).New()
}

// TestReadIsACopy: a value read before a write keeps the old contents,
// whether or not the write could have been done in place.
func TestReadIsACopy(t *testing.T) {
	for _, early := range []string{"", "value", "view"} {
		const rows, cols = 3, 2
		inst := cache(t, rows, cols, early)
		want := make([]float32, rows*cols)
		for k := range 5 {
			r := k % rows
			row := []float32{float32(k + 1), float32(-k)}
			old := slices.Clone(want)
			got, err := inst.Run("", map[string]*Tensor{
				"at": intsOf(int32(r), 0), "end": intsOf(int32(r+1), cols),
				"row": {DType: mil.Float16, Shape: []int{1, cols}, F: row}})
			if err != nil {
				t.Fatal(err)
			}
			copy(want[r*cols:], row)
			if !slices.Equal(got["new"].F, want) || early != "" && !slices.Equal(got["old"].F, old) {
				t.Fatalf("early %q, step %d: new %v, old %v, want %v after %v", early, k, got["new"].F, got["old"], want, old)
			}
			if s, _ := inst.State("s"); !slices.Equal(s.F, want) {
				t.Fatalf("early %q, step %d: the state is %v, want %v", early, k, s.F, want)
			}
		}
	}
}

// TestStateIsUpdatedInPlace: writing a row of a state moves that row alone.
// The buffer stays, and no second one of its size comes into being.
func TestStateIsUpdatedInPlace(t *testing.T) {
	inst := cache(t, 512, 64, "")
	in := map[string]*Tensor{"at": intsOf(7, 0), "end": intsOf(8, 64), "row": iota32(mil.Float16, 1, 64)}
	buf := inst.states["s"].buf
	for range 3 {
		if _, err := inst.Run("", in); err != nil {
			t.Fatal(err)
		}
		if inst.states["s"].buf != buf {
			t.Fatal("the state has moved to another buffer")
		}
	}
}
