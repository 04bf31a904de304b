package lint

import (
	"math"
	"slices"
	"testing"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/models"
)

// half is a short way to write an fp16 type.
func half(shape ...int) mil.TensorType { return mil.T(mil.Float16, shape...) }

// build makes a program of one function, main.
func build(t *testing.T, f func(b *mil.Builder)) *mil.Program {
	t.Helper()
	b := mil.NewBuilder("main", mil.CoreML8)
	f(b)
	fn, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	p := mil.NewProgram()
	p.Functions["main"] = fn
	return p
}

// apart keeps equal contents apart, as a writer without sharing would.
type apart struct{ *mil.Literal }

func floats(shape []int, at func(i int) float64) *mil.Literal {
	v := make([]float64, mil.Volume(shape))
	for i := range v {
		v[i] = at(i)
	}
	return mil.NewFloats(mil.Float16, shape, v...)
}

func ramp(shape ...int) *mil.Literal {
	return floats(shape, func(i int) float64 { return float64(i%7) / 8 })
}

// clean is a program that no rule has anything against.
func clean(b *mil.Builder) {
	x := b.Input("x", half(1, 8))
	b.Output("y", b.Op("silu", "act", mil.Args{"x": x}))
}

func quantized(b *mil.Builder, bits mil.DType, blocks int) {
	x := b.Input("x", half(1, 64))
	w := b.Op("constexpr_blockwise_shift_scale", "w", mil.Args{
		"data":  mil.Inline(mil.NewInts(bits, []int{8, 64}, make([]int, 8*64)...)),
		"scale": mil.Inline(ramp(8, blocks)),
	})
	b.Output("y", b.Op("linear", "proj", mil.Args{"x": x, "weight": w}))
}

func palette(b *mil.Builder, bits mil.DType, groups []int, entries mil.Const) {
	x := b.Input("x", half(1, 64))
	if entries == nil {
		entries = ramp(append(slices.Clone(groups), 1<<bits.Bits(), 1)...)
	}
	w := b.Op("constexpr_lut_to_dense", "w", mil.Args{
		"indices": mil.Inline(mil.NewInts(bits, []int{8, 64}, make([]int, 8*64)...)),
		"lut":     mil.Inline(entries),
	})
	b.Output("y", b.Op("linear", "proj", mil.Args{"x": x, "weight": w}))
}

// counter updates a state of the given shape at slot pos.
func counter(b *mil.Builder, shape ...int) {
	x := b.Input("x", half(shape[0], 1, shape[2]))
	s := b.State("cache", half(shape...))
	old := b.Op("read_state", "old", mil.Args{"input": s})
	b.Output("y", b.Op("reduce_sum", "sum", mil.Args{"x": old, "axes": []int{1}}))
	b.Op("write_state", "write", mil.Args{"input": s, "data": b.Op("slice_update", "updated", mil.Args{
		"x": old, "update": x, "begin": []int{0, 3, 0}, "end": []int{shape[0], 4, shape[2]}})})
}

