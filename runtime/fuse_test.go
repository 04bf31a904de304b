package runtime

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/mil"
)

// fusedAndPlain runs f with the given fusions and with none, and says how many
// patterns were found.
func fusedAndPlain(t testing.TB, f *mil.Function, in map[string]*Tensor, o Options, with ...fusion) (fused, plain *Tensor, found int) {
	t.Helper()
	p := mil.NewProgram()
	p.Functions[f.Name] = f
	for _, fs := range [][]fusion{with, nil} {
		pr := newProgram(p, o)
		pr.fusions = fs
		if err := pr.lower(); err != nil {
			t.Fatal(err)
		}
		for _, i := range pr.funcs[f.Name].code.instrs {
			if i.pattern != "" {
				found++
			}
		}
		inst := pr.New()
		var out map[string]*Tensor
		var err error
		for range 2 { // the second run uses what the first has left
			if out, err = inst.Run(f.Name, in); err != nil {
				t.Fatal(err)
			}
		}
		fused, plain = plain, out["out"]
	}
	return fused, plain, found
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y })
}

// mergedGraph is the attention of a decoder whose new tokens are in the cache.
func mergedGraph(t testing.TB, dt mil.DType, kv, group, T, S, D int, flat bool) *mil.Function {
	b := mil.NewBuilder("main", mil.CoreML8)
	rows := group * T
	q := b.Input("q", mil.T(dt, 1, kv, rows, D))
	k0, v0 := b.Input("k0", mil.T(dt, 1, kv, S, D)), b.Input("v0", mil.T(dt, 1, kv, S, D))
	mask := b.Input("mask", mil.T(dt, 1, 1, T, S))
	s := b.Op("matmul", "scores", mil.Args{"x": q, "y": k0, "transpose_y": true})
	if T > 1 {
		s = b.Op("reshape", "by_head", mil.Args{"x": s, "shape": []int{kv, group, T, S}})
	}
	w := b.Op("softmax", "probs", mil.Args{"x": b.Op("add", "masked", mil.Args{"x": mask, "y": s}), "axis": 3})
	if T > 1 {
		w = b.Op("reshape", "by_row", mil.Args{"x": w, "shape": []int{1, kv, rows, S}})
	}
	layout(b, b.Op("matmul", "mix", mil.Args{"x": w, "y": v0}), kv*group, T, D, flat)
	f, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// layout makes o the output, as o_proj takes it if flat is set.
func layout(b *mil.Builder, o *mil.Value, heads, T, D int, flat bool) {
	if flat {
		o = b.Op("reshape", "mix_heads", mil.Args{"x": o, "shape": []int{1, heads, T, D}})
		o = b.Op("transpose", "mix_t", mil.Args{"x": o, "perm": []int{0, 2, 1, 3}})
		o = b.Op("reshape", "mix_flat", mil.Args{"x": o, "shape": []int{1, T, heads * D}})
	}
	b.Output("out", o)
}

// attentionGraph is the attention of a decoder with keys, values and queries
// as inputs.
func attentionGraph(t testing.TB, dt mil.DType, kv, group, T, S, D int, flat bool) *mil.Function {
	b := mil.NewBuilder("main", mil.CoreML8)
	rows := group * T
	q := b.Input("q", mil.T(dt, 1, kv, rows, D))
	k0, v0 := b.Input("k0", mil.T(dt, 1, kv, S, D)), b.Input("v0", mil.T(dt, 1, kv, S, D))
	k1, v1 := b.Input("k1", mil.T(dt, 1, kv, T, D)), b.Input("v1", mil.T(dt, 1, kv, T, D))
	mask := b.Input("mask", mil.T(dt, 1, 1, T, S+T))
	s := b.Op("concat", "scores", mil.Args{"axis": 3, "values": []*mil.Value{
		b.Op("matmul", "s0", mil.Args{"x": q, "y": k0, "transpose_y": true}),
		b.Op("matmul", "s1", mil.Args{"x": q, "y": k1, "transpose_y": true}),
	}})
	if T > 1 {
		s = b.Op("reshape", "by_head", mil.Args{"x": s, "shape": []int{kv, group, T, S + T}})
	}
	w := b.Op("softmax", "probs", mil.Args{"x": b.Op("add", "masked", mil.Args{"x": s, "y": mask}), "axis": -1})
	if T > 1 {
		w = b.Op("reshape", "by_row", mil.Args{"x": w, "shape": []int{1, kv, rows, S + T}})
	}
	cut := func(n string, from, to int) *mil.Value {
		return b.Op("slice_by_index", n, mil.Args{"x": w, "begin": []int{0, 0, 0, from}, "end": []int{1, kv, rows, to}})
	}
	o := b.Op("add", "mix", mil.Args{
		"x": b.Op("matmul", "o0", mil.Args{"x": cut("p0", 0, S), "y": v0}),
		"y": b.Op("matmul", "o1", mil.Args{"x": cut("p1", S, S+T), "y": v1}),
	})
	layout(b, o, kv*group, T, D, flat)
	f, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFusedAttentionIsTheSameBits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		dt := rapid.SampledFrom([]mil.DType{mil.Float16, mil.Float16, mil.Float32}).Draw(rt, "dtype")
		kv, group := rapid.IntRange(1, 3).Draw(rt, "kv"), rapid.IntRange(1, 4).Draw(rt, "group")
		T := rapid.SampledFrom([]int{1, 1, 2, 7, 16, 40}).Draw(rt, "T")
		S := rapid.SampledFrom([]int{1, 16, 24, 48, 64, 160, 512, 700}).Draw(rt, "S")
		D := rapid.SampledFrom([]int{16, 24, 64, 80}).Draw(rt, "D")
		merged := rapid.IntRange(0, 2).Draw(rt, "merged") == 0
		width := S + T
		if merged {
			width = S
		}
		in := map[string]*Tensor{
			"q":  randomTensor(r, dt, 1, kv, group*T, D),
			"k0": randomTensor(r, dt, 1, kv, S, D), "v0": randomTensor(r, dt, 1, kv, S, D),
			"k1": randomTensor(r, dt, 1, kv, T, D), "v1": randomTensor(r, dt, 1, kv, T, D),
			"mask": NewTensor(dt, 1, 1, T, width),
		}
		blocked := rapid.SampledFrom([]float32{-1e4, -3e4, float32(math.Inf(-1))}).Draw(rt, "blocked")
		if rapid.IntRange(0, 5).Draw(rt, "large scores") == 0 {
			for i := range in["q"].F {
				in["q"].F[i] *= 40
			}
			roundTo(in["q"])
		}
		lo := rapid.IntRange(0, S).Draw(rt, "first open")
		hi := rapid.IntRange(lo, S).Draw(rt, "last open")
		for i := range T {
			row := in["mask"].F[i*width:][:width]
			for j := range row {
				open := j >= lo+i/4 && j < hi || j >= S && j-S <= i
				if !open || r.IntN(20) == 0 {
					row[j] = blocked
				} else if r.IntN(9) == 0 {
					row[j] = -2
				}
			}
			if r.IntN(30) == 0 && blocked > -1e5 { // a row that sees nothing
				for j := range row {
					row[j] = blocked
				}
			}
		}
		graph := attentionGraph
		if merged {
			graph = mergedGraph
			delete(in, "k1")
			delete(in, "v1")
		}
		f := graph(t, dt, kv, group, T, S, D, rapid.Bool().Draw(rt, "flat"))
		o := Options{Threads: rapid.IntRange(1, 3).Draw(rt, "threads"), Mode: rapid.SampledFrom([]Mode{Typed, FP32}).Draw(rt, "mode")}
		fused, plain, found := fusedAndPlain(t, f, in, o, fusions...)
		if found != 1 {
			rt.Fatalf("%d patterns found, want 1", found)
		}
		if !slices.Equal(fused.Shape, plain.Shape) || !sameBits(fused.F, plain.F) {
			rt.Fatalf("differs by %g", maxDiff(fused.F, plain.F))
		}
	})
}

