package faults

import (
	"math"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
)

// gemma4Faults are mistakes of what only Gemma 4 has.
func gemma4Faults() []Fault {
	return []Fault{
		{
			Name: "v-norm-missing", Family: Graph, Gates: anyLogits, Sites: []string{"v"}, Applies: gemma4,
			What: "values skip their norm, which has no weight in the checkpoint",
			program: everyLayer(func(f *function, l int) error {
				if !f.has(name(l, "v_t")) {
					return nil
				}
				return f.rewire(name(l, "v_t"), "x", name(l, "v_norm_neg"), "x")
			}),
		},
		{
			Name: "attention-scale-1/√d", Family: Graph, Gates: anyLogits, Sites: []string{"attn_ctx"}, Applies: gemma4,
			What: "scores are divided by √head_dim, where the model has scale 1",
			program: everyLayer(func(f *function, l int) error {
				o, err := f.op(name(l, "q_rows"))
				if err != nil {
					return err
				}
				t, _ := o.Out().Tensor()
				return f.scaledInput(name(l, "q_rows"), "x", 1/math.Sqrt(float64(t.Shape[3])))
			}),
		},
		{
			Name: "per-layer-norm-missing", Family: Graph, Gates: anyLogits, Sites: []string{"per_layer_projected"}, Applies: gemma4,
			What: "the projected per-layer embeddings skip their norm",
			program: func(b *bundle) error {
				return b.edit(0, func(f *function) error {
					return f.rewire("per_layer_proj_flat", "x", "per_layer_proj_norm_neg", "x")
				})
			},
		},
		{
			Name: "per-layer-combine-factor", Family: Graph, Gates: append([]string{"layers"}, anyLogits...), Sites: []string{"per_layer_inputs"}, Applies: gemma4,
			What: "the two parts of per-layer inputs are added without the factor 1/√2",
			program: func(b *bundle) error {
				return b.edit(0, func(f *function) error {
					o, err := f.reader("per_layer_sum", "x")
					if err == nil {
						o.Set("y", number(o.In("x"), 1))
					}
					return err
				})
			},
		},
		{
			Name: "per-layer-gate-activation", Family: Graph, Gates: anyLogits, Sites: []string{"ple_act"}, Applies: gemma4,
			What: "the per-layer gate goes without its activation",
			program: everyLayer(func(f *function, l int) error {
				return f.rewire(name(l, "ple_gated"), "x", name(l, "ple_gate_act"), "x")
			}),
		},
		{
			Name: "per-layer-slice-off-by-one", Family: Graph, Gates: anyLogits, Sites: []string{"ple_act"}, Applies: gemma4,
			What: "layer 1 takes the next layer's part of the per-layer inputs", Cause: "a layer takes another layer's part of the per-layer inputs",
			program: inLayer(1, func(f *function) error {
				o, err := f.op(name(1, "ple_in"))
				if err != nil {
					return err
				}
				for _, p := range []string{"begin", "end"} {
					x, err := mil.ConstInts(o.In(p).Const)
					if err != nil {
						return err
					}
					t, _ := o.Out().Tensor()
					x[2] += t.Shape[2]
					if err := f.bind(o.Name, p, mil.NewInts(mil.Int32, []int{3}, x...)); err != nil {
						return err
					}
				}
				return nil
			}),
		},
		{
			Name: "per-layer-post-norm-missing", Family: Graph, Gates: anyLogits, Sites: []string{"resid_ple"}, Applies: gemma4,
			What: "the norm after the per-layer projection of layer 1 is left out", Cause: "the norm after the per-layer projection is left out",
			program: inLayer(1, func(f *function) error {
				return f.rewire(name(1, "resid_ple"), "y", name(1, "ple_out_neg"), "x")
			}),
		},
		{
			Name: "layer-scalar-missing", Family: Graph, Gates: anyLogits, Sites: []string{"out"}, Applies: gemma4,
			What: "layer_scalar does not multiply the stream",
			program: everyLayer(func(f *function, l int) error {
				o, err := f.reader(name(l, "resid_ple"), "x")
				if err == nil {
					o.Set("y", number(o.In("x"), 1))
				}
				return err
			}),
		},
		{
			Name: "layer-scalar-on-branch", Family: Graph, Gates: anyLogits, Sites: []string{"resid_ple", "out"}, Applies: gemma4,
			What: "layer_scalar multiplies what a layer adds last, not the stream",
			program: everyLayer(func(f *function, l int) error {
				end, err := f.reader(name(l, "resid_ple"), "x")
				if err != nil {
					return err
				}
				sum, err := f.op(name(l, "resid_ple"))
				if err != nil {
					return err
				}
				c := end.In("y").Const
				if c == nil {
					return nil
				}
				x, err := mil.ConstFloats(c)
				if err != nil {
					return err
				}
				end.Set("y", number(end.In("x"), 1))
				return f.scaledInput(sum.Name, "y", x[0])
			}),
		},
		{
			Name: "producer-off-by-one", Family: Graph, Gates: anyLogits, Sites: []string{"attn_ctx"}, Form: formExact,
			What: "layers that share keys read the last but one layer of their kind that has its own",
			Applies: func(c *chunking.Contract) bool {
				_, ok := earlierProducer(c)
				return ok
			},
			program: func(b *bundle) error {
				before, _ := earlierProducer(b.contract)
				kind := b.contract.Model.Kinds[before]
				return b.edit(0, func(f *function) error {
					for _, l := range borrowers(b.contract, kind) {
						for _, op := range []string{"scores_cache", "scores_new", "mix_cache", "mix_new"} {
							if err := f.rewire(name(l, op), "y", name(before, op), "y"); err != nil {
								return err
							}
						}
					}
					return nil
				})
			},
		},
		{
			Name: "producer-of-other-layer", Family: Graph, Gates: anyLogits, Sites: []string{"attn_ctx"}, Form: formExact,
			What: "sharing layers take keys from their producer, values from the layer before it",
			Applies: func(c *chunking.Contract) bool {
				_, ok := earlierProducer(c)
				return ok
			},
			program: func(b *bundle) error {
				before, _ := earlierProducer(b.contract)
				kind := b.contract.Model.Kinds[before]
				return b.edit(0, func(f *function) error {
					for _, l := range borrowers(b.contract, kind) {
						for _, op := range []string{"mix_cache", "mix_new"} {
							if err := f.rewire(name(l, op), "y", name(before, op), "y"); err != nil {
								return err
							}
						}
					}
					return nil
				})
			},
		},
	}
}

// earlierProducer is the layer of the sliding kind that has its own keys and
// stands before the one that lends them.
func earlierProducer(c *chunking.Contract) (int, bool) {
	lent := borrowers(c, models.Sliding)
	if len(lent) == 0 {
		return 0, false
	}
	for l := c.Model.KVSource[lent[0]] - 1; l >= 0; l-- {
		if c.Model.Kinds[l] == models.Sliding {
			return l, true
		}
	}
	return 0, false
}
