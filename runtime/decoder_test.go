package runtime

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/smelt-go/smelt/internal/alloctest"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/mil"
)

// decoderSize gives the dimensions of a decoder in the form that models
// emits: RMSNorm as layer_norm of [x, -x], rotary embedding, grouped-query
// attention over a cache input and the new tokens, gated MLP, tied head.
type decoderSize struct {
	layers, hidden, heads, kv, dim, mlp, vocab, context int
}

var tinyDecoder = decoderSize{layers: 2, hidden: 48, heads: 4, kv: 2, dim: 16, mlp: 72, vocab: 133, context: 24}

// randomHalves is a constant of normal fp16 numbers; large ones repeat.
func randomHalves(r *rand.Rand, scale float64, shape ...int) *mil.Literal {
	n := numElements(shape)
	b := make([]byte, 2*n)
	for i := range min(n, 99991) {
		h := half.FromF32(float32(r.NormFloat64() * scale))
		b[2*i], b[2*i+1] = byte(h), byte(h>>8)
	}
	for done := 2 * 99991; done < len(b); done *= 2 {
		copy(b[done:], b[:done])
	}
	return &mil.Literal{T: mil.T(mil.Float16, shape...), Data: b}
}

// weights makes the constants of a decoder, the same for every function.
func (d decoderSize) weights() map[string]*mil.Literal {
	r := rand.New(rand.NewPCG(1, 2))
	w := map[string]*mil.Literal{}
	mat := func(name string, n, k int) { w[name] = randomHalves(r, 1/math.Sqrt(float64(k)), n, k) }
	mat("embed", d.vocab, d.hidden)
	for i := range d.layers {
		p := fmt.Sprintf("l%d_", i)
		mat(p+"q", d.heads*d.dim, d.hidden)
		mat(p+"k", d.kv*d.dim, d.hidden)
		mat(p+"v", d.kv*d.dim, d.hidden)
		mat(p+"o", d.hidden, d.heads*d.dim)
		mat(p+"gate", d.mlp, d.hidden)
		mat(p+"up", d.mlp, d.hidden)
		mat(p+"down", d.hidden, d.mlp)
	}
	g := make([]float64, 2*d.hidden)
	for i := range g {
		g[i] = 1 + 0.1*r.NormFloat64()
	}
	w["gain"] = mil.NewFloats(mil.Float16, []int{len(g)}, g...)
	return w
}

