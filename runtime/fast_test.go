package runtime

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/internal/alloctest"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/mil"
)

// both runs a function with the kernels and with the general lowerers alone.
func both(t testing.TB, f *mil.Function, in map[string]*Tensor, o Options) (fast, general *Tensor) {
	t.Helper()
	p := mil.NewProgram()
	p.Functions[f.Name] = f
	for k := range 2 {
		pr := newProgram(p, o)
		if k == 1 {
			pr.fast = nil
		}
		if err := pr.lower(); err != nil {
			t.Fatal(err)
		}
		out, err := pr.New().Run(f.Name, in)
		if err != nil {
			t.Fatal(err)
		}
		fast, general = general, out["out"]
	}
	return fast, general
}

func randomTensor(r *rand.Rand, d mil.DType, shape ...int) *Tensor {
	t := NewTensor(d, shape...)
	for i := range t.F {
		t.F[i] = float32(r.NormFloat64())
	}
	roundTo(t)
	return t
}

// near says that two results agree to a unit in the last place of fp16, or to
// tol times the largest magnitude for fp32.
func near(a, b *Tensor, tol float64) bool {
	if a.DType != b.DType || !slices.Equal(a.Shape, b.Shape) || len(a.F) != len(b.F) || !slices.Equal(a.I, b.I) {
		return false
	}
	top := 0.0
	for _, v := range b.F {
		top = math.Max(top, math.Abs(float64(v)))
	}
	for i, v := range a.F {
		lim := tol * top
		if a.DType == mil.Float16 {
			lim += math.Abs(float64(v)) * 0x1p-10
		}
		if !(math.Abs(float64(v)-float64(b.F[i])) <= lim) {
			return false
		}
	}
	return true
}

func oneOp(t testing.TB, kind string, args mil.Args, inputs map[string]*Tensor) *mil.Function {
	t.Helper()
	b := mil.NewBuilder("main", mil.CoreML8)
	for _, n := range []string{"x", "y"} {
		if in, ok := inputs[n]; ok {
			args[n] = b.Input(n, mil.T(in.DType, in.Shape...))
		}
	}
	b.Output("out", b.Op(kind, "op", args))
	f, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestKernelsAgreeWithTheGeneralForms(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		d := rapid.SampledFrom([]mil.DType{mil.Float16, mil.Float32}).Draw(rt, "dtype")
		kind := rapid.SampledFrom([]string{"add", "sub", "mul", "matmul", "softmax", "silu", "gelu", "reduce_argmax", "reduce_max"}).Draw(rt, "kind")
		size := rapid.SampledFrom([]int{1, 1, 2, 3, 5, 17, 40})
		in, args := map[string]*Tensor{}, mil.Args{}
		shape := rapid.SliceOfN(size, 1, 4).Draw(rt, "shape")
		repeated := func(s []int) []int {
			s = slices.Clone(s)
			for i := range s {
				if rapid.Bool().Draw(rt, "repeat") {
					s[i] = 1
				}
			}
			return s[rapid.IntRange(0, len(s)-1).Draw(rt, "cut"):]
		}
		switch kind {
		case "add", "sub", "mul":
			in["x"], in["y"] = randomTensor(r, d, shape...), randomTensor(r, d, repeated(shape)...)
			if rapid.Bool().Draw(rt, "swap") {
				in["x"], in["y"] = in["y"], in["x"]
			}
		case "matmul":
			m, n, k := size.Draw(rt, "m"), size.Draw(rt, "n"), size.Draw(rt, "k")
			ys, trans := []int{k, n}, rapid.Bool().Draw(rt, "transpose")
			if trans {
				ys = []int{n, k}
			}
			batch := shape[:min(2, len(shape))]
			in["x"] = randomTensor(r, d, append(slices.Clone(batch), m, k)...)
			in["y"] = randomTensor(r, d, append(repeated(batch), ys...)...)
			if rapid.Bool().Draw(rt, "swap batch") && len(in["y"].Shape) == len(in["x"].Shape) {
				for i := range batch {
					in["x"].Shape[i], in["y"].Shape[i] = in["y"].Shape[i], in["x"].Shape[i]
				}
				in["x"], in["y"] = randomTensor(r, d, in["x"].Shape...), randomTensor(r, d, in["y"].Shape...)
			}
			args["transpose_y"] = trans
		case "gelu":
			args["mode"] = "TANH_APPROXIMATION"
			in["x"] = randomTensor(r, d, shape...)
		case "reduce_max":
			args["axes"], args["keep_dims"] = []int{len(shape) - 1}, rapid.Bool().Draw(rt, "keep")
			in["x"] = randomTensor(r, d, shape...)
		default:
			in["x"] = randomTensor(r, d, shape...)
		}
		f := oneOp(t, kind, args, in)
		fast, general := both(t, f, in, Options{Threads: 2})
		if !near(fast, general, 2e-6) {
			rt.Fatalf("%s of %v: %v, general form %v", kind, in, fast, general)
		}
	})
}

func TestMaximumOfNaN(t *testing.T) {
	nan := float32(math.NaN())
	in := map[string]*Tensor{"x": vec(mil.Float32, 1, 9, nan, 3, nan)}
	for _, kind := range []string{"reduce_argmax", "reduce_max"} {
		args := mil.Args{}
		if kind == "reduce_max" {
			args["axes"] = []int{0}
		}
		fast, general := both(t, oneOp(t, kind, args, in), in, Options{})
		if !slices.Equal(fast.I, general.I) || len(fast.F) != len(general.F) || len(fast.F) == 1 && fast.F[0] == fast.F[0] {
			t.Errorf("%s: %v %v, general form %v %v", kind, fast.F, fast.I, general.F, general.I)
		}
	}
}