// ruleCases has, for every rule, a program that breaks it.
var ruleCases = []struct {
	rule  string
	build func(b *mil.Builder)
	// after changes what a builder would not allow.
	after func(s *subject)
	// n is the number of places, if not 1.
	n int
}{
	{rule: "program", build: clean, after: func(s *subject) {
		out := s.chunks[0].program.Functions["main"].Body.Outputs[0]
		out.Type = half(1, 9)
	}},
	{rule: "rank", build: func(b *mil.Builder) {
		b.Output("y", b.Op("silu", "act", mil.Args{"x": b.Input("x", half(1, 1, 1, 1, 8))}))
	}, after: func(s *subject) {
		f := s.chunks[0].program.Functions["main"]
		f.Inputs[0].Type = half(1, 1, 1, 1, 1, 8)
		f.Body.Outputs[0].Type = half(1, 1, 1, 1, 1, 8)
	}, n: 2},
	{rule: "state-type", build: func(b *mil.Builder) { counter(b, 2, 8, 32) }, after: func(s *subject) {
		f := s.chunks[0].program.Functions["main"]
		f.Input("cache").Type = mil.StateType{Tensor: mil.T(mil.Float32, 2, 8, 32)}
	}},
	{rule: "reserved-name", build: clean, after: func(s *subject) {
		s.chunks[0].program.Functions["main"].Inputs[0].Name = "tensor"
	}},
	{rule: "output-alias", build: clean, after: func(s *subject) {
		f := s.chunks[0].program.Functions["main"]
		f.Body.Outputs = append(f.Body.Outputs, f.Inputs[0])
	}},
	{rule: "output-feeds-state", build: func(b *mil.Builder) {
		x := b.Input("x", half(1, 32))
		s := b.State("cache", half(1, 32))
		sum := b.Op("add", "sum", mil.Args{"x": x, "y": b.Op("read_state", "old", mil.Args{"input": s})})
		b.Output("y", sum)
		b.Op("write_state", "write", mil.Args{"input": s, "data": b.Op("mul", "twice", mil.Args{"x": sum, "y": 2.0})})
	}},
	{rule: "emission", build: clean, after: func(s *subject) {
		f := s.chunks[0].program.Functions["main"]
		f.Body.Ops[len(f.Body.Ops)-1].Outputs[0].Name = "1y"
	}},
	{rule: "empty-program", build: clean, after: func(s *subject) {
		f := s.chunks[0].program.Functions["main"]
		f.Body.Ops, f.Body.Outputs = nil, f.Inputs
	}},
	{rule: "dynamic-shape", build: func(b *mil.Builder) {
		b.Output("y", b.Op("silu", "act", mil.Args{"x": b.Input("x", half(1, mil.Unknown))}))
	}},
	{rule: "dynamic-state", build: func(b *mil.Builder) { counter(b, 2, 8, 32) }, after: func(s *subject) {
		s.chunks[0].features = map[string]mlpackage.Interface{"main": {Inputs: []mlpackage.Feature{
			{Name: "x", Type: half(2, 1, 32), Ranges: []mlpackage.Range{{Min: 1, Max: 2}, {Min: 1, Max: 1}, {Min: 32, Max: 32}}},
		}}}
	}},
	{rule: "unknown-dimension", build: func(b *mil.Builder) {
		b.Output("y", b.Op("silu", "act", mil.Args{"x": b.Input("x", half(1, mil.Unknown))}))
	}},
	{rule: "rank-5", build: func(b *mil.Builder) {
		b.Output("y", b.Op("silu", "act", mil.Args{"x": b.Input("x", half(1, 1, 1, 1, 8))}))
	}},
	{rule: "long-axis", build: func(b *mil.Builder) {
		b.Output("y", b.Op("linear", "head", mil.Args{"x": b.Input("x", half(1, 2)), "weight": ramp(65537, 2)}))
	}},
	{rule: "index-width", build: func(b *mil.Builder) {
		x := b.Input("x", half(1, 65537))
		// The builder refuses uint16 here; a cast does the same harm.
		i := b.Op("reduce_argmax", "best", mil.Args{"x": x, "axis": 1})
		narrow := b.Op("cast", "narrow", mil.Args{"x": i, "dtype": "uint16"})
		b.Output("y", b.Op("cast", "wide", mil.Args{"x": narrow, "dtype": "int32"}))
	}},
	{rule: "index-operand", build: func(b *mil.Builder) {
		i := b.Op("cast", "narrow", mil.Args{"x": b.Input("ids", mil.T(mil.Int32, 1)), "dtype": "int16"})
		b.Output("y", b.Op("gather", "rows", mil.Args{"x": ramp(32769, 1), "indices": i}))
	}},
	{rule: "topk-and-argmax", build: func(b *mil.Builder) {
		x := b.Input("x", half(1, 8))
		b.Output("top", b.OpN("topk", "top", mil.Args{"x": x, "k": 2})[1])
		b.Output("best", b.Op("reduce_argmax", "best", mil.Args{"x": x}))
	}},
	{rule: "state-align", build: func(b *mil.Builder) { counter(b, 2, 8, 24) }},
	{rule: "state-count", build: func(b *mil.Builder) {
		x := b.Input("x", half(1, 32))
		for _, n := range []string{"a", "c", "d"} {
			s := b.State(n, half(1, 32))
			x = b.Op("add", "sum", mil.Args{"x": x, "y": b.Op("read_state", n+"_old", mil.Args{"input": s})})
		}
		b.Output("y", x)
	}},
	{rule: "state-functions", build: func(b *mil.Builder) { counter(b, 2, 8, 32) }, after: func(s *subject) {
		s.chunks[0].functions = append(s.chunks[0].functions, s.chunks[0].functions[0])
	}},
	{rule: "state-write-rows", build: func(b *mil.Builder) {
		x := b.Input("x", half(1, 33, 32))
		s := b.State("cache", half(1, 64, 32))
		old := b.Op("read_state", "old", mil.Args{"input": s})
		b.Output("y", b.Op("reduce_sum", "sum", mil.Args{"x": old, "axes": []int{1}}))
		b.Op("write_state", "write", mil.Args{"input": s, "data": b.Op("slice_update", "updated", mil.Args{
			"x": old, "update": x, "begin": []int{0, 0, 0}, "end": []int{1, 33, 32}})})
	}},
	{rule: "state-shift", build: func(b *mil.Builder) {
		x := b.Input("x", half(1, 1, 32))
		s := b.State("cache", half(1, 8, 32))
		old := b.Op("read_state", "old", mil.Args{"input": s})
		b.Output("y", b.Op("reduce_sum", "sum", mil.Args{"x": old, "axes": []int{1}}))
		rest := b.Op("slice_by_index", "rest", mil.Args{"x": old, "begin": []int{0, 1, 0}, "end": []int{1, 8, 32}})
		b.Op("write_state", "write", mil.Args{"input": s,
			"data": b.Op("concat", "shifted", mil.Args{"values": []*mil.Value{rest, x}, "axis": 1})})
	}},
	{rule: "state-4bit", build: func(b *mil.Builder) {
		palette(b, mil.UInt4, []int{1, 1}, nil)
		s := b.State("cache", half(1, 32))
		b.Output("z", b.Op("exp", "seen", mil.Args{"x": b.Op("read_state", "old", mil.Args{"input": s})}))
	}},
	{rule: "weights-2gib", build: clean, after: func(s *subject) { s.chunks[0].weights = 2<<30 + 1 }},
	{rule: "weights-1400mb", build: clean, after: func(s *subject) { s.chunks[0].weights = 2 << 30 }},
	{rule: "weights-950mb", build: clean, after: func(s *subject) { s.chunks[0].weights = 1_400_000_000 }},
	{rule: "layers", build: clean, after: func(s *subject) { s.chunks[0].layers = 15 }},
	{rule: "functions", build: clean, after: func(s *subject) {
		f := s.chunks[0].functions[0]
		s.chunks[0].functions = []*function{f, f, f, f}
	}},
	{rule: "duplicate-weights", build: func(b *mil.Builder) {
		x := b.Input("x", half(1, 64))
		x = b.Op("linear", "one", mil.Args{"x": x, "weight": b.Const("w1", apart{ramp(64, 64)})})
		b.Output("y", b.Op("linear", "two", mil.Args{"x": x, "weight": b.Const("w2", apart{ramp(64, 64)})}))
	}},
	{rule: "duplicate-chunks", build: func(b *mil.Builder) {
		b.Output("y", b.Op("linear", "head", mil.Args{"x": b.Input("x", half(1, 512)), "weight": b.Const("w", ramp(1024, 512))}))
	}, after: func(s *subject) {
		again := chunkOf("chunk_02", 0, s.chunks[0].program)
		s.chunks = append(s.chunks, again)
	}},
	{rule: "nan", build: addConst(math.NaN())},
	{rule: "infinity", build: addConst(math.Inf(-1))},
	{rule: "fp16-limit", build: addConst(-65504)},
	{rule: "mask-value", build: clean, after: func(s *subject) {
		s.contract = &chunking.Contract{Mask: chunking.MaskInfo{Blocked: -65504}}
	}},
	{rule: "epsilon-zero", build: func(b *mil.Builder) {
		b.Output("y", b.Op("log", "l", mil.Args{"x": b.Input("x", half(8)), "epsilon": mil.NewFloats(mil.Float16, nil, 1e-12)}))
	}},
	{rule: "epsilon-subnormal", build: func(b *mil.Builder) {
		b.Output("y", b.Op("layer_norm", "n", mil.Args{"x": b.Input("x", half(1, 8)), "axes": []int{1}, "epsilon": 1e-6}))
	}},
	{rule: "fp32-ops", build: func(b *mil.Builder) {
		x := b.Op("exp", "up", mil.Args{"x": b.Input("x", mil.T(mil.Float32, 8))})
		b.Output("y", b.Op("silu", "act", mil.Args{"x": x}))
	}, n: 2},
	{rule: "casts", build: func(b *mil.Builder) {
		b.Output("y", b.Op("cast", "wide", mil.Args{"x": b.Input("x", half(8)), "dtype": "fp32"}))
	}},
	{rule: "gather-nd", build: func(b *mil.Builder) {
		b.Output("y", b.Op("gather_nd", "picked", mil.Args{"x": b.Input("x", half(4, 8)), "indices": b.Input("at", mil.T(mil.Int32, 1, 1))}))
	}},
	{rule: "cpu-op", build: func(b *mil.Builder) {
		b.Output("y", b.Op("gather", "rows", mil.Args{"x": b.Input("x", half(4, 8)), "indices": b.Input("at", mil.T(mil.Int32, 1))}))
	}},
	{rule: "int-op", build: func(b *mil.Builder) {
		b.Output("y", b.Op("add", "next", mil.Args{"x": b.Input("at", mil.T(mil.Int32, 1)), "y": 1}))
	}},
	{rule: "depthwise-conv", build: func(b *mil.Builder) {
		b.Output("y", b.Op("conv", "c", mil.Args{"x": b.Input("x", half(1, 4, 8)), "weight": ramp(4, 1, 3), "groups": 4}))
	}},
	{rule: "sdpa", build: func(b *mil.Builder) {
		q := b.Input("q", half(1, 2, 4))
		b.Output("y", b.Op("scaled_dot_product_attention", "att", mil.Args{"query": q, "key": b.Input("k", half(1, 3, 4)), "value": b.Input("v", half(1, 3, 4))}))
	}},
	{rule: "block-int4", build: func(b *mil.Builder) { quantized(b, mil.Int4, 2) }},
	{rule: "block-int8", build: func(b *mil.Builder) { quantized(b, mil.Int8, 2) }},
	{rule: "channel-scale-palette", build: func(b *mil.Builder) { palette(b, mil.UInt4, []int{1, 64}, nil) }},
	{rule: "tried-low-bit-palette", build: func(b *mil.Builder) { palette(b, mil.UInt2, []int{8, 1}, nil) }},
	{rule: "tried-int8-table", build: func(b *mil.Builder) {
		x := b.Input("x", half(1, 64))
		lut := b.Op("constexpr_blockwise_shift_scale", "table", mil.Args{
			"data":  mil.Inline(mil.NewInts(mil.Int8, []int{1, 1, 16, 1}, make([]int, 16)...)),
			"scale": mil.Inline(ramp(1, 1, 1, 1)),
		})
		w := b.Op("constexpr_lut_to_dense", "w", mil.Args{
			"indices": mil.Inline(mil.NewInts(mil.UInt4, []int{8, 64}, make([]int, 8*64)...)), "lut": lut})
		b.Output("y", b.Op("linear", "proj", mil.Args{"x": x, "weight": w}))
	}},
	{rule: "tried-block-palette", build: func(b *mil.Builder) { palette(b, mil.UInt4, []int{1, 2}, nil) }},
	{rule: "tried-sparse-palette", build: func(b *mil.Builder) {
		x := b.Input("x", half(1, 8))
		mask := make([]int, 64)
		for i := range 32 {
			mask[2*i] = 1
		}
		parts := b.OpN("constexpr_lut_to_sparse", "parts", mil.Args{
			"indices_mask":         mil.Inline(mil.NewInts(mil.UInt1, []int{8, 8}, mask...)),
			"indices_nonzero_data": mil.Inline(mil.NewInts(mil.UInt4, []int{32}, make([]int, 32)...)),
			"lut":                  mil.Inline(ramp(1, 1, 16, 1)),
		})
		w := b.Op("constexpr_sparse_to_dense", "w", mil.Args{"mask": parts[0], "nonzero_data": parts[1]})
		b.Output("y", b.Op("linear", "proj", mil.Args{"x": x, "weight": w}))
	}},
	{rule: "tried-quantized-activations", build: func(b *mil.Builder) {
		q := b.Op("quantize", "q", mil.Args{"input": b.Input("x", half(1, 8)), "scale": mil.NewFloats(mil.Float16, nil, 0.5), "output_dtype": "int8"})
		b.Output("y", b.Op("dequantize", "d", mil.Args{"input": q, "scale": mil.NewFloats(mil.Float16, nil, 0.5)}))
	}},
	{rule: "tried-one-stateful-program", build: func(b *mil.Builder) { counter(b, 2, 8, 32) }, after: func(s *subject) {
		s.chunks[0].layers = 20
	}},
	{rule: "tried-one-program", build: clean, after: declared(0, chunking.KVTensor)},
	{rule: "tried-two-programs", build: clean, after: declared(0, chunking.KVTensor, 15)},
	{rule: "tried-thick-first-program", build: clean, after: declared(15, chunking.KVTensor, 15, 25)},
	{rule: "tried-states-and-rows", build: clean, after: declared(0, chunking.KVState, 8, 25)},
	{rule: "tried-many-prefills", build: clean, after: declared(0, chunking.KVTensor, 8, 25)},
	{rule: "tried-argmax-and-topk", build: clean, after: declared(0, chunking.KVTensor, 8, 25)},
}

