package pass_test

import (
	"fmt"
	"math"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/runtime"
)

// A step is one op of a random program; its operands are earlier values,
// counted from the end.
type step struct {
	kind    string
	a, b    int
	weight  int // index into a small pool, so that constants repeat
	literal float64
}

func drawSteps(t *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			kind:    rapid.SampledFrom([]string{"tanh", "relu", "add", "mul", "scale", "linear", "norm", "softmax", "swap", "cond", "rsqrt", "state", "index"}).Draw(t, "kind"),
			a:       rapid.IntRange(0, 4).Draw(t, "a"),
			b:       rapid.IntRange(0, 4).Draw(t, "b"),
			weight:  rapid.IntRange(0, 2).Draw(t, "weight"),
			literal: float64(rapid.IntRange(-8, 8).Draw(t, "literal")) / 8,
		}
	}), 1, 12).Draw(t, "steps")
}

// weights gives a new object each time, with one of three contents.
func weights(i int, shape ...int) mil.Const {
	n := 1
	for _, d := range shape {
		n *= d
	}
	v := make([]float64, n)
	for k := range v {
		v[k] = float64((k*7+i*3)%11-5) / 16
	}
	return mil.NewFloats(mil.Float32, shape, v...)
}

// assemble builds the program of the steps in fp32, with functions main and
// twin. Values stay small enough for fp16.
func assemble(steps []step) (*mil.Program, error) {
	p := mil.NewProgram()
	for _, name := range []string{"main", "twin"} {
		b := mil.NewBuilder(name, mil.CoreML8)
		x := b.Input("x", mil.T(mil.Float32, 2, 4))
		st := b.State("st", mil.T(mil.Float32, 2, 4))
		vals := []*mil.Value{x}
		at := func(i int) *mil.Value { return vals[max(len(vals)-1-i, 0)] }
		for i, s := range steps {
			n := fmt.Sprintf("s.%d", i)
			v := at(s.a)
			switch s.kind {
			case "add", "mul":
				v = b.Op(s.kind, n, mil.Args{"x": v, "y": at(s.b)})
			case "scale":
				v = b.Op("mul", n, mil.Args{"x": v, "y": s.literal})
			case "linear":
				v = b.Op("linear", n, mil.Args{"x": v, "weight": b.Const(n+".w", weights(s.weight, 4, 4)), "bias": b.Const(n+".b", weights(s.weight, 4))})
			case "norm":
				v = b.Op("layer_norm", n, mil.Args{"x": v, "axes": []int{1}, "gamma": b.Const(n+".g", weights(s.weight, 4)), "epsilon": 1e-3})
			case "softmax":
				v = b.Op("softmax", n, mil.Args{"x": v, "axis": 1})
			case "swap":
				lo := b.Op("slice_by_index", n+".lo", mil.Args{"x": v, "begin": []int{0, 0}, "end": []int{2, 2}})
				hi := b.Op("slice_by_index", n+".hi", mil.Args{"x": v, "begin": []int{0, 2}, "end": []int{2, 4}})
				v = b.Op("concat", n, mil.Args{"values": []*mil.Value{hi, lo}, "axis": 1})
			case "cond":
				m := b.Op("reduce_max", n+".m", mil.Args{"x": v, "axes": []int{0, 1}})
				w := at(s.b)
				v = b.Cond(n, b.Op("greater", n+".p", mil.Args{"x": m, "y": s.literal}),
					func() []*mil.Value {
						return []*mil.Value{b.Op("add", n+".t", mil.Args{"x": w, "y": weights(s.weight, 4)})}
					},
					func() []*mil.Value {
						dead := b.Op("tanh", n+".dead", mil.Args{"x": v})
						b.Op("mul", n+".deader", mil.Args{"x": dead, "y": 0.5})
						return []*mil.Value{b.Op("mul", n+".e", mil.Args{"x": v, "y": weights(s.weight, 4)})}
					})[0]
			case "rsqrt":
				v = b.Op("rsqrt", n, mil.Args{"x": b.Op("add", n+".pos", mil.Args{"x": b.Op("square", n+".sq", mil.Args{"x": v}), "y": 1.0})})
			case "state":
				b.Op("write_state", n+".w", mil.Args{"input": st, "data": v})
				v = b.Op("read_state", n, mil.Args{"input": st})
			case "index":
				i := b.Op("reduce_argmax", n+".i", mil.Args{"x": v, "axis": 1, "keep_dims": true})
				f := b.Op("cast", n+".f", mil.Args{"x": i, "dtype": "fp32"})
				v = b.Op("add", n, mil.Args{"x": v, "y": b.Op("mul", n+".q", mil.Args{"x": f, "y": 0.125})})
			default:
				v = b.Op(s.kind, n, mil.Args{"x": v})
			}
			// Keep magnitudes near 1 so that fp16 errors stay comparable.
			if s.kind == "add" || s.kind == "mul" || s.kind == "norm" || s.kind == "index" {
				v = b.Op("tanh", n+".bounded", mil.Args{"x": v})
			}
			vals = append(vals, v)
		}
		b.Output("out", at(0))
		b.Output("earlier", at(2))
		f, err := b.Func()
		if err != nil {
			return nil, err
		}
		p.Functions[name] = f
	}
	return p, nil
}

// run executes every function twice on one instance, so that states count,
// and returns all outputs in order.
func run(p *mil.Program, mode runtime.Mode) ([]float32, error) {
	pr, err := runtime.Load(p, runtime.Options{Mode: mode, Threads: 1, NoFusion: true})
	if err != nil {
		return nil, err
	}
	var out []float32
	in := pr.New()
	for i, fn := range []string{"main", "twin", "main"} {
		t, _ := p.Functions[fn].Input("x").Tensor()
		x := runtime.NewTensor(t.DType, t.Shape...)
		for k := range x.F {
			x.F[k] = float32((k*5+i)%9-4) / 4
		}
		res, err := in.Run(fn, map[string]*runtime.Tensor{"x": x})
		if err != nil {
			return nil, err
		}
		for _, name := range []string{"out", "earlier"} {
			out = append(out, res[name].F...)
		}
	}
	return out, nil
}

func mustRun(t *rapid.T, p *mil.Program, mode runtime.Mode) []float32 {
	v, err := run(p, mode)
	if err != nil {
		t.Fatalf("%v in\n%s", err, mil.Text(p))
	}
	return v
}

// same compares bit by bit, NaN equal to itself.
func same(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}
