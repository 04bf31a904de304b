package faults

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
)

// Gates that compare with the reference, in fp32 or, where the bundle
// computes in fp32 anyway, typed.
var (
	anyLogits     = []string{"logits.fp32.decode", "logits.typed.decode"}
	verifyLogits  = []string{"logits.fp32.verify", "logits.typed.verify"}
	prefillLogits = []string{"logits.fp32.prefill", "logits.typed.prefill"}
	fine          = []string{"logits.typed.decode", "layers"}
)

func name(layer int, what string) string { return fmt.Sprintf("layers_%d_%s", layer, what) }

func gemma(c *chunking.Contract) bool { return c.Model.Architecture == "gemma3" }

func qkNorm(c *chunking.Contract) bool { return gemma(c) || c.Model.Architecture == "qwen3" }

func sliding(c *chunking.Contract) bool { return slices.Contains(c.Model.Kinds, models.Sliding) }

func verifies(c *chunking.Contract) bool { return has(c, chunking.Verify) }

func prefills(c *chunking.Contract) bool { return has(c, chunking.Prefill) }

func has(c *chunking.Contract, k chunking.FunctionKind) bool {
	return slices.ContainsFunc(c.Chunks[0].Functions, func(f chunking.Function) bool { return f.Kind == k })
}

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

