package runtime

import (
	"math"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/mil"
)

// tester is what testing and rapid share.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// runOp executes one op of a program of its own. *Tensor arguments are
// run-time inputs, everything else is constant.
func runOp(t tester, opts Options, kind string, args mil.Args) []*Tensor {
	t.Helper()
	b := mil.NewBuilder("main", mil.CoreML8)
	in, bound := map[string]*Tensor{}, mil.Args{}
	names := make([]string, 0, len(args))
	for name := range args {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		bound[name] = args[name]
		if x, ok := args[name].(*Tensor); ok {
			bound[name] = b.Input(name+"_in", mil.T(x.DType, x.Shape...))
			in[name+"_in"] = x
		}
	}
	outs := b.OpN(kind, "op", bound)
	for i, o := range outs {
		if d := o.Type.(mil.TensorType).DType; !d.IsFloat() && d != mil.Int32 {
			o = b.Op("cast", "as_int", mil.Args{"x": o, "dtype": "int32"})
		}
		b.Output([]string{"out0", "out1"}[i], o)
	}
	fn, err := b.Func()
	if err != nil {
		t.Fatalf("%v", err)
	}
	p := mil.NewProgram()
	p.Functions["main"] = fn
	prog, err := Load(p, opts)
	if err != nil {
		t.Fatalf("%v", err)
	}
	got, err := prog.New().Run("", in)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var r []*Tensor
	for _, v := range fn.Body.Outputs {
		r = append(r, got[v.Name])
	}
	return r
}

func floatsOf(v ...float32) *Tensor { return &Tensor{DType: mil.Float32, Shape: []int{len(v)}, F: v} }
func intsOf(v ...int32) *Tensor     { return &Tensor{DType: mil.Int32, Shape: []int{len(v)}, I: v} }

// The corners that the operators' descriptions leave to convention: NumPy's
// for floats, wrapping for int32.
func TestElementwiseCorners(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	low := int32(math.MinInt32)
	for _, tt := range []struct {
		kind string
		args mil.Args
		want *Tensor
	}{
		{"floor_div", mil.Args{"x": floatsOf(7, -7, 7, -7, 1, 5, -1, 0), "y": floatsOf(2, 2, -2, -2, 0.1, 0, inf, -3)}, floatsOf(3, -4, -4, 3, 9, inf, -1, 0)},
		{"mod", mil.Args{"x": floatsOf(7, -7, 7, -7, 5, -1), "y": floatsOf(4, 4, -4, -4, 0, inf)}, floatsOf(3, 1, -1, -3, nan, inf)},
		{"floor_div", mil.Args{"x": intsOf(7, -7, 7, -7, 6, 1, low), "y": intsOf(2, 2, -2, -2, -3, 0, -1)}, intsOf(3, -4, -4, 3, -2, 0, low)},
		{"mod", mil.Args{"x": intsOf(7, -7, 7, -7, 6, 1), "y": intsOf(4, 4, -4, -4, -3, 0)}, intsOf(3, 1, -1, -3, 0, 0)},
		{"real_div", mil.Args{"x": intsOf(7, -7, 1, low), "y": intsOf(2, 2, 0, -1)}, intsOf(3, -3, 0, low)},
		{"pow", mil.Args{"x": intsOf(3, -1, -1, 2, 1, 46341), "y": intsOf(4, -3, -2, -1, -9, 2)}, intsOf(81, -1, 1, 0, 1, -2147479015)},
		{"mul", mil.Args{"x": intsOf(1 << 30), "y": intsOf(6)}, intsOf(low)},
		{"maximum", mil.Args{"x": floatsOf(nan, 1, -1), "y": floatsOf(2, nan, 4)}, floatsOf(nan, nan, 4)},
		{"minimum", mil.Args{"x": floatsOf(nan, 1, -1), "y": floatsOf(2, nan, 4)}, floatsOf(nan, nan, -1)},
		{"not_equal", mil.Args{"x": floatsOf(nan, 1), "y": floatsOf(nan, 1)}, intsOf(1, 0)},
		{"round", mil.Args{"x": floatsOf(0.5, 1.5, 2.5, -0.5, -1.5)}, floatsOf(0, 2, 2, 0, -2)},
		{"sign", mil.Args{"x": floatsOf(-3, 0, nan, inf)}, floatsOf(-1, 0, nan, 1)},
		{"abs", mil.Args{"x": intsOf(-3, low)}, intsOf(3, low)},
		{"relu", mil.Args{"x": floatsOf(-3, nan, 2)}, floatsOf(0, nan, 2)},
		{"softplus", mil.Args{"x": floatsOf(-200, 0, 200)}, floatsOf(0, math.Ln2, 200)},
		{"sigmoid", mil.Args{"x": floatsOf(-200, 200, -inf)}, floatsOf(0, 1, 0)},
		{"softmax", mil.Args{"x": floatsOf(3e38, -3e38, 3e38)}, floatsOf(0.5, 0, 0.5)},
		{"cast", mil.Args{"x": floatsOf(-1.9, 1.9, nan, 3e9, -3e9), "dtype": "int32"}, intsOf(-1, 1, 0, math.MaxInt32, low)},
		{"cast", mil.Args{"x": floatsOf(0, -0.5, nan), "dtype": "bool"}, intsOf(0, 1, 1)},
		{"cast", mil.Args{"x": intsOf(0, 16777217, 5), "dtype": "fp32"}, floatsOf(0, 16777216, 5)},
		{"reduce_argmax", mil.Args{"x": floatsOf(1, 3, nan, 3, nan)}, &Tensor{DType: mil.Int32, Shape: []int{}, I: []int32{2}}},
		{"reduce_argmin", mil.Args{"x": intsOf(4, 2, 7, 2)}, &Tensor{DType: mil.Int32, Shape: []int{}, I: []int32{1}}},
		{"reduce_mean", mil.Args{"x": intsOf(-3, -4)}, &Tensor{DType: mil.Int32, Shape: []int{}, I: []int32{-3}}},
		{"reduce_log_sum_exp", mil.Args{"x": floatsOf(1000, 1000)}, &Tensor{DType: mil.Float32, Shape: []int{}, F: []float32{1000 + math.Ln2}}},
		{"cumsum", mil.Args{"x": intsOf(math.MaxInt32, 1, 5)}, intsOf(math.MaxInt32, low, low+5)},
		{"cumsum", mil.Args{"x": floatsOf(1, 2, 4), "exclusive": true, "reverse": true}, floatsOf(6, 4, 0)},
	} {
		got := runOp(t, Options{}, tt.kind, tt.args)[0]
		if d := cmp.Diff(tt.want, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s(%v): (-want +got)\n%s", tt.kind, tt.args, d)
		}
	}
}

