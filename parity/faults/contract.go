package faults

import (
	"fmt"
	"maps"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
)

// contractFaults are contracts that say what the model does not mean. The
// graph does not change, the host follows the contract.
func contractFaults() []Fault {
	gate := []string{"contract"}
	window := func(by int) func(*chunking.Contract) {
		return func(c *chunking.Contract) {
			a := c.Attention[models.Sliding]
			a.Window += by
			c.Attention[models.Sliding] = a
		}
	}
	return []Fault{
		{
			Name: "contract-window", Family: Artifact, Gates: gate, Applies: sliding, Says: "window of sliding layers",
			What: "the contract's window is one too small", contract: window(-1),
		},
		{
			Name: "contract-theta", Family: Artifact, Gates: gate, Says: "RoPE of",
			What: "the contract's RoPE frequencies belong to twice the theta",
			contract: func(c *chunking.Contract) {
				for k, a := range maps.Clone(c.Attention) {
					a.InvFreq = doubleTheta(a.InvFreq)
					c.Attention[k] = a
				}
			},
		},
		{
			Name: "contract-rope-tail", Family: Artifact, Gates: gate, Says: "RoPE of full layers", Applies: gemma4,
			What: "the contract turns the tail of full layers' heads, which is at rest", Cause: "RoPE turns the tail of full layers' heads, which is at rest",
			contract: func(c *chunking.Contract) {
				a := c.Attention[models.Full]
				a.InvFreq = wholeTail(a.InvFreq)
				c.Attention[models.Full] = a
			},
		},
		{
			Name: "contract-mask", Family: Artifact, Gates: gate, Says: "mask value",
			What:     "blocked scores get -8, which a softmax still sees",
			Cause:    "blocked scores get a value that a softmax still sees",
			contract: func(c *chunking.Contract) { c.Mask.Blocked = -8 },
		},
		{
			Name: "contract-embed-scale", Family: Artifact, Gates: gate, Says: "embedding scale",
			What:     "the contract's embedding scale is half of what it should be",
			contract: func(c *chunking.Contract) { c.Embedding.Scale /= 2 },
		},
		{
			Name: "contract-per-layer-scale", Family: Artifact, Gates: gate, Says: "per-layer table's scale", Applies: gemma4,
			What:     "the contract leaves out the per-layer table's factor √P (16 in E2B)",
			contract: func(c *chunking.Contract) { c.PerLayer.Scale = 1 },
		},
		{
			Name: "contract-kinds", Family: Artifact, Gates: gate, Says: "layer ",
			Applies:  func(c *chunking.Contract) bool { return switchOf(c) > 0 && !gemma4(c) },
			What:     "two layers of different kinds have changed places in the contract",
			Cause:    "the layer pattern is off by one",
			contract: func(c *chunking.Contract) { exchange(c, switchOf(c)) },
		},
		{
			Name: "contract-context", Family: Artifact, Gates: gate, Says: "contract",
			What:     "the context is larger than the graph's caches",
			contract: func(c *chunking.Contract) { growContext(c) },
		},
		{
			Name: "contract-bos", Family: Artifact, Gates: []string{"source", "tokenizer"}, Says: "contract", Applies: func(c *chunking.Contract) bool { return c.Model.BOS >= 0 },
			What: "the contract names another BOS than config.json", Cause: "the contract was edited by hand",
			contract: func(c *chunking.Contract) { c.Model.BOS++ },
		},
	}
}

// switchOf is the first layer that has another kind than the one before it and
// shares a chunk with it; 0 if there is none.
func switchOf(c *chunking.Contract) int {
	for _, ch := range c.Chunks {
		for i := ch.First + 1; i < ch.Last; i++ {
			if c.Model.Kinds[i] != c.Model.Kinds[i-1] {
				return i
			}
		}
	}
	return 0
}

// exchange swaps layers i-1 and i wherever the contract speaks of kinds.
func exchange(c *chunking.Contract, i int) {
	k := c.Model.Kinds
	k[i-1], k[i] = k[i], k[i-1]
	for _, ch := range c.Chunks {
		for _, f := range ch.Functions {
			for _, ports := range [][]chunking.Port{f.Inputs, f.Outputs, f.States} {
				for _, p := range ports {
					for j, l := range p.Layers {
						switch l {
						case i - 1:
							p.Layers[j] = i
						case i:
							p.Layers[j] = i - 1
						}
					}
				}
			}
		}
	}
}