// declared gives a subject the contract of a model of 35 layers, cut after some
// of them. own layers have keys of their own, 0: all.
func declared(own int, kv string, cuts ...int) func(*subject) {
	return func(s *subject) {
		c := &chunking.Contract{KV: kv, Model: chunking.ModelInfo{Layers: 35, Vocab: 262144}}
		for l := range 35 {
			if own > 0 {
				c.Model.KVSource = append(c.Model.KVSource, min(l, own-1))
			}
		}
		if own > 0 {
			c.PerLayer = &chunking.PerLayer{Dim: 256}
		}
		var fns []chunking.Function
		for _, n := range []int{1, 32, 64, 128} {
			f := chunking.Function{Kind: chunking.Prefill, T: n, Outputs: []chunking.Port{{Role: models.TokenID}, {Role: models.TopIDs}}}
			if n == 1 {
				f.Kind = chunking.Decode
			}
			fns = append(fns, f)
		}
		first := 0
		for _, last := range append(cuts, 35) {
			c.Chunks = append(c.Chunks, chunking.Chunk{First: first, Last: last, Functions: fns})
			first = last
		}
		s.contract = c
	}
}

// addConst adds a vector that holds x among harmless values.
func addConst(x float64) func(*mil.Builder) {
	return func(b *mil.Builder) {
		c := floats([]int{8}, func(i int) float64 {
			if i == 5 {
				return x
			}
			return 0.5
		})
		b.Output("y", b.Op("add", "sum", mil.Args{"x": b.Input("x", half(8)), "y": c}))
	}
}