// build makes the function of T tokens. Inputs: ids [T], mask [1,1,T,C+T],
// cos and sin [1,1,T,dim], keys and values [layers,kv,C,dim].
func (d decoderSize) build(t testing.TB, name string, T int, w map[string]*mil.Literal) *mil.Function {
	b := mil.NewBuilder(name, mil.CoreML8)
	f16 := func(shape ...int) mil.TensorType { return mil.T(mil.Float16, shape...) }
	ids := b.Input("ids", mil.T(mil.Int32, T))
	mask := b.Input("mask", f16(1, 1, T, d.context+T))
	cos, sin := b.Input("cos", f16(1, 1, T, d.dim)), b.Input("sin", f16(1, 1, T, d.dim))
	keys, values := b.Input("keys", f16(d.layers, d.kv, d.context, d.dim)), b.Input("values", f16(d.layers, d.kv, d.context, d.dim))
	cut := func(n string, x *mil.Value, axis, from, to int) *mil.Value {
		t, _ := x.Tensor()
		begin, end := make([]int, t.Rank()), slices.Clone(t.Shape)
		begin[axis], end[axis] = from, to
		return b.Op("slice_by_index", n, mil.Args{"x": x, "begin": begin, "end": end})
	}
	norm := func(n string, x *mil.Value) *mil.Value {
		neg := b.Op("mul", n+"_neg", mil.Args{"x": x, "y": -1.0})
		pair := b.Op("concat", n+"_pair", mil.Args{"values": []*mil.Value{x, neg}, "axis": 2})
		ln := b.Op("layer_norm", n+"_ln", mil.Args{"x": pair, "axes": []int{2}, "gamma": b.Const(n+"_g", w["gain"]), "epsilon": 1e-6})
		return cut(n, ln, 2, 0, d.hidden)
	}
	linear := func(n, weight string, x *mil.Value) *mil.Value {
		return b.Op("linear", n, mil.Args{"x": x, "weight": b.Const(n+"_w", w[weight])})
	}
	rotate := func(n string, x *mil.Value) *mil.Value {
		lo, hi := cut(n+"_lo", x, 3, 0, d.dim/2), cut(n+"_hi", x, 3, d.dim/2, d.dim)
		turned := b.Op("concat", n+"_turned", mil.Args{"values": []*mil.Value{b.Op("mul", n+"_neg", mil.Args{"x": hi, "y": -1.0}), lo}, "axis": 3})
		return b.Op("add", n, mil.Args{"x": b.Op("mul", n+"_c", mil.Args{"x": x, "y": cos}), "y": b.Op("mul", n+"_s", mil.Args{"x": turned, "y": sin})})
	}
	x := b.Op("gather", "embed", mil.Args{"x": b.Const("embed_w", w["embed"]), "indices": ids, "axis": 0})
	x = b.Op("reshape", "start", mil.Args{"x": x, "shape": []int{1, T, d.hidden}})
	var newK, newV []*mil.Value
	rows := d.heads / d.kv * T
	for i := range d.layers {
		p := fmt.Sprintf("l%d_", i)
		h := norm(p+"norm", x)
		head := func(what string, n int) *mil.Value {
			v := b.Op("reshape", p+what+"_heads", mil.Args{"x": linear(p+what+"_proj", p+what, h), "shape": []int{1, T, n, d.dim}})
			return b.Op("transpose", p+what+"_t", mil.Args{"x": v, "perm": []int{0, 2, 1, 3}})
		}
		q, k, v := rotate(p+"q_rot", head("q", d.heads)), rotate(p+"k_rot", head("k", d.kv)), head("v", d.kv)
		newK, newV = append(newK, k), append(newV, v)
		q = b.Op("mul", p+"q_scaled", mil.Args{"x": q, "y": 1 / math.Sqrt(float64(d.dim))})
		q = b.Op("reshape", p+"q_rows", mil.Args{"x": q, "shape": []int{1, d.kv, rows, d.dim}})
		s0 := b.Op("matmul", p+"s0", mil.Args{"x": q, "y": cut(p+"keys", keys, 0, i, i+1), "transpose_y": true})
		s1 := b.Op("matmul", p+"s1", mil.Args{"x": q, "y": k, "transpose_y": true})
		s := b.Op("concat", p+"scores", mil.Args{"values": []*mil.Value{s0, s1}, "axis": 3})
		s = b.Op("reshape", p+"by_head", mil.Args{"x": s, "shape": []int{d.kv, rows / T, T, d.context + T}})
		s = b.Op("softmax", p+"probs", mil.Args{"x": b.Op("add", p+"masked", mil.Args{"x": s, "y": mask}), "axis": -1})
		s = b.Op("reshape", p+"by_row", mil.Args{"x": s, "shape": []int{1, d.kv, rows, d.context + T}})
		o0 := b.Op("matmul", p+"o0", mil.Args{"x": cut(p+"p0", s, 3, 0, d.context), "y": cut(p+"values", values, 0, i, i+1)})
		o1 := b.Op("matmul", p+"o1", mil.Args{"x": cut(p+"p1", s, 3, d.context, d.context+T), "y": v})
		o := b.Op("reshape", p+"mix", mil.Args{"x": b.Op("add", p+"o01", mil.Args{"x": o0, "y": o1}), "shape": []int{1, d.heads, T, d.dim}})
		o = b.Op("reshape", p+"flat", mil.Args{"x": b.Op("transpose", p+"mix_t", mil.Args{"x": o, "perm": []int{0, 2, 1, 3}}), "shape": []int{1, T, d.heads * d.dim}})
		x = b.Op("add", p+"mid", mil.Args{"x": x, "y": linear(p+"attn_out", p+"o", o)})
		h = norm(p+"mlp_norm", x)
		g := b.Op("gelu", p+"act", mil.Args{"x": linear(p+"gate_proj", p+"gate", h), "mode": "TANH_APPROXIMATION"})
		g = b.Op("mul", p+"gated", mil.Args{"x": g, "y": linear(p+"up_proj", p+"up", h)})
		x = b.Op("add", p+"out", mil.Args{"x": x, "y": linear(p+"mlp_out", p+"down", g)})
	}
	logits := linear("head", "embed", norm("final", x))
	b.Output("logits", logits)
	b.Output("token", b.Op("reduce_argmax", "argmax", mil.Args{"x": logits, "axis": -1}))
	b.Output("new_keys", b.Op("concat", "nk", mil.Args{"values": newK, "axis": 0}))
	b.Output("new_values", b.Op("concat", "nv", mil.Args{"values": newV, "axis": 0}))
	f, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// inputs makes the inputs for tokens at positions from on, over a cache that
// holds the positions before.
func (d decoderSize) inputs(tokens []int32, from int, keys, values *Tensor) map[string]*Tensor {
	T := len(tokens)
	mask := NewTensor(mil.Float16, 1, 1, T, d.context+T)
	cos, sin := NewTensor(mil.Float16, 1, 1, T, d.dim), NewTensor(mil.Float16, 1, 1, T, d.dim)
	for i := range T {
		row := mask.F[i*(d.context+T):][:d.context+T]
		for j := range row {
			if j >= from && j < d.context || j > d.context+i {
				row[j] = -1e4
			}
		}
		for j := range d.dim {
			s, c := math.Sincos(float64(from+i) * math.Pow(1e4, -2*float64(j%(d.dim/2))/float64(d.dim)))
			cos.F[i*d.dim+j], sin.F[i*d.dim+j] = float32(c), float32(s)
		}
	}
	return map[string]*Tensor{
		"ids":  {DType: mil.Int32, Shape: []int{T}, I: tokens},
		"mask": mask, "cos": cos, "sin": sin, "keys": keys, "values": values,
	}
}

func (d decoderSize) cache() (keys, values *Tensor) {
	s := []int{d.layers, d.kv, d.context, d.dim}
	return NewTensor(mil.Float16, s...), NewTensor(mil.Float16, s...)
}

// commit puts new keys or values [layers,kv,T,dim] into a cache.
func (d decoderSize) commit(cache, added *Tensor, from int) {
	T := added.Shape[2]
	for r := range d.layers * d.kv {
		copy(cache.F[(r*d.context+from)*d.dim:], added.F[r*T*d.dim:(r+1)*T*d.dim])
	}
}

// serial runs tokens through the function one by one and returns the logits.
func (d decoderSize) serial(t testing.TB, in *Instance, tokens []int32, opts ...RunOption) [][]float32 {
	keys, values := d.cache()
	var logits [][]float32
	for i, tok := range tokens {
		out, err := in.Run("decode", d.inputs([]int32{tok}, i, keys, values), opts...)
		if err != nil {
			t.Fatal(err)
		}
		logits = append(logits, slices.Clone(out["logits"].F))
		d.commit(keys, out["new_keys"], i)
		d.commit(values, out["new_values"], i)
	}
	return logits
}

func (d decoderSize) program(t testing.TB) *mil.Program {
	w := d.weights()
	p := mil.NewProgram()
	p.Functions["decode"] = d.build(t, "decode", 1, w)
	p.Functions["prefill"] = d.build(t, "prefill", 7, w)
	return p
}

var story = []int32{5, 17, 130, 2, 99, 64, 31}

func TestDecoderGivesTheSameBitsSeriallyBatchedAndThreaded(t *testing.T) {
	d := tinyDecoder
	p := d.program(t)
	for _, mode := range []Mode{Typed, FP32} {
		var first [][]float32
		for _, threads := range []int{1, 2, 3} {
			pr := load(t, p, Options{Mode: mode, Threads: threads})
			got := d.serial(t, pr.New(), story)
			if first == nil {
				first = got
			}
			keys, values := d.cache()
			out, err := pr.New().Run("prefill", d.inputs(story, 0, keys, values))
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if !slices.Equal(got[i], first[i]) {
					t.Fatalf("%v: token %d differs with %d threads", mode, i, threads)
				}
				// Prefill sees the new tokens after the cache instead of in it, so
				// sums of probabilities and mixes are in another order.
				diff := maxDiff(got[i], out["logits"].F[i*d.vocab:(i+1)*d.vocab])
				if lim := map[Mode]float64{Typed: 0.02, FP32: 1e-5}[mode]; diff > lim {
					t.Errorf("%v: token %d of prefill is off by %g", mode, i, diff)
				}
			}
		}
	}
}