// Scores that a mask of -1e4 does not close are computed as the program says.
func TestAttentionBeyondTheMask(t *testing.T) {
	for _, S := range []int{64, 1024} {
		const D = 64
		in := map[string]*Tensor{"mask": NewTensor(mil.Float16, 1, 1, 1, S+1)}
		r := rand.New(rand.NewPCG(9, 9))
		for n, s := range map[string][]int{"q": {1, 1, 2, D}, "k0": {1, 1, S, D}, "v0": {1, 1, S, D}, "k1": {1, 1, 1, D}, "v1": {1, 1, 1, D}} {
			in[n] = randomTensor(r, mil.Float16, s...)
		}
		for j := range S {
			in["mask"].F[j] = -1e4
		}
		for _, open := range []float32{-8000, 8000} { // the score of the only open slot
			for d := range D {
				in["q"].F[d], in["k1"].F[d] = 16, open/16/D
				in["k0"].F[5*D+d] = 18 // a score of 18432
			}
			fused, plain, found := fusedAndPlain(t, attentionGraph(t, mil.Float16, 1, 2, 1, S, D, false), in, Options{Threads: 2}, fusions...)
			if found != 1 || !sameBits(fused.F, plain.F) {
				t.Errorf("%d slots, open score %g: off by %g", S, open, maxDiff(fused.F, plain.F))
			}
			if fused.F[3] != in["v0"].F[5*D+3] {
				t.Errorf("%d slots, open score %g: the closed slot with the largest score does not win", S, open)
			}
		}
	}
}