// check runs all rules over a program.
func check(t *testing.T, p *mil.Program, after func(*subject)) []Finding {
	t.Helper()
	s := &subject{chunks: []*chunk{chunkOf("chunk_01", 0, p)}}
	if after != nil {
		after(s)
		// What changed the program must be seen by the verifier and the walk.
		fresh := chunkOf("chunk_01", s.chunks[0].layers, p)
		if len(s.chunks[0].functions) == len(fresh.functions) {
			fresh.weights, fresh.features = s.chunks[0].weights, s.chunks[0].features
			s.chunks[0] = fresh
		}
	}
	for _, c := range s.chunks {
		if err := c.scan(); err != nil {
			t.Fatal(err)
		}
	}
	return merge(s.apply(Rules()))
}

// TestRules breaks every rule once. A rule that its case does not break, and a
// rule without a case, fail.
func TestRules(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range ruleCases {
		covered[c.rule] = true
		t.Run(c.rule, func(t *testing.T) {
			found := check(t, build(t, c.build), c.after)
			i := slices.IndexFunc(found, func(f Finding) bool { return f.Rule == c.rule })
			if i < 0 {
				t.Fatalf("rule %s found nothing; all findings: %+v", c.rule, found)
			}
			f := found[i]
			if want := max(c.n, 1); f.Count != want {
				t.Errorf("%d places, want %d: %+v", f.Count, want, f)
			}
			if f.Source == "" || f.Message == "" || f.Chunk == "" && c.rule != "mask-value" {
				t.Errorf("incomplete finding %+v", f)
			}
		})
	}
	seen := map[string]bool{}
	for _, r := range Rules() {
		if !covered[r.ID] {
			t.Errorf("rule %s has no test case", r.ID)
		}
		if seen[r.ID] {
			t.Errorf("rule %s is listed twice", r.ID)
		}
		seen[r.ID] = true
		checks := 0
		for _, set := range []bool{r.op != nil, r.function != nil, r.chunk != nil, r.whole != nil} {
			if set {
				checks++
			}
		}
		if checks != 1 || r.Statement == "" || r.Source == "" || r.Severity != Error && r.Severity != Warning && r.Severity != Info {
			t.Errorf("rule %s is incomplete: %d checks, severity %q", r.ID, checks, r.Severity)
		}
	}
}