// lazyConst is a constant that is not in memory.
type lazyConst struct{ mil.Const }

func TestLinearReadsWeightsWhereTheyLie(t *testing.T) {
	const n, k, rows = 530, 260, 3
	r := rand.New(rand.NewPCG(3, 4))
	w := randomHalves(r, 0.1, n, k)
	wide := make([]float64, n*k)
	for i := range wide {
		wide[i] = float64(half.ToF32(uint16(w.Data[2*i]) | uint16(w.Data[2*i+1])<<8))
	}
	bias := randomHalves(r, 1, n)
	ints := make([]int, n*k)
	scale := make([]float64, n*2)
	for i := range ints {
		ints[i] = r.IntN(256) - 128
	}
	for i := range scale {
		scale[i] = 1 / float64(100+r.IntN(100))
	}
	x := randomTensor(r, mil.Float16, 1, rows, k)
	for name, weight := range map[string]func(b *mil.Builder) *mil.Value{
		"fp16":      func(b *mil.Builder) *mil.Value { return b.Const("w", w) },
		"not there": func(b *mil.Builder) *mil.Value { return b.Const("w", lazyConst{w}) },
		"unaligned": func(b *mil.Builder) *mil.Value {
			odd := append(make([]byte, 1, len(w.Data)+1), w.Data...)
			return b.Const("w", &mil.Literal{T: w.T, Data: odd[1:]})
		},
		"int8": func(b *mil.Builder) *mil.Value {
			return b.Op("constexpr_blockwise_shift_scale", "w", mil.Args{
				"data":  mil.NewInts(mil.Int8, []int{n, k}, ints...),
				"scale": mil.NewFloats(mil.Float16, []int{n, 2}, scale...),
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := mil.NewBuilder("main", mil.CoreML8)
			in := b.Input("x", mil.T(mil.Float16, 1, rows, k))
			b.Output("out", b.Op("linear", "op", mil.Args{"x": in, "weight": weight(b), "bias": b.Const("bias", bias)}))
			f, err := b.Func()
			if err != nil {
				t.Fatal(err)
			}
			fast, general := both(t, f, map[string]*Tensor{"x": x}, Options{Threads: 2})
			if !near(fast, general, 1e-6) {
				t.Errorf("%v, general form %v", fast.F[:8], general.F[:8])
			}
			p := mil.NewProgram()
			p.Functions["main"] = f
			pr := load(t, p, Options{})
			for key, c := range pr.consts.tensors {
				if c.Len() >= n*k {
					t.Errorf("the weight was decoded: %s", key)
				}
			}
		})
	}
}

// A function with a large weight needs no memory of the weight's size.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float16, 1, 2, 64))
	w := b.Const("w", randomHalves(rand.New(rand.NewPCG(5, 6)), 0.1, 64, 64))
	h := x
	for range 4 {
		h = b.Op("linear", "proj", mil.Args{"x": h, "weight": w})
		h = b.Op("silu", "act", mil.Args{"x": h})
		h = b.Op("add", "sum", mil.Args{"x": h, "y": x})
		h = b.Op("softmax", "probs", mil.Args{"x": h})
		h = b.Op("matmul", "mix", mil.Args{"x": h, "y": h, "transpose_y": true})
		h = b.Op("matmul", "back", mil.Args{"x": h, "y": x})
	}
	b.Output("out", h)
	pr := load(t, program(t, b), Options{Threads: 1})
	in := pr.New()
	args := map[string]*Tensor{"x": randomTensor(rand.New(rand.NewPCG(7, 8)), mil.Float16, 1, 2, 64)}
	run := func() {
		if _, err := in.Run("main", args); err != nil {
			t.Fatal(err)
		}
	}
	alloctest.Zero(t, 20, run)
	buffers := 0
	for _, l := range in.mem.floats {
		buffers += len(l)
	}
	if buffers > 6 {
		t.Errorf("%d buffers for a chain of 24 ops", buffers)
	}
}

// Long rows are searched in pieces; the first of equal elements wins, and the
// first NaN before all.
func TestMaximumOfLongRows(t *testing.T) {
	const n = 3*pieceLen + 5
	nan := float32(math.NaN())
	rows := map[string]map[int]float32{
		"equal elements":  {pieceLen + 7: 50, 2*pieceLen + 1: 50, 3*pieceLen + 4: 50},
		"last":            {n - 1: 50},
		"first":           {0: 50, pieceLen: 50},
		"NaN after":       {3: 50, 2*pieceLen + 9: nan, 3 * pieceLen: nan},
		"only -Inf":       nil,
		"NaN in the rest": {n - 2: nan},
	}
	for name, set := range rows {
		t.Run(name, func(t *testing.T) {
			x := NewTensor(mil.Float32, 2, n)
			for i := range x.F {
				x.F[i] = float32(i % 41)
				if set == nil {
					x.F[i] = float32(math.Inf(-1))
				}
			}
			for i, v := range set {
				x.F[n+i] = v
			}
			in := map[string]*Tensor{"x": x}
			for _, kind := range []string{"reduce_argmax", "reduce_max"} {
				args := mil.Args{}
				if kind == "reduce_max" {
					args["axes"] = []int{1}
				}
				fast, general := both(t, oneOp(t, kind, args, in), in, Options{Threads: 3})
				if !slices.Equal(fast.I, general.I) || !sameBits(fast.F, general.F) {
					t.Errorf("%s: %v %v, general form %v %v", kind, fast.F, fast.I, general.F, general.I)
				}
			}
		})
	}
}