// graphFaults are mistakes of the model's graph.
func graphFaults() []Fault {
	return []Fault{
		{
			Name: "rope-interleaved", Family: Graph, Gates: anyLogits, Sites: []string{"q", "k"},
			What: "RoPE pairs neighbouring dimensions instead of halves",
			program: everyLayer(func(f *function, l int) error {
				for _, x := range []string{"q", "k"} {
					if err := interleave(f, name(l, x)); err != nil {
						return err
					}
				}
				return nil
			}),
		},
		{
			Name: "rope-sign", Family: Graph, Gates: anyLogits, Sites: []string{"q"},
			What:    "RoPE turns queries backwards",
			program: everyLayer(func(f *function, l int) error { return flipSign(f, name(l, "q.neg"), name(l, "q")) }),
		},
		{
			Name: "rope-thetas-swapped", Family: Graph, Gates: anyLogits, Sites: []string{"q"}, Applies: sliding,
			What: "sliding layers rotate with the theta of full layers",
			program: everyLayer(func(f *function, l int) error {
				cos, sin := f.Input("cos_f"), f.Input("sin_f")
				if cos == nil || sin == nil {
					return nil // no full layer in this chunk
				}
				for _, x := range []string{"q", "k"} {
					c, err := f.op(name(l, x+"_cos"))
					if err != nil {
						return err
					}
					s, err := f.op(name(l, x+"_sin"))
					if err != nil {
						return err
					}
					c.Set("y", cos)
					s.Set("y", sin)
				}
				return nil
			}),
		},
		{
			Name: "qk-norm-missing", Family: Graph, Gates: anyLogits, Sites: []string{"q"}, Applies: qkNorm,
			What:    "queries of layer 1 skip their norm",
			program: inLayer(1, func(f *function) error { return f.rewire(name(1, "q_t"), "x", name(1, "q_norm_neg"), "x") }),
		},
		{
			Name: "norm-w-instead-of-1+w", Family: Graph, Gates: anyLogits, Sites: []string{"attn_norm"}, Applies: gemma,
			What: "the norm before attention of layer 2 multiplies by w, not 1+w",
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
			What: "the norm after attention of layer 1 is left out",
			program: inLayer(1, func(f *function) error {
				return f.rewire(name(1, "resid_mid"), "y", name(1, "post_attn_norm_neg"), "x")
			}),
		},
		{
			Name: "epsilon", Family: Graph, Exact: true, Gates: fine,
			Sites: []string{"attn_norm", "post_attn_norm", "mlp_norm", "post_mlp_norm"},
			What:  "the norms inside the layers use epsilon 1e-3",
			program: everyLayer(func(f *function, l int) error {
				for _, norm := range []string{"attn_norm", "post_attn_norm", "mlp_norm", "post_mlp_norm"} {
					if _, err := f.op(name(l, norm+"_normed")); err != nil {
						continue // not this architecture
					}
					err := f.floats(name(l, norm+"_normed"), "epsilon", func([]int, []float64) []float64 { return []float64{1e-3} })
					if err != nil {
						return err
					}
				}
				return nil
			}),
		},
		{
			Name: "gelu-kind", Family: Graph, Exact: true, Gates: fine, Sites: []string{"mlp_act"}, Applies: gemma,
			What: "GELU by the error function instead of tanh",
			program: everyLayer(func(f *function, l int) error {
				return f.bind(name(l, "gate_act"), "mode", mil.NewStr("EXACT"))
			}),
		},
		{
			Name: "silu-on-up", Family: Graph, Gates: anyLogits, Sites: []string{"mlp_act"},
			What: "the MLP of layer 1 multiplies gate without its activation",
			program: inLayer(1, func(f *function) error {
				return f.rewire(name(1, "mlp_act"), "x", name(1, "gate_act"), "x")
			}),
		},
		{
			Name: "attention-scale", Family: Graph, Gates: anyLogits, Sites: []string{"attn_ctx"},
			What: "scores of layer 0 are scaled by √2 too much, as if head_dim were half",
			program: inLayer(0, func(f *function) error {
				return f.floats(name(0, "q_scaled"), "y", scaled(1.4142135))
			}),
		},
		{
			Name: "kv-heads-swapped", Family: Graph, Gates: anyLogits, Sites: []string{"attn_ctx"},
			What:    "groups of query heads of layer 1 use each other's values",
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
			What:    "o_proj of layer 1, a square matrix, is stored transposed",
			Applies: func(c *chunking.Contract) bool { return c.Model.Heads*c.Model.HeadDim == c.Model.Hidden },
			program: inLayer(1, func(f *function) error { return f.floats(name(1, "attn_out"), "weight", transpose) }),
		},
		{
			Name: "bias-dropped", Family: Graph, Gates: anyLogits, Sites: []string{"q_proj"},
			What:    "q_proj of layer 0 loses its bias",
			Applies: func(c *chunking.Contract) bool { return c.Model.Architecture == "qwen2" },
			program: inLayer(0, func(f *function) error { return f.floats(name(0, "q_proj"), "bias", scaled(0)) }),
		},
		{
			Name: "residual-skipped", Family: Graph, Gates: anyLogits, Sites: []string{"out"},
			What: "layer 1 adds its MLP to the stream from before its attention",
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
			Name: "final-norm-gain", Family: Graph, Gates: anyLogits, Sites: []string{"final_norm"},
			What: "the gain of the final norm is half of what it should be",
			program: func(b *bundle) error {
				return b.edit(b.last(), func(f *function) error { return f.floats("final_norm_normed", "gamma", scaled(0.5)) })
			},
		},
		{
			Name: "head-rows-shifted", Family: Graph, Gates: anyLogits, Sites: []string{"logits"},
			What: "the head's matrix is one row off",
			program: func(b *bundle) error {
				return b.edit(b.last(), func(f *function) error {
					return f.floats("logits", "weight", func(shape []int, x []float64) []float64 {
						return append(append([]float64{}, x[shape[1]:]...), x[:shape[1]]...)
					})
				})
			},
		},
		{
			Name: "argmin", Family: Graph, Gates: []string{"token"},
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
			Name: "weights-differ-in-verify", Family: Graph, Gates: verifyLogits, Sites: []string{"mlp_gate"}, Applies: verifies,
			What: "verify has another gate_proj in layer 1 than decode",
			program: inLayer(1, func(f *function) error {
				if len(f.Name) < 6 || f.Name[:6] != "verify" {
					return nil
				}
				return f.floats(name(1, "gate"), "weight", scaled(1.25))
			}),
		},
		{
			Name: "fp16-overflow", Family: Graph, Gates: []string{"finite"},
			What: "up_proj of layer 1 is 2¹⁵ too large and down_proj as much too small: exact in fp32, infinite in fp16",
			program: inLayer(1, func(f *function) error {
				if err := f.floats(name(1, "up"), "weight", scaled(1<<15)); err != nil {
					return err
				}
				return f.floats(name(1, "mlp_out"), "weight", scaled(1.0/(1<<15)))
			}),
		},
	}
}
