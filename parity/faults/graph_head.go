package faults

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
)

// tied are the gates that may notice a wrong head: where it is tied, it is
// compared with the table first.
var tied = append([]string{"weights"}, anyLogits...)

func wide(c *chunking.Contract) bool { return c.Model.Vocab > 1<<16 }

func topK(c *chunking.Contract) bool { return returns(c, models.TopIDs) }

func returns(c *chunking.Contract, r models.Role) bool {
	last := c.Chunks[len(c.Chunks)-1]
	return chunking.Find(last.Functions[0].Outputs, r, "") != nil
}

// headFaults are mistakes of what follows the last layer.
func headFaults() []Fault {
	return []Fault{
		{
			Name: "final-norm-gain", Family: Graph, Gates: anyLogits, Sites: []string{"final_norm"},
			What: "the gain of the final norm is half of what it should be",
			program: func(b *bundle) error {
				return b.edit(b.last(), func(f *function) error { return f.floats("final_norm_normed", "gamma", scaled(0.5)) })
			},
		},
		{
			Name: "final-norm-missing", Family: Graph, Gates: anyLogits, Sites: []string{"logits"},
			What: "the head reads the stream before the final norm",
			program: func(b *bundle) error {
				return b.edit(b.last(), func(f *function) error {
					h, err := f.head(b.contract)
					if err != nil {
						return err
					}
					n, err := f.op("final_norm_neg")
					if err == nil {
						h.Set("x", n.In("x"))
					}
					return err
				})
			},
		},
		{
			Name: "head-rows-shifted", Family: Graph, Gates: tied, Sites: []string{"logits"},
			What: "the head's matrix is one row off",
			program: func(b *bundle) error {
				return b.headWeight(func(shape []int, x []float64) []float64 {
					return append(append([]float64{}, x[shape[1]:]...), x[:shape[1]]...)
				})
			},
		},
		{
			Name: "tied-head-swapped", Family: Graph, Gates: tied, Sites: []string{"logits"}, Applies: sidecar,
			What: "the head is another table than the embedding it is tied to",
			program: func(b *bundle) error {
				return b.headWeight(func(_ []int, x []float64) []float64 {
					out := slices.Clone(x)
					slices.Reverse(out)
					return out
				})
			},
		},
		{
			Name: "softcap-missing", Family: Graph, Gates: anyLogits, Sites: []string{"logits"}, Applies: gemma4,
			What: "logits have no softcap",
			program: func(b *bundle) error {
				return b.edit(b.last(), func(f *function) error {
					for _, o := range f.Body.Ops {
						if o.Kind != "tanh" {
							continue
						}
						f.replace(f.Body.Ops, o.Out(), o.In("x"))
						return nil
					}
					return fmt.Errorf("there is no tanh")
				})
			},
		},
		{
			Name: "argmin", Family: Graph, Gates: []string{"token"}, Sites: []string{"token_id"},
			What: "token_id is taken from the smallest logit",
			program: func(b *bundle) error {
				return b.edit(b.last(), func(f *function) error {
					o, err := f.op("token_id")
					if err == nil {
						o.Kind = "reduce_argmin"
					}
					return err
				})
			},
		},
		{
			Name: "top-k-16-bit", Family: Graph, Gates: []string{"index"}, Sites: []string{"top_16"}, Form: formWide, Applies: all(wide, topK),
			What: "top_ids pass through 16 bits and wrap at 65,536",
			program: func(b *bundle) error {
				return b.edit(b.last(), func(f *function) error {
					return f.narrow("top", 1, func(o *mil.Op) { o.Set("output_indices_dtype", constant(mil.NewStr("uint16"))) })
				})
			},
		},
		{
			Name: "token-id-wraps", Family: Graph, Gates: []string{"index"}, Sites: []string{"token_id"}, Form: formWide, Applies: wide,
			What: "token_id is reduced modulo 65,536, as 16 bits would",
			program: func(b *bundle) error {
				return b.edit(b.last(), func(f *function) error {
					o, err := f.op("token_id")
					if err != nil {
						return err
					}
					old := o.Out()
					raw := &mil.Value{Name: "token_32", Type: old.Type, Op: o}
					o.Name, o.Outputs = "token_32", []*mil.Value{raw}
					m := &mil.Op{Kind: "mod", Name: old.Name, Outputs: []*mil.Value{old}}
					m.Set("x", raw)
					m.Set("y", constant(mil.NewInts(mil.Int32, nil, 1<<16)))
					old.Op = m
					f.Body.Ops = slices.Insert(f.Body.Ops, slices.Index(f.Body.Ops, o)+1, m)
					return nil
				})
			},
		},
	}
}

// head is the op that makes logits.
func (f *function) head(c *chunking.Contract) (*mil.Op, error) {
	for _, o := range f.Body.Ops {
		w := o.In("weight")
		if o.Kind != "linear" || w == nil {
			continue
		}
		if t, _ := w.Tensor(); t.Rank() == 2 && t.Shape[0] == c.Model.Vocab {
			return o, nil
		}
	}
	return nil, fmt.Errorf("there is no head")
}

// headWeight changes the head's matrix in all functions.
func (b *bundle) headWeight(change func([]int, []float64) []float64) error {
	return b.edit(b.last(), func(f *function) error {
		o, err := f.head(b.contract)
		if err != nil {
			return err
		}
		return f.floats(o.Name, "weight", change)
	})
}

// narrow makes output i of an op 16 bits wide and casts it back.
func (f *function) narrow(op string, i int, change func(*mil.Op)) error {
	var o *mil.Op
	for _, x := range f.Body.Ops {
		if x.Kind == "topk" {
			o = x
		}
	}
	if o == nil {
		return fmt.Errorf("there is no topk")
	}
	change(o)
	old := o.Outputs[i]
	t, _ := old.Tensor()
	small := &mil.Value{Name: op + "_16", Type: mil.T(mil.UInt16, t.Shape...), Op: o}
	o.Outputs[i] = small
	c := &mil.Op{Kind: "cast", Name: old.Name, Outputs: []*mil.Value{old}}
	c.Set("x", small)
	c.Set("dtype", constant(mil.NewStr("int32")))
	old.Op = c
	f.Body.Ops = slices.Insert(f.Body.Ops, slices.Index(f.Body.Ops, o)+1, c)
	return nil
}
