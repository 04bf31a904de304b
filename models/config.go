package models

import (
	"fmt"
	"math"
)

// Kind is the kind of attention of a layer.
type Kind string

// The kinds of attention layers.
const (
	Full    Kind = "full"    // attends to every earlier position
	Sliding Kind = "sliding" // attends to the last Window positions, itself included
)

// Config is a model configuration in normal form: every spelling that
// config.json files use has been resolved, every default filled in.
type Config struct {
	Architecture string `json:"architecture"` // "llama", "qwen2", "qwen3", "gemma3"
	ModelType    string `json:"model_type"`   // as in config.json

	Layers       int `json:"layers"`
	Hidden       int `json:"hidden_size"`
	Intermediate int `json:"intermediate_size"`
	Vocab        int `json:"vocab_size"`
	Heads        int `json:"num_attention_heads"`
	KVHeads      int `json:"num_key_value_heads"`
	HeadDim      int `json:"head_dim"`
	MaxPositions int `json:"max_positions"`

	Eps        float64 `json:"rms_norm_eps"`   // of every RMS norm
	NormOffset float64 `json:"norm_offset"`    // gains are NormOffset + w: 1 for Gemma, else 0
	QKNorm     bool    `json:"qk_norm"`        // per-head RMS norm of q and k before RoPE
	Sandwich   bool    `json:"sandwich_norms"` // norms after attention and MLP as well as before

	QKVBias bool `json:"qkv_bias"`
	OBias   bool `json:"o_bias"`
	MLPBias bool `json:"mlp_bias"`

	Activation   string  `json:"activation"`        // "silu", "gelu_tanh", "gelu"
	AttnScale    float64 `json:"attention_scale"`   // factor on q·k
	AttnSoftcap  float64 `json:"attention_softcap"` // 0: none
	FinalSoftcap float64 `json:"final_softcap"`     // 0: none
	EmbedScale   float64 `json:"embedding_scale"`   // factor on embedding rows
	Tied         bool    `json:"tied_head"`         // the head is the embedding table

	Window int           `json:"sliding_window"` // 0 if there are no sliding layers
	Kinds  []Kind        `json:"layer_kinds"`
	Rope   map[Kind]Rope `json:"rope"`

	// Gemma 4 only; zero values elsewhere.
	PerLayer    int           `json:"per_layer_dim,omitempty"`             // width of the per-layer embeddings of a token
	KVSource    []int         `json:"kv_source,omitempty"`                 // per layer: whose keys and values it reads; nil: its own
	SharedWide  bool          `json:"shared_layers_double_wide,omitempty"` // layers without keys of their own have an MLP twice as wide
	VNorm       bool          `json:"v_norm,omitempty"`                    // RMS norm of v, without gain
	LayerScalar bool          `json:"layer_scalar,omitempty"`              // every layer ends with a factor on the residual stream
	DimsOf      map[Kind]Dims `json:"dims,omitempty"`                      // where kinds of layers differ in shape

	BOS int   `json:"bos_token_id"`  // -1: none
	EOS []int `json:"eos_token_ids"` // may be empty

	// Defaulted lists keys that config.json left out and for which the
	// published default of the architecture was taken.
	Defaulted []string `json:"defaulted_keys,omitempty"`
}

// HasKind reports whether any layer in [first, last) has kind k.
func (c *Config) HasKind(k Kind, first, last int) bool { return c.CountKind(k, first, last) > 0 }

// CountKind counts the layers of kind k in [first, last).
func (c *Config) CountKind(k Kind, first, last int) int {
	n := 0
	for _, x := range c.Kinds[first:last] {
		if x == k {
			n++
		}
	}
	return n
}

// AllKinds are the kinds that occur, full first.
func (c *Config) AllKinds() []Kind {
	var out []Kind
	for _, k := range []Kind{Full, Sliding} {
		if c.HasKind(k, 0, c.Layers) {
			out = append(out, k)
		}
	}
	return out
}

// check finds contradictions that would otherwise surface as shape errors.
func (c *Config) check() error {
	for _, d := range []struct {
		name string
		v    int
	}{
		{"num_hidden_layers", c.Layers}, {"hidden_size", c.Hidden}, {"intermediate_size", c.Intermediate},
		{"vocab_size", c.Vocab}, {"num_attention_heads", c.Heads}, {"num_key_value_heads", c.KVHeads},
		{"head_dim", c.HeadDim}, {"max_position_embeddings", c.MaxPositions},
	} {
		if d.v <= 0 {
			return fmt.Errorf("%s is %d, want a positive number", d.name, d.v)
		}
	}
	if c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("num_attention_heads %d is not a multiple of num_key_value_heads %d", c.Heads, c.KVHeads)
	}
	if c.HeadDim%2 != 0 {
		return fmt.Errorf("head_dim %d is odd; RoPE needs pairs", c.HeadDim)
	}
	if c.Eps <= 0 {
		return fmt.Errorf("rms_norm_eps is %g, want a positive number", c.Eps)
	}
	if c.AttnScale <= 0 || math.IsInf(c.AttnScale, 0) || math.IsNaN(c.AttnScale) {
		return fmt.Errorf("the attention scale is %g, want a positive number (is query_pre_attn_scalar positive?)", c.AttnScale)
	}
	if c.AttnSoftcap < 0 || c.FinalSoftcap < 0 {
		return fmt.Errorf("soft caps are %g (attention) and %g (final), want positive numbers", c.AttnSoftcap, c.FinalSoftcap)
	}
	if len(c.Kinds) != c.Layers {
		return fmt.Errorf("layer_types has %d entries for %d layers", len(c.Kinds), c.Layers)
	}
	if c.HasKind(Sliding, 0, c.Layers) && c.Window <= 0 {
		return fmt.Errorf("sliding_window is %d but there are sliding layers", c.Window)
	}
	if c.PerLayer < 0 {
		return fmt.Errorf("hidden_size_per_layer_input is %d, want a positive number or 0", c.PerLayer)
	}
	for _, k := range c.AllKinds() {
		if d := c.Dims(k); d.KVHeads <= 0 || c.Heads%d.KVHeads != 0 || d.HeadDim <= 0 || d.HeadDim%2 != 0 {
			return fmt.Errorf("%s layers have %d heads of size %d over %d key heads", k, c.Heads, d.HeadDim, d.KVHeads)
		}
		r, ok := c.Rope[k]
		if !ok {
			return fmt.Errorf("no RoPE parameters for %s layers", k)
		}
		if err := r.check(c.Dims(k).HeadDim); err != nil {
			return err
		}
	}
	return nil
}