func maxDiff(a, b []float32) (d float64) {
	for i := range a {
		d = math.Max(d, math.Abs(float64(a[i]-b[i])))
	}
	return d
}

func TestFusedEqualsUnfused(t *testing.T) {
	d := tinyDecoder
	p := d.program(t)
	fused, plain := load(t, p, Options{}), load(t, p, Options{NoFusion: true})
	for _, fn := range fused.Functions() {
		found := map[string]int{}
		for _, in := range fused.funcs[fn].code.instrs {
			if in.pattern != "" {
				found[in.pattern]++
			}
		}
		want := map[string]int{"rms_norm": 2*d.layers + 1, "attention": d.layers, "rope": 2 * d.layers, "gated": d.layers, "linears": d.layers}
		if !maps.Equal(found, want) {
			t.Errorf("%s: patterns %v, want %v", fn, found, want)
		}
	}
	want := d.serial(t, plain.New(), story)
	got := d.serial(t, fused.New(), story)
	seen := map[string]bool{}
	tapped := d.serial(t, fused.New(), story, WithTap(func(n string, _ *Tensor) { seen[n] = true }))
	for i := range want {
		if diff := maxDiff(got[i], want[i]); diff > 0.01 {
			t.Errorf("token %d: fused is off by %g", i, diff)
		}
		if diff := maxDiff(tapped[i], want[i]); diff != 0 {
			t.Errorf("token %d: a run with a tap is off by %g", i, diff)
		}
	}
	for _, n := range []string{"l0_norm_neg", "l0_norm_pair", "l0_norm_ln", "l0_norm", "l1_masked", "logits"} {
		if !seen[n] {
			t.Errorf("the tap did not see %s", n)
		}
	}
}

