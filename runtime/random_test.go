package runtime

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/mil"
)

func drawSizes(t *rapid.T, rank int) []int {
	shape := make([]int, rank)
	for i := range shape {
		shape[i] = rapid.SampledFrom([]int{1, 2, 2, 3, 4}).Draw(t, "size")
	}
	return shape
}

// drawOperand draws a constant or, if it may be one, an input for p. base is
// a shape that the operands of an op have in common, more or less.
func drawOperand(t *rapid.T, b *mil.Builder, in map[string]*Tensor, p *mil.Param, base []int) *mil.Value {
	var ds []mil.DType
	for d := mil.Bool; d <= mil.UInt64; d++ {
		if p.DomainAt(mil.CoreML8).Has(d) && d != mil.BFloat16 && d != mil.Float8E4M3FN && d != mil.Float8E5M2 {
			ds = append(ds, d)
		}
	}
	d := rapid.SampledFrom(ds).Draw(t, p.Name+" dtype")
	if d == mil.String {
		return mil.Inline(mil.NewStr(rapid.SampledFrom([]string{
			"constant", "reflect", "replicate", "add", "update", "fp16", "fp32", "int32", "valid", "same", "custom", "EXACT", "nchw,nwhu->nchu",
		}).Draw(t, p.Name)))
	}
	// What can only be an integer is most likely a number, or a vector of one
	// or two numbers an axis; a tensor is like the others.
	r := len(base)
	shapes := [][]int{base, base, base, {}, {base[0]}, base[:r-1], drawSizes(t, rapid.IntRange(0, 5).Draw(t, "rank"))}
	if p.DomainAt(mil.CoreML8)&mil.Floats == 0 {
		shapes = [][]int{base, {}, {r}, {r}, {2 * r}, {2}, {1}, {2, 2}, {base[0], r}, base[:1]}
	}
	shape := rapid.SampledFrom(shapes).Draw(t, p.Name+" shape")
	v := make([]float64, numElements(shape))
	for i := range v {
		v[i] = float64(rapid.IntRange(-2, 4).Draw(t, p.Name+" element"))
	}
	if !p.Const && len(shape) > 0 && rapid.Bool().Draw(t, p.Name+" is an input") && mil.Dom(mil.Float16, mil.Float32, mil.Int32).Has(d) {
		x := NewTensor(d, shape...)
		for i := range v {
			if x.F != nil {
				x.F[i] = float32(v[i])
			} else {
				x.I[i] = int32(v[i])
			}
		}
		name := fmt.Sprintf("in%d", len(in))
		in[name] = x
		return b.Input(name, mil.T(d, shape...))
	}
	if d.IsFloat() {
		return b.Const("c", mil.NewFloats(d, shape, v...))
	}
	ints := make([]int, len(v))
	for i := range v {
		if ints[i] = int(v[i]); d == mil.Bool {
			ints[i] &= 1
		}
	}
	return b.Const("c", mil.NewInts(d, shape, ints...))
}

// TestRunOfAnything executes random ops. What passes verification runs, or is
// refused by an error of the operator's own; a result has the declared type.
func TestRunOfAnything(t *testing.T) {
	for _, kind := range mil.Kinds() {
		s, _ := mil.Spec(kind)
		if s.NumBlocks > 0 || kind == "const" || slices.ContainsFunc(s.Params, func(p mil.Param) bool { return p.State }) {
			continue
		}
		t.Run(kind, rapid.MakeCheck(func(t *rapid.T) {
			b := mil.NewBuilder("main", mil.CoreML8)
			in, args := map[string]*Tensor{}, mil.Args{}
			base := drawSizes(t, rapid.IntRange(1, 4).Draw(t, "rank"))
			for i := range s.Params {
				p := &s.Params[i]
				if p.Optional && rapid.Bool().Draw(t, p.Name+" is absent") {
					continue
				}
				if !p.Variadic {
					args[p.Name] = drawOperand(t, b, in, p, base)
					continue
				}
				var vs []*mil.Value
				for range rapid.IntRange(1, 2).Draw(t, p.Name+" count") {
					vs = append(vs, drawOperand(t, b, in, p, base))
				}
				args[p.Name] = vs
			}
			for i, o := range b.OpN(kind, "op", args) {
				if b.Err() != nil {
					return
				}
				switch d := o.Type.(mil.TensorType).DType; {
				case d.Bits() < 8: // the mask of a sparse constexpr
					continue
				case !d.IsFloat() && d != mil.Int32:
					o = b.Op("cast", "as_int", mil.Args{"x": o, "dtype": "int32"})
				}
				b.Output(fmt.Sprintf("out%d", i), o)
			}
			fn, err := b.Func()
			if err != nil {
				return
			}
			p := mil.NewProgram()
			p.Functions["main"] = fn
			prog, err := Load(p, Options{Threads: 2, NoFusion: rapid.Bool().Draw(t, "no fusion")})
			if err != nil {
				return
			}
			got, err := prog.New().Run("", in)
			if err != nil {
				if strings.Contains(err.Error(), "internal error") {
					t.Fatalf("%v: %v", kind, err)
				}
				return
			}
			for _, v := range fn.Body.Outputs {
				x := got[v.Name]
				have := mil.TensorType{DType: x.DType, Shape: x.Shape}
				if !have.Compatible(v.Type.(mil.TensorType)) || max(len(x.F), len(x.I)) != x.Len() {
					t.Fatalf("%s: %s is %v with %d elements, declared %v", kind, v.Name, have, max(len(x.F), len(x.I)), v.Type)
				}
			}
		}))
	}
}