// growContext doubles the linear caches everywhere in the contract.
func growContext(c *chunking.Contract) {
	c.Context *= 2
	for k, a := range maps.Clone(c.Attention) {
		if a.Layout != chunking.Linear {
			continue
		}
		old := a.Slots
		a.Slots *= 2
		c.Attention[k] = a
		for i := range c.Chunks {
			for j := range c.Chunks[i].Functions {
				f := &c.Chunks[i].Functions[j]
				for _, ports := range [][]chunking.Port{f.Inputs, f.Outputs, f.States} {
					for p := range ports {
						switch q := &ports[p]; {
						case q.Kind != k:
						case q.Role == models.Mask:
							q.Shape[3] += old
						case len(q.Shape) == 4 && q.Shape[2] == old:
							q.Shape[2] *= 2
						}
					}
				}
			}
		}
	}
}

// misreadFaults are conversions by a converter that misreads config.json. What
// they write belongs together; config.json in it is right.
func misreadFaults() []Fault {
	gate := []string{"contract"}
	number := func(key string, change func(float64) float64) func(map[string]any) {
		return func(c map[string]any) {
			if v, ok := c[key].(float64); ok {
				c[key] = change(v)
			}
		}
	}
	return []Fault{
		{
			Name: "pattern-off-by-one", Family: Artifact, Gates: gate, Says: "layer ", Applies: all(sliding, not(gemma4)),
			What: "the layer pattern is off by one: every full layer is taken for sliding and the one behind it for full", Cause: "the layer pattern is off by one",
			config: func(c map[string]any) {
				if t, ok := c["layer_types"].([]any); ok {
					c["layer_types"] = append([]any{t[len(t)-1]}, t[:len(t)-1]...)
				}
			},
		},
		{
			Name: "partial-factor-ignored", Family: Artifact, Gates: gate, Says: "RoPE of full layers", Applies: gemma4,
			What: "partial_rotary_factor is read but not applied", Cause: "RoPE turns the tail of full layers' heads, which is at rest",
			config: func(c map[string]any) {
				if full, ok := sub(c, "rope_parameters", "full_attention"); ok {
					full["partial_rotary_factor"] = 1.0
				}
			},
		},
		{
			Name: "window-misread", Family: Artifact, Gates: gate, Says: "window of sliding layers", Applies: sliding,
			What: "the window is read as one position more", Cause: "the contract's window is one too large",
			config: number("sliding_window", func(v float64) float64 { return v + 1 }),
		},
		{
			Name: "theta-misread", Family: Artifact, Gates: gate, Says: "RoPE of", Applies: sliding,
			What: "full layers get the theta of sliding ones", Cause: "the RoPE theta of full layers is that of sliding ones",
			config: func(c map[string]any) {
				full, ok := sub(c, "rope_parameters", "full_attention")
				other, ok2 := sub(c, "rope_parameters", "sliding_attention")
				if ok && ok2 {
					full["rope_theta"] = other["rope_theta"]
				}
			},
		},
		{
			Name: "query-scale-misread", Family: Artifact, Gates: anyLogits, Sites: []string{"attn_ctx"}, Applies: gemma3,
			What: "query_pre_attn_scalar is read as half of it", Cause: "scores are scaled by √2 too much, as if head_dim were half",
			config: number("query_pre_attn_scalar", func(v float64) float64 { return v / 2 }),
		},
		{
			Name: "softcap-misread", Family: Artifact, Gates: anyLogits, Sites: []string{"logits"}, Applies: gemma4,
			What:   "final_logit_softcapping is read as half of it",
			config: number("final_logit_softcapping", func(v float64) float64 { return v / 2 }),
		},
		{
			Name: "activation-misread", Family: Artifact, Gates: append(append([]string{}, anyLogits...), fine...), Sites: []string{"mlp_act"}, Applies: gemma3,
			What: "the activation is read as SiLU", Form: formExact,
			config: func(c map[string]any) { c["hidden_activation"] = "silu" },
		},
	}
}

func sub(c map[string]any, keys ...string) (map[string]any, bool) {
	for _, k := range keys {
		next, ok := c[k].(map[string]any)
		if !ok {
			return nil, false
		}
		c = next
	}
	return c, true
}

// misread converts the checkpoint again with another config.json, and puts the
// right one into the bundle.
func (b *bundle) misread(change func(map[string]any)) error {
	source := b.contract.Source.SHA256
	if err := b.convertChanged(change); err != nil {
		return err
	}
	c, err := chunking.ReadContract(b.dir)
	if err != nil {
		return fmt.Errorf("faults: %w", err)
	}
	b.contract = c
	return b.restamp(source)
}