func TestCastNarrowsByWrapping(t *testing.T) {
	for d, want := range map[string][]int32{
		"int8": {-1, -128, 127, 0}, "uint8": {255, 128, 127, 0}, "int16": {-1, 128, 127, 0}, "uint16": {65535, 128, 127, 0},
	} {
		got := runOp(t, Options{}, "cast", mil.Args{"x": intsOf(-1, 128, 127, 65536), "dtype": d})[0]
		if !slices.Equal(got.I, want) {
			t.Errorf("%s: got %v, want %v", d, got.I, want)
		}
	}
}

func TestRunTimeValueWhereConstantIsNeeded(t *testing.T) {
	x := &mil.Value{Name: "x", Type: mil.T(mil.Float32, 2)}
	op := &mil.Op{Kind: "softmax", Name: "s", Args: []mil.Arg{
		{Param: "x", Values: []*mil.Value{x}},
		{Param: "axis", Values: []*mil.Value{{Name: "a", Type: mil.T(mil.Int32)}}},
	}}
	op.Outputs = []*mil.Value{{Name: "y", Type: x.Type, Op: op}}
	p := mil.NewProgram()
	p.Functions["main"] = &mil.Function{Name: "main", Opset: mil.CoreML8, Inputs: []*mil.Value{x, op.Args[1].Values[0]},
		Body: &mil.Block{Ops: []*mil.Op{op}, Outputs: op.Outputs}}
	if _, err := Load(p, Options{}); err == nil || !strings.Contains(err.Error(), "axis must be a constant") {
		t.Errorf("got %v", err)
	}
}

// drawTensor makes a tensor of small integers, whose sums are exact.
func drawTensor(t *rapid.T, name string, shape ...int) *Tensor {
	n := numElements(shape)
	x := NewTensor(mil.Float32, shape...)
	for i, v := range rapid.SliceOfN(rapid.IntRange(-9, 9), n, n).Draw(t, name) {
		x.F[i] = float32(v)
	}
	return x
}

func TestMatmulAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dim := func(name string) int { return rapid.IntRange(1, 9).Draw(t, name) }
		b, m, k, n := dim("b"), dim("m"), dim("k"), dim("n")
		tx, ty := rapid.Bool().Draw(t, "tx"), rapid.Bool().Draw(t, "ty")
		xs, ys := []int{b, m, k}, []int{k, n}
		if tx {
			xs = []int{b, k, m}
		}
		if ty {
			ys = []int{n, k}
		}
		x, y := drawTensor(t, "x", xs...), drawTensor(t, "y", ys...)
		want := make([]float32, b*m*n)
		forEach([]int{b, m, n}, func(o int, i []int) {
			for j := range k {
				xi, yi := (i[0]*m+i[1])*k+j, j*n+i[2]
				if tx {
					xi = (i[0]*k+j)*m + i[1]
				}
				if ty {
					yi = i[2]*k + j
				}
				want[o] += x.F[xi] * y.F[yi]
			}
		})
		got := runOp(t, Options{Threads: 3}, "matmul", mil.Args{"x": x, "y": y, "transpose_x": tx, "transpose_y": ty})[0]
		if !slices.Equal(got.F, want) || !slices.Equal(got.Shape, []int{b, m, n}) {
			t.Fatalf("got %v %v, want %v", got, got.F, want)
		}
	})
}

// conv and conv_transpose with the same kernel are adjoint: the scalar
// product of conv(x) with y is that of x with conv_transpose(y).
func TestConvTransposeIsAdjointOfConv(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spatial := rapid.IntRange(1, 3).Draw(t, "spatial")
		groups := rapid.IntRange(1, 3).Draw(t, "groups")
		ci, co := rapid.IntRange(1, 2).Draw(t, "ci"), rapid.IntRange(1, 2).Draw(t, "co")
		xs, ws := []int{2, ci * groups}, []int{co * groups, ci}
		var strides, dilations, pad []int
		for range spatial {
			xs = append(xs, rapid.IntRange(5, 6).Draw(t, "d"))
			ws = append(ws, rapid.IntRange(1, 3).Draw(t, "k"))
			strides = append(strides, rapid.IntRange(1, 3).Draw(t, "stride"))
			dilations = append(dilations, rapid.IntRange(1, 2).Draw(t, "dilation"))
			pad = append(pad, rapid.IntRange(0, 2).Draw(t, "before"), rapid.IntRange(0, 2).Draw(t, "after"))
		}
		x, w := drawTensor(t, "x", xs...), drawTensor(t, "w", ws...)
		weight := floatConst(w)
		args := mil.Args{"weight": weight, "strides": strides, "dilations": dilations, "pad_type": "custom", "pad": pad, "groups": groups}
		args["x"] = x
		fwd := runOp(t, Options{}, "conv", args)[0]
		y := drawTensor(t, "y", fwd.Shape...)
		args["x"] = y
		args["output_shape"] = xs
		back := runOp(t, Options{}, "conv_transpose", args)[0]
		if a, b := scalarProduct(fwd.F, y.F), scalarProduct(x.F, back.F); a != b {
			t.Fatalf("<conv(x), y> = %v, <x, conv_transpose(y)> = %v", a, b)
		}
	})
}

func floatConst(t *Tensor) mil.Const {
	v := make([]float64, len(t.F))
	for i, x := range t.F {
		v[i] = float64(x)
	}
	return mil.NewFloats(mil.Float32, t.Shape, v...)
}

func scalarProduct(a, b []float32) float64 {
	s := 0.0
	for i := range a {
		s += float64(a[i]) * float64(b[i])
	}
	return s
}

func TestTopKOfEqualElements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.SliceOfN(rapid.SampledFrom([]float64{-2, -1, 0, 1, 2, math.Inf(-1), math.NaN()}), 1, 80).Draw(t, "row")
		k := rapid.IntRange(0, len(row)).Draw(t, "k")
		by := order{rapid.Bool().Draw(t, "ascending")}
		want := make([]int, len(row))
		for i := range want {
			want[i] = i
		}
		sort.SliceStable(want, func(i, j int) bool {
			a, b := row[want[i]], row[want[j]]
			if a != a || b != b {
				return a == a
			}
			return a < b && by.ascending || a > b && !by.ascending
		})
		if got := by.first(row, k); !slices.Equal(got, want[:k]) {
			t.Fatalf("got %v, want %v", got, want[:k])
		}
	})
}