func TestDecodeStepDoesNotAllocate(t *testing.T) {
	d := tinyDecoder
	in := load(t, d.program(t), Options{Threads: 1}).New()
	keys, values := d.cache()
	args := d.inputs(story[:1], 0, keys, values)
	run := func() {
		if _, err := in.Run("decode", args); err != nil {
			t.Fatal(err)
		}
	}
	alloctest.Zero(t, 20, run)
}

func TestDecodersRunConcurrently(t *testing.T) {
	d := tinyDecoder
	pr := load(t, d.program(t), Options{Threads: 2})
	want := d.serial(t, pr.New(), story)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			in := pr.New()
			for range 3 {
				for i, got := range d.serial(t, in, story) {
					if !slices.Equal(got, want[i]) {
						t.Errorf("token %d differs beside other instances", i)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// gemmaDecoder has the dimensions of Gemma 3 270M, a cache of 512 slots.
var gemmaDecoder = decoderSize{layers: 18, hidden: 640, heads: 4, kv: 1, dim: 256, mlp: 2048, vocab: 262144, context: 512}

func benchDecoder(b *testing.B, T int) {
	d := gemmaDecoder
	p := mil.NewProgram()
	p.Functions["f"] = d.build(b, "f", T, d.weights())
	pr, err := Load(p, Options{})
	if err != nil {
		b.Fatal(err)
	}
	in := pr.New()
	keys, values := d.cache()
	tokens := make([]int32, T)
	for i := range tokens {
		tokens[i] = int32(i * 1000 % d.vocab)
	}
	args := d.inputs(tokens, 100, keys, values)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := in.Run("f", args); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(T*b.N)/b.Elapsed().Seconds(), "tok/s")
}

func BenchmarkDecode(b *testing.B)    { benchDecoder(b, 1) }
func BenchmarkPrefill64(b *testing.B) { benchDecoder(b, 64) }
