package faults

import (
	"math"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
)

// everyLayer runs change for all layers of the bundle.
func everyLayer(change func(f *function, layer int) error) func(*bundle) error {
	return func(b *bundle) error {
		for i, ch := range b.contract.Chunks {
			err := b.edit(i, func(f *function) error {
				for l := ch.First; l < ch.Last; l++ {
					if err := change(f, l); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// inLayer runs change for one layer.
func inLayer(layer int, change func(f *function) error) func(*bundle) error {
	return func(b *bundle) error { return b.inLayer(layer, change) }
}

// graphFaults are mistakes of a decoder's graph.
func graphFaults() []Fault {
	return []Fault{
		{
			Name: "rope-interleaved", Family: Graph, Gates: anyLogits, Sites: []string{"q", "k"},
			What: "RoPE pairs neighbouring dimensions instead of halves",
			program: everyLayer(func(f *function, l int) error {
				for _, x := range []string{"q", "k"} {
					if f.has(name(l, x+"_lo")) {
						if err := interleave(f, name(l, x)); err != nil {
							return err
						}
					}
				}
				return nil
			}),
		},
		{
			Name: "rope-sign", Family: Graph, Gates: anyLogits, Sites: []string{"q"},
			What:    "RoPE turns queries backwards",
			program: everyLayer(func(f *function, l int) error { return flipSign(f, name(l, "q")) }),
		},
		{
			Name: "rope-thetas-swapped", Family: Graph, Gates: anyLogits, Sites: []string{"q"}, Applies: all(sliding, not(gemma4)),
			What: "the RoPE thetas of sliding and full layers are swapped",
			program: func(b *bundle) error {
				return everyLayer(func(f *function, l int) error {
					other := "f"
					if b.contract.Model.Kinds[l] == models.Full {
						other = "s"
					}
					cos, sin := f.Input("cos_"+other), f.Input("sin_"+other)
					if cos == nil || sin == nil {
						return nil // no layer of the other kind in this chunk
					}
					for _, x := range []string{"q", "k"} {
						for param, v := range map[string]*mil.Value{"_cos": cos, "_sin": sin} {
							o, err := f.op(name(l, x+param))
							if err != nil {
								return err
							}
							o.Set("y", v)
						}
					}
					return nil
				})(b)
			},
		},
		{
			Name: "qk-norm-missing", Family: Graph, Gates: anyLogits, Sites: []string{"q"}, Applies: qkNorm,
			What: "queries of layer 1 skip their norm", Cause: "queries skip their norm",
			program: inLayer(1, func(f *function) error { return f.rewire(name(1, "q_t"), "x", name(1, "q_norm_neg"), "x") }),
		},
		{
			Name: "norm-after-rope", Family: Graph, Gates: anyLogits, Sites: []string{"q"}, Applies: qkNorm,
			What: "the q norm comes after RoPE, not before",
			program: everyLayer(func(f *function, l int) error {
				return f.normAfter(name(l, "q_norm"), name(l, "q_t"), name(l, "q"))
			}),
		},
		{
			Name: "norm-w-instead-of-1+w", Family: Graph, Gates: anyLogits, Sites: []string{"attn_norm"}, Applies: gemma3,
			What:  "the norm before attention of layer 2 multiplies by w, not 1+w",
			Cause: "a norm multiplies by w, not 1+w",
			program: inLayer(2, func(f *function) error {
				return f.floats(name(2, "attn_norm_normed"), "gamma", func(_ []int, x []float64) []float64 {
					for i := range x {
						x[i]--
					}
					return x
				})
			}),
		},
		{
			Name: "sandwich-norm-missing", Family: Graph, Gates: anyLogits, Sites: []string{"resid_mid"}, Applies: gemma,
			What: "the norm after attention of layer 1 is left out", Cause: "the norm after attention is left out",
			program: inLayer(1, func(f *function) error {
				return f.rewire(name(1, "resid_mid"), "y", name(1, "post_attn_norm_neg"), "x")
			}),
		},
		{
			Name: "epsilon", Family: Graph, Gates: []string{"contract"}, Says: "epsilon",
			What:    "the norm before every MLP uses epsilon 1e-3",
			Cause:   "a norm has another epsilon than config.json",
			program: epsilon(1e-3),
		},
		{
			Name: "epsilon-zero", Family: Graph, Gates: []string{"contract"}, Says: "epsilon", Form: formExact,
			What:    "the norm before every MLP uses epsilon 0",
			Cause:   "a norm has another epsilon than config.json",
			program: epsilon(0),
		},
		{
			Name: "gelu-kind", Family: Graph, Form: formExact, Gates: fine, Sites: []string{"mlp_act"}, Applies: gemma,
			What: "GELU by the error function instead of tanh",
			program: everyLayer(func(f *function, l int) error {
				return f.bind(name(l, "gate_act"), "mode", mil.NewStr("EXACT"))
			}),
		},
		{
			Name: "activation-missing", Family: Graph, Gates: anyLogits, Sites: []string{"mlp_act"},
			What: "the MLP of layer 1 multiplies gate without its activation", Cause: "the MLP multiplies gate without its activation",
			program: inLayer(1, func(f *function) error {
				return f.rewire(name(1, "mlp_act"), "x", name(1, "gate_act"), "x")
			}),
		},
		{
			Name: "attention-scale", Family: Graph, Gates: anyLogits, Sites: []string{"attn_ctx"}, Applies: not(gemma4),
			What: "scores are scaled by √2 too much, as if head_dim were half",
			program: everyLayer(func(f *function, l int) error {
				return f.floats(name(l, "q_scaled"), "y", scaled(math.Sqrt2))
			}),
		},
		{
			Name: "kv-heads-swapped", Family: Graph, Gates: anyLogits, Sites: []string{"attn_ctx"},
			What: "groups of query heads of layer 1 use each other's values", Cause: "query heads use the values of another group",
			Applies: func(c *chunking.Contract) bool { return c.Model.KVHeads == 2 },
			program: inLayer(1, func(f *function) error {
				o, err := f.op(name(1, "probs"))
				if err != nil {
					return err
				}
				return reverseHeads(f, o)
			}),
		},
		{
			Name: "square-weight-transposed", Family: Graph, Gates: anyLogits, Sites: []string{"attn_out"},
			What: "o_proj of layer 1, a square matrix, is stored transposed", Cause: "a square matrix is stored transposed, or its weight is damaged",
			Applies: func(c *chunking.Contract) bool { return c.Model.Heads*c.Model.HeadDim == c.Model.Hidden },
			program: inLayer(1, func(f *function) error { return f.floats(name(1, "attn_out"), "weight", transpose) }),
		},
		{
			Name: "bias-dropped", Family: Graph, Gates: anyLogits, Sites: []string{"q_proj"},
			What: "q_proj of layer 0 loses its bias", Cause: "q_proj loses its bias",
			Applies: func(c *chunking.Contract) bool { return c.Model.Architecture == "qwen2" },
			program: inLayer(0, func(f *function) error { return f.floats(name(0, "q_proj"), "bias", scaled(0)) }),
		},
		{
			Name: "residual-skipped", Family: Graph, Gates: anyLogits, Sites: []string{"out", "resid_mlp"},
			What: "layer 1 adds its MLP to the stream from before its attention", Cause: "the MLP is added to the stream from before attention",
			program: inLayer(1, func(f *function) error {
				return f.rewireOutput(name(1, "mlp"), name(1, "resid_mid"), "x")
			}),
		},
		{
			Name: "cache-layer-off-by-one", Family: Graph, Gates: anyLogits, Sites: []string{"attn_ctx"},
			What:    "a layer reads the cached keys of the layer before it",
			Applies: func(c *chunking.Contract) bool { _, _, ok := neighbours(c); return ok },
			program: func(b *bundle) error {
				l, before, _ := neighbours(b.contract)
				return b.inLayer(l, func(f *function) error {
					return f.rewire(name(l, "scores_cache"), "y", name(before, "scores_cache"), "y")
				})
			},
		},
		{
			Name: "mask-missing", Family: Graph, Gates: anyLogits, Sites: []string{"attn_ctx"},
			What: "layer 1 forgets its mask", Cause: "scores are not masked",
			program: inLayer(1, func(f *function) error { return f.rewire(name(1, "probs"), "x", name(1, "scores_masked"), "x") }),
		},
		{
			Name: "values-not-keys", Family: Graph, Gates: anyLogits, Sites: []string{"attn_ctx"},
			What: "layer 1 mixes cached keys instead of values", Cause: "attention mixes cached keys instead of values",
			program: inLayer(1, func(f *function) error { return f.rewire(name(1, "mix_cache"), "y", name(1, "scores_cache"), "y") }),
		},
		{
			Name: "weights-differ-in-verify", Family: Graph, Gates: []string{"weights"}, Sites: []string{"model_layers_1_mlp_gate_proj_weight", "layers_1_gate_weight_fault"},
			Applies: verifies,
			What:    "verify has another gate_proj in layer 1 than decode", Cause: "functions of a package have different weights",
			program: inLayer(1, func(f *function) error {
				if len(f.Name) < 6 || f.Name[:6] != "verify" {
					return nil
				}
				return f.floatsInPlace(name(1, "gate"), "weight", scaled(1.25))
			}),
		},
		{
			Name: "fp16-overflow", Family: Graph, Gates: []string{"finite"}, Sites: []string{"mlp_up"},
			What:  "up_proj of layer 1 is 2¹⁵ too large and down_proj as much too small: exact in fp32, infinite in fp16",
			Cause: "an intermediate leaves the range of fp16",
			program: inLayer(1, func(f *function) error {
				if err := f.floats(name(1, "up"), "weight", scaled(1<<15)); err != nil {
					return err
				}
				return f.floats(name(1, "mlp_out"), "weight", scaled(1.0/(1<<15)))
			}),
		},
	}
}

// epsilon changes that of the norm before every MLP.
func epsilon(to float64) func(*bundle) error {
	return everyLayer(func(f *function, l int) error {
		return f.floats(name(l, "mlp_norm_normed"), "epsilon", func([]int, []float64) []float64 { return []float64{to} })
	})
}