// A closed slot is not read, whatever it holds.
func TestAttentionDoesNotReadClosedSlots(t *testing.T) {
	for _, S := range []int{64, 1024} {
		r := rand.New(rand.NewPCG(9, 9))
		in := map[string]*Tensor{"mask": NewTensor(mil.Float16, 1, 1, 1, S+1)}
		for n, s := range map[string][]int{"q": {1, 2, 3, 64}, "k0": {1, 2, S, 64}, "v0": {1, 2, S, 64}, "k1": {1, 2, 1, 64}, "v1": {1, 2, 1, 64}} {
			in[n] = randomTensor(r, mil.Float16, s...)
		}
		open := S / 2
		for j := open; j < S; j++ {
			in["mask"].F[j] = -1e4
		}
		p := mil.NewProgram()
		p.Functions["main"] = attentionGraph(t, mil.Float16, 2, 3, 1, S, 64, true)
		inst := load(t, p, Options{Threads: 2}).New()
		out, err := inst.Run("main", in)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(out["out"].F)
		for h := range 2 {
			for _, n := range []string{"k0", "v0"} {
				for i := (h*S + open) * 64; i < (h+1)*S*64; i++ {
					in[n].F[i] = float32(math.NaN())
				}
			}
		}
		if out, err = inst.Run("main", in, Rounded("k0", "v0")); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(out["out"].F, want) {
			t.Errorf("%d slots: closed ones take part", S)
		}
	}
}

func TestFusedRopeIsTheSameBits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		dt := rapid.SampledFrom([]mil.DType{mil.Float16, mil.Float32}).Draw(rt, "dtype")
		T, H := rapid.SampledFrom([]int{1, 3, 16}).Draw(rt, "T"), rapid.IntRange(1, 4).Draw(rt, "heads")
		D := rapid.SampledFrom([]int{2, 16, 64, 72}).Draw(rt, "D")
		turned, scaled := rapid.Bool().Draw(rt, "turned"), rapid.Bool().Draw(rt, "scaled")
		b := mil.NewBuilder("main", mil.CoreML8)
		shape := []int{1, H, T, D}
		if turned {
			shape = []int{1, T, H, D}
		}
		x := b.Input("x", mil.T(dt, shape...))
		cos, sin := b.Input("cos", mil.T(dt, 1, 1, T, D)), b.Input("sin", mil.T(dt, 1, 1, T, D))
		h := x
		if turned {
			h = b.Op("transpose", "t", mil.Args{"x": x, "perm": []int{0, 2, 1, 3}})
		}
		cut := func(n string, from, to int) *mil.Value {
			return b.Op("slice_by_index", n, mil.Args{"x": h, "begin": []int{0, 0, 0, from}, "end": []int{1, H, T, to}})
		}
		neg := b.Op("mul", "neg", mil.Args{"x": cut("hi", D/2, D), "y": -1.0})
		half := b.Op("concat", "half", mil.Args{"values": []*mil.Value{neg, cut("lo", 0, D/2)}, "axis": 3})
		y := b.Op("add", "sum", mil.Args{"x": b.Op("mul", "c", mil.Args{"x": h, "y": cos}), "y": b.Op("mul", "s", mil.Args{"x": half, "y": sin})})
		if scaled {
			y = b.Op("mul", "scaled", mil.Args{"x": y, "y": 0.0884})
		}
		b.Output("out", y)
		f, err := b.Func()
		if err != nil {
			rt.Fatal(err)
		}
		in := map[string]*Tensor{"x": randomTensor(r, dt, shape...), "cos": randomTensor(r, dt, 1, 1, T, D), "sin": randomTensor(r, dt, 1, 1, T, D)}
		fused, plain, found := fusedAndPlain(t, f, in, Options{Threads: 2}, fusions...)
		if found != 1 || !slices.Equal(fused.Shape, plain.Shape) || !sameBits(fused.F, plain.F) {
			rt.Fatalf("%d patterns; %v, want %v", found, fused.F, plain.F)
		}
	})
}

