package faults

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/mil"
)

// interleave makes the rotation called x take even and odd dimensions for the
// two halves of a head.
func interleave(f *function, x string) error {
	o, err := f.op(x + "_lo")
	if err != nil {
		return err
	}
	t, _ := o.In("x").Tensor()
	ones := []int{1, 1, 1, 2}
	for i, part := range []string{"_lo", "_hi"} {
		begin := []int{0, 0, 0, i}
		for param, v := range map[string][]int{"begin": begin, "end": t.Shape, "stride": ones} {
			if err := f.bind(x+part, param, mil.NewInts(mil.Int32, []int{4}, v...)); err != nil {
				return err
			}
		}
	}
	return nil
}

// flipSign turns the rotation called x around: cos·x - sin·half.
func flipSign(f *function, x string) error {
	o, err := f.op(x)
	if err != nil {
		// A single layer of its kind: the rotation carries the output's name.
		if o, err = f.reader(x+"_sin", "y"); err != nil {
			return err
		}
	}
	o.Kind = "sub"
	return nil
}

// reader is the op that reads the value of op as param.
func (f *function) reader(op, param string) (*mil.Op, error) {
	p, err := f.op(op)
	if err != nil {
		return nil, err
	}
	for _, o := range f.Body.Ops {
		if o.In(param) == p.Out() {
			return o, nil
		}
	}
	return nil, fmt.Errorf("nothing reads %q as %s", op, param)
}

// rewireOutput changes the residual sum at the end of a layer, whatever its
// name: the op that adds the MLP called mlp to the stream reads what
// parameter param of op from reads.
func (f *function) rewireOutput(mlp, from, param string) error {
	sum, err := f.reader(mlp+"_out", "y")
	if err != nil {
		// With a norm after the MLP, the norm's slice joins the stream.
		layer := mlp[:len(mlp)-len("mlp")]
		if sum, err = f.reader(layer+"post_mlp_norm", "y"); err != nil {
			return err
		}
	}
	g, err := f.op(from)
	if err != nil {
		return err
	}
	sum.Set("x", g.In(param))
	return nil
}

// reverseHeads makes everything that reads probabilities read them with the
// key heads in reverse order.
func reverseHeads(f *function, probs *mil.Op) error {
	axis := 1
	t, _ := probs.Out().Tensor()
	if len(t.Shape) == 4 && t.Shape[0] != 1 {
		axis = 0 // [kv, group, T, S+T]
	}
	axes := mil.NewInts(mil.Int32, []int{1}, axis)
	k := &mil.Op{Kind: "const", Name: probs.Name + "_axes_fault"}
	k.Outputs = []*mil.Value{{Name: k.Name, Type: axes.Type(), Op: k, Const: axes}}
	r := &mil.Op{Kind: "reverse", Name: probs.Name + "_fault"}
	r.Outputs = []*mil.Value{{Name: r.Name, Type: probs.Out().Type, Op: r}}
	for _, o := range f.Body.Ops {
		for i := range o.Args {
			for j, v := range o.Args[i].Values {
				if v == probs.Out() {
					o.Args[i].Values[j] = r.Out()
				}
			}
		}
	}
	r.Set("x", probs.Out())
	r.Set("axes", k.Out())
	at := slices.Index(f.Body.Ops, probs)
	f.Body.Ops = slices.Insert(f.Body.Ops, at+1, k, r)
	return nil
}

// transpose writes a square matrix down its columns.
func transpose(shape []int, x []float64) []float64 {
	n := shape[0]
	out := make([]float64, len(x))
	for i := range n {
		for j := range n {
			out[j*n+i] = x[i*n+j]
		}
	}
	return out
}

