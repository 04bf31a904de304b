package faults

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/chunking"
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
func flipSign(f *function, _, x string) error {
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

// neighbours finds two layers of one kind in one chunk.
func neighbours(c *chunking.Contract) (layer, before int, ok bool) {
	for _, ch := range c.Chunks {
		last := map[string]int{}
		for l := ch.First; l < ch.Last; l++ {
			kind := string(c.Model.Kinds[l])
			if b, ok := last[kind]; ok {
				return l, b, true
			}
			last[kind] = l
		}
	}
	return 0, 0, false
}