// A value that something else needs too is not absorbed.
func TestPatternsLeaveSharedValues(t *testing.T) {
	for _, shared := range []string{"gate", "act", "up", "none"} {
		b := mil.NewBuilder("main", mil.CoreML8)
		x := b.Input("x", mil.T(mil.Float16, 1, 3, 40))
		r := rand.New(rand.NewPCG(5, 6))
		lin := func(n string) *mil.Value {
			return b.Op("linear", n, mil.Args{"x": x, "weight": b.Const(n+"_w", randomHalves(r, 0.2, 50, 40)), "bias": b.Const(n+"_b", randomHalves(r, 0.2, 50))})
		}
		v := map[string]*mil.Value{"gate": lin("gate"), "up": lin("up")}
		v["act"] = b.Op("silu", "act", mil.Args{"x": v["gate"]})
		v["none"] = b.Op("mul", "gated", mil.Args{"x": v["up"], "y": v["act"]})
		b.Output("out", v["none"])
		if shared != "none" {
			b.Output("also", b.Op("identity", "also", mil.Args{"x": v[shared]}))
		}
		f, err := b.Func()
		if err != nil {
			t.Fatal(err)
		}
		in := map[string]*Tensor{"x": randomTensor(r, mil.Float16, 1, 3, 40)}
		fused, plain, found := fusedAndPlain(t, f, in, Options{Threads: 3}, fusions...)
		if found != 1 || !sameBits(fused.F, plain.F) {
			t.Errorf("%s is used twice: %d patterns, off by %g", shared, found, maxDiff(fused.F, plain.F))
		}
	}
}

// All patterns but RMSNorm leave the bits of a whole decoder alone.
func TestFusionsKeepTheBitsOfADecoder(t *testing.T) {
	d := tinyDecoder
	for _, context := range []int{24, 32} {
		d.context = context
		p := d.program(t)
		for _, mode := range []Mode{Typed, FP32} {
			t.Run(fmt.Sprint(mode, context), func(t *testing.T) {
				var logits [2][][]float32
				var prefill [2][]float32
				for k, fs := range [][]fusion{fusions[:1], fusions} {
					pr := newProgram(p, Options{Mode: mode, Threads: 2})
					pr.fusions = fs
					if err := pr.lower(); err != nil {
						t.Fatal(err)
					}
					logits[k] = d.serial(t, pr.New(), story)
					keys, values := d.cache()
					out, err := pr.New().Run("prefill", d.inputs(story, 0, keys, values))
					if err != nil {
						t.Fatal(err)
					}
					prefill[k] = slices.Clone(out["logits"].F)
				}
				for i := range story {
					if !slices.Equal(logits[0][i], logits[1][i]) {
						t.Errorf("token %d is off by %g", i, maxDiff(logits[0][i], logits[1][i]))
					}
				}
				if !slices.Equal(prefill[0], prefill[1]) {
					t.Errorf("prefill is off by %g", maxDiff(prefill[0], prefill[1]))
				}
			})
		}
	}
}
