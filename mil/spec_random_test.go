package mil

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// drawValue draws something for p: mostly of the right type, of any shape.
func drawValue(t *rapid.T, p *Param, o Opset) *Value {
	var ds []DType
	for d := Bool; d < numDTypes; d++ {
		if p.DomainAt(o).Has(d) && d != BFloat16 && d != Float8E4M3FN && d != Float8E5M2 {
			ds = append(ds, d)
		}
	}
	d := rapid.SampledFrom(ds).Draw(t, p.Name+" dtype")
	if d == String {
		return Inline(NewStr(rapid.SampledFrom([]string{
			"constant", "reflect", "add", "update", "fp16", "fp32", "int32", "valid", "same", "custom", "EXACT", "nchw,nwhu->nchu", "",
		}).Draw(t, p.Name)))
	}
	shape := make([]int, rapid.IntRange(0, 4).Draw(t, p.Name+" rank"))
	for i := range shape {
		shape[i] = rapid.SampledFrom([]int{0, 1, 1, 2, 2, 3, 4, Unknown}).Draw(t, p.Name+" dim")
	}
	typ := TensorType{d, shape}
	n := typ.NumElements()
	if !p.Const && !rapid.Bool().Draw(t, p.Name+" is known") || n == Unknown && !p.Const {
		if p.State {
			return &Value{Name: p.Name, Type: StateType{typ}}
		}
		return &Value{Name: p.Name, Type: typ}
	}
	if n == Unknown {
		shape, n = []int{2}, 2
	}
	v := make([]int, n)
	for i := range v {
		v[i] = rapid.IntRange(-3, 4).Draw(t, p.Name+" element")
	}
	if d.IsFloat() {
		f := make([]float64, n)
		for i := range f {
			f[i] = float64(v[i])
		}
		return Inline(NewFloats(d, shape, f...))
	}
	return Inline(NewInts(d, shape, v...))
}

// TestInferenceOfAnything: parameters that pass the checks of the table, but
// may not fit each other, are an error or a type; never a panic, never a
// negative size.
func TestInferenceOfAnything(t *testing.T) {
	for _, kind := range Kinds() {
		s, _ := Spec(kind)
		if s.NumBlocks > 0 {
			continue
		}
		t.Run(kind, rapid.MakeCheck(func(t *rapid.T) {
			opset := rapid.SampledFrom([]Opset{CoreML5, CoreML6, CoreML7, CoreML8}).Draw(t, "opset")
			o := &Op{Kind: kind, Name: kind}
			for i := range s.Params {
				p := &s.Params[i]
				if p.Since > opset || p.Optional && rapid.Bool().Draw(t, p.Name+" is absent") {
					continue
				}
				var vs []*Value
				for range map[bool]int{false: 1, true: rapid.IntRange(1, 3).Draw(t, p.Name+" count")}[p.Variadic] {
					vs = append(vs, drawValue(t, p, opset))
				}
				o.Set(p.Name, vs...)
			}
			if len(checkArgs(o, s, opset, false)) > 0 {
				return
			}
			ts, err := infer(o, opset)
			if err != nil {
				return
			}
			for _, x := range ts {
				for _, d := range x.(TensorType).Shape {
					if d < Unknown {
						t.Fatalf("%s is %v", describe(o), x)
					}
				}
			}
		}))
	}
}

// infer turns a panic into a failure that shows the op.
func infer(o *Op, opset Opset) (ts []Type, err error) {
	defer func() {
		if r := recover(); r != nil {
			panic(fmt.Sprintf("%s in %v: %v", describe(o), opset, r))
		}
	}()
	return InferTypes(o, opset)
}