// TestNearMisses holds programs just inside the limits.
func TestNearMisses(t *testing.T) {
	for name, c := range map[string]struct {
		build func(*mil.Builder)
		after func(*subject)
		allow []string // what else these programs may be told
	}{
		"clean": {build: clean},
		"argmax over 65536": {build: func(b *mil.Builder) {
			i := b.Op("reduce_argmax", "best", mil.Args{"x": b.Input("x", half(1, 65536)), "output_dtype": "uint16"})
			b.Output("y", b.Op("cast", "wide", mil.Args{"x": i, "dtype": "int32"}))
		}, allow: []string{"cpu-op", "int-op"}},
		"aligned state":   {build: func(b *mil.Builder) { counter(b, 2, 8, 64) }},
		"14 layers":       {build: clean, after: func(s *subject) { s.chunks[0].layers = 14 }},
		"950 MB":          {build: clean, after: func(s *subject) { s.chunks[0].weights = 950_000_000 }},
		"int4 a channel":  {build: func(b *mil.Builder) { quantized(b, mil.Int4, 1) }},
		"grouped palette": {build: func(b *mil.Builder) { palette(b, mil.UInt4, []int{8, 1}, nil) }},
		"mask":            {build: addConst(-1e4)},
		"negative zero":   {build: addConst(math.Copysign(0, -1))},
		"epsilon": {build: func(b *mil.Builder) {
			b.Output("y", b.Op("layer_norm", "n", mil.Args{"x": b.Input("x", half(1, 8)), "axes": []int{1}, "epsilon": 1e-4}))
		}},
		"constant gather_nd": {build: func(b *mil.Builder) {
			b.Output("y", b.Op("gather_nd", "picked", mil.Args{"x": b.Input("x", half(4, 8)), "indices": mil.NewInts(mil.Int32, []int{1, 1}, 2)}))
		}},
		"weight used twice": {build: func(b *mil.Builder) {
			x, w := b.Input("x", half(1, 64)), b.Const("w", ramp(64, 64))
			b.Output("y", b.Op("linear", "two", mil.Args{"x": b.Op("linear", "one", mil.Args{"x": x, "weight": w}), "weight": w}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range check(t, build(t, c.build), c.after) {
				if !slices.Contains(c.allow, f.Rule) {
					t.Errorf("%s %s: %s", f.Rule, f.Where(), f.Message)
				}
			}
		})
	}
}