// after adds an op behind another one and gives everything that read the
// latter's result the new one's. build gets that result.
func (f *function) after(of *mil.Op, kind, name string, args func(x *mil.Value) map[string][]*mil.Value) (*mil.Op, error) {
	x := of.Out()
	readers := f.Body.Ops
	o := &mil.Op{Kind: kind, Name: name}
	for p, v := range args(x) {
		o.Set(p, v...)
	}
	types, err := mil.InferTypes(o, f.Opset)
	if err != nil {
		return nil, err
	}
	o.Outputs = []*mil.Value{{Name: name, Type: types[0], Op: o}}
	f.replace(readers, x, o.Out())
	f.Body.Ops = slices.Insert(f.Body.Ops, slices.Index(f.Body.Ops, of)+1, o)
	return o, nil
}

// replace makes ops read another value.
func (f *function) replace(ops []*mil.Op, old, now *mil.Value) {
	for _, o := range ops {
		for i := range o.Args {
			for j, v := range o.Args[i].Values {
				if v == old {
					o.Args[i].Values[j] = now
				}
			}
		}
	}
}

// constant is a value for an argument.
func constant(c mil.Const) *mil.Value { return mil.Inline(c) }

// number is a scalar of the type of v.
func number(v *mil.Value, x float64) *mil.Value {
	t, _ := v.Tensor()
	return constant(mil.NewFloats(t.DType, nil, x))
}

// scaledInput multiplies what a parameter of an op reads.
func (f *function) scaledInput(op, param string, by float64) error {
	o, err := f.op(op)
	if err != nil {
		return err
	}
	v := o.In(param)
	if v == nil {
		return fmt.Errorf("op %q has no parameter %q", op, param)
	}
	m := &mil.Op{Kind: "mul", Name: op + "_scale_fault"}
	m.Set("x", v)
	m.Set("y", number(v, by))
	m.Outputs = []*mil.Value{{Name: m.Name, Type: v.Type, Op: m}}
	f.Body.Ops = slices.Insert(f.Body.Ops, slices.Index(f.Body.Ops, o), m)
	o.Set(param, m.Out())
	return nil
}

// normAfter applies the norm called norm to the rotated heads called x, which
// take what the norm took.
func (f *function) normAfter(norm, before, x string) error {
	if err := f.rewire(before, "x", norm+"_neg", "x"); err != nil {
		return err
	}
	ln, err := f.op(norm + "_normed")
	if err != nil {
		return err
	}
	rotated, err := f.op(x)
	if err != nil {
		return err
	}
	t, _ := rotated.Out().Tensor()
	last := constant(mil.NewInts(mil.Int32, []int{1}, 3))
	raw := rotated.Out()
	neg, err := f.after(rotated, "mul", x+"_neg_fault", func(v *mil.Value) map[string][]*mil.Value {
		return map[string][]*mil.Value{"x": {v}, "y": {number(v, -1)}}
	})
	if err != nil {
		return err
	}
	pair, err := f.after(neg, "concat", x+"_pair_fault", func(v *mil.Value) map[string][]*mil.Value {
		return map[string][]*mil.Value{"values": {raw, v}, "axis": {constant(mil.NewInts(mil.Int32, nil, 3))}, "interleave": {constant(mil.NewBools(nil, false))}}
	})
	if err != nil {
		return err
	}
	normed, err := f.after(pair, "layer_norm", x+"_normed_fault", func(v *mil.Value) map[string][]*mil.Value {
		return map[string][]*mil.Value{"x": {v}, "axes": {last}, "gamma": {ln.In("gamma")}, "epsilon": {ln.In("epsilon")}}
	})
	if err != nil {
		return err
	}
	end := slices.Clone(t.Shape)
	_, err = f.after(normed, "slice_by_index", x+"_slice_fault", func(v *mil.Value) map[string][]*mil.Value {
		return map[string][]*mil.Value{"x": {v}, "begin": {constant(mil.NewInts(mil.Int32, []int{4}, 0, 0, 0, 0))}, "end": {constant(mil.NewInts(mil.Int32, []int{4}, end...))}}
	})
	return err
}
