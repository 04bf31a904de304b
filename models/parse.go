package models

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ParseConfig reads a Hugging Face config.json. It knows the old and the new
// spelling of RoPE parameters, and text_config inside multimodal models.
//
// A key that it does not know is an error, since it may change the
// mathematics, unless its value is null, false or empty, or it is in ignore.
func ParseConfig(r io.Reader, ignore ...string) (*Config, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("models: config.json: %w", err)
	}
	o, err := newObject("config.json", data)
	if err != nil {
		return nil, err
	}
	arch, err := architecture(o)
	if err != nil {
		return nil, err
	}
	o.is(arch.modelType)
	if arch.nested {
		outer := o
		if o, err = outer.object("text_config"); err != nil {
			return nil, err
		}
		o.is(arch.modelType + "_text")
		outer.touch("tie_word_embeddings")
		outer.unread(ignore)
		o.join(outer)
		// Multimodal configs keep these beside the text part.
		for _, k := range []string{"eos_token_id", "bos_token_id", "tie_word_embeddings"} {
			if _, ok := o.m[k]; !ok {
				if v, ok := outer.m[k]; ok {
					o.m[k] = v
				}
			}
		}
		o.nested = arch.name == "gemma3"
	}
	c := &Config{Architecture: arch.name, ModelType: o.str("model_type", ""), BOS: -1, EmbedScale: 1}
	o.common(c)
	arch.read(o, c)
	o.specials(c)
	if o.err == nil {
		o.unread(ignore)
	}
	if o.err != nil {
		return nil, o.err
	}
	c.Defaulted = o.defaulted
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("models: %s: %w", o.name, err)
	}
	return c, nil
}

// archSpec is one entry of the list of architectures.
type archSpec struct {
	class     string // as in "architectures"
	name      string
	modelType string // as in "model_type"
	nested    bool   // the configuration is in text_config
	read      func(*object, *Config)
}

var archSpecs = []archSpec{
	{"LlamaForCausalLM", "llama", "llama", false, readLlama},
	{"Qwen2ForCausalLM", "qwen2", "qwen2", false, readQwen2},
	{"Qwen3ForCausalLM", "qwen3", "qwen3", false, readQwen3},
	{"Gemma3ForCausalLM", "gemma3", "gemma3_text", false, readGemma3},
	{"Gemma3ForConditionalGeneration", "gemma3", "gemma3", true, readGemma3},
	{"Gemma4ForCausalLM", "gemma4", "gemma4_text", false, readGemma4},
	{"Gemma4ForConditionalGeneration", "gemma4", "gemma4", true, readGemma4},
}

// is checks model_type, which may be left out.
func (o *object) is(modelType string) {
	if t := o.str("model_type", modelType); t != modelType {
		o.fail("model_type %q contradicts the architecture, whose type is %q", t, modelType)
	}
}

func architecture(o *object) (archSpec, error) {
	var names []string
	for _, a := range archSpecs {
		names = append(names, a.class)
	}
	var classes []string
	if raw, ok := o.m["architectures"]; !ok || json.Unmarshal(raw, &classes) != nil || len(classes) != 1 {
		return archSpec{}, fmt.Errorf("models: %s: \"architectures\" must name one class (known: %s)", o.name, strings.Join(names, ", "))
	}
	for _, a := range archSpecs {
		if a.class == classes[0] {
			return a, nil
		}
	}
	return archSpec{}, fmt.Errorf("models: %s: architecture %q is not supported (known: %s)", o.name, classes[0], strings.Join(names, ", "))
}

// maxLayers keeps a damaged number from becoming an endless list of layers.
const maxLayers = 4096

// common reads what all architectures share.
func (o *object) common(c *Config) {
	if c.Layers = o.int("num_hidden_layers"); c.Layers > maxLayers {
		o.fail("num_hidden_layers is %d, want at most %d", c.Layers, maxLayers)
		c.Layers = 0
	}
	c.Hidden = o.int("hidden_size")
	c.Intermediate = o.int("intermediate_size")
}

// heads reads the attention shape. head_dim may be absent or null where the
// architecture derives it.
func (o *object) heads(c *Config) {
	c.Heads = o.int("num_attention_heads")
	if c.KVHeads = c.Heads; !o.mha || !o.isNull("num_key_value_heads") {
		c.KVHeads = o.int("num_key_value_heads")
	}
	if o.isNull("head_dim") {
		if c.Heads > 0 {
			if c.Hidden%c.Heads != 0 {
				o.fail("hidden_size %d is not a multiple of num_attention_heads %d, and there is no head_dim", c.Hidden, c.Heads)
			}
			c.HeadDim = c.Hidden / c.Heads
		}
		return
	}
	c.HeadDim = o.int("head_dim")
}

// ownHeadDim refuses to derive head_dim where the architecture has a default of
// its own for it.
func (o *object) ownHeadDim() {
	if o.isNull("head_dim") {
		o.fail("key \"head_dim\" is missing")
	}
}

func (o *object) activation(c *Config, keys ...string) {
	for _, k := range keys {
		if o.isNull(k) {
			continue
		}
		name := o.str(k, "")
		switch name {
		case "silu", "swish":
			c.Activation = "silu"
		case "gelu_pytorch_tanh", "gelu_new", "gelu_fast":
			c.Activation = "gelu_tanh"
		case "gelu":
			c.Activation = "gelu"
		default:
			o.fail("%s %q is not supported (known: silu, gelu, gelu_pytorch_tanh, gelu_new)", k, name)
		}
		return
	}
	o.fail("key %q is missing", keys[0])
}

// ropeSpec reads one RoPE description.
func (o *object) ropeSpec(theta float64, dim int) Rope {
	r := Rope{Type: "default", Theta: theta, Dim: dim, Factor: 1}
	older := o.str("type", "")
	switch r.Type = o.str("rope_type", older); r.Type {
	case "":
		r.Type = "default"
	case older:
	default:
		if older != "" {
			o.fail("rope_type %q contradicts type %q", r.Type, older)
		}
	}
	if !o.isNull("rope_theta") {
		r.Theta = o.float("rope_theta")
		if theta != 0 && theta != r.Theta {
			o.fail("rope_theta %g contradicts %g beside this object", r.Theta, theta)
		}
	}
	switch r.Type {
	case "default":
	case "linear":
		r.Factor = o.float("factor")
	case "llama3":
		r.Factor = o.float("factor")
		r.LowFreqFactor = o.float("low_freq_factor")
		r.HighFreqFactor = o.float("high_freq_factor")
		r.OriginalMax = o.int("original_max_position_embeddings")
	default:
		o.fail("rope type %q is not supported (known: default, linear, llama3)", r.Type)
	}
	if p := o.floatOr("partial_rotary_factor", 1); p != 1 {
		o.fail("partial_rotary_factor %g is not supported for this architecture", p)
	}
	o.unread(nil)
	return r
}

// rope reads the single RoPE of Llama and Qwen in either spelling.
func (o *object) rope(c *Config) Rope {
	if p := o.floatOr("partial_rotary_factor", 1); p != 1 {
		o.fail("partial_rotary_factor %g is not supported for this architecture", p)
	}
	if !o.isNull("rope_parameters") {
		p := o.sub("rope_parameters")
		if p == nil {
			return Rope{}
		}
		o.onlyParameters()
		if p.isNull("rope_theta") && o.isNull("rope_theta") {
			o.fail("key \"rope_parameters.rope_theta\" is missing")
		}
		r := p.ropeSpec(o.floatOr("rope_theta", 0), c.HeadDim)
		o.join(p)
		return r
	}
	theta := o.float("rope_theta")
	if o.isNull("rope_scaling") {
		return Rope{Type: "default", Theta: theta, Dim: c.HeadDim, Factor: 1}
	}
	p := o.sub("rope_scaling")
	if p == nil {
		return Rope{}
	}
	r := p.ropeSpec(theta, c.HeadDim)
	o.join(p)
	return r
}

// onlyParameters refuses both spellings at once.
func (o *object) onlyParameters() {
	if !o.isNull("rope_scaling") {
		o.fail("rope_scaling and rope_parameters are both given (keep one)")
	}
}

// layerTypes reads an explicit layer_types list, or nil.
func (o *object) layerTypes() []Kind {
	if o.isNull("layer_types") {
		return nil
	}
	var names []string
	if json.Unmarshal(o.get("layer_types"), &names) != nil {
		o.fail("layer_types is not a list of strings")
		return nil
	}
	kinds := make([]Kind, len(names))
	for i, n := range names {
		switch n {
		case "full_attention":
			kinds[i] = Full
		case "sliding_attention":
			kinds[i] = Sliding
		default:
			o.fail("layer_types[%d] is %q, want full_attention or sliding_attention", i, n)
		}
	}
	return kinds
}

// specials reads the token ids that frame a text.
func (o *object) specials(c *Config) {
	if !o.isNull("bos_token_id") {
		c.BOS = o.int("bos_token_id")
	}
	if o.isNull("eos_token_id") {
		return
	}
	raw := o.get("eos_token_id")
	var n int
	if json.Unmarshal(raw, &n) == nil {
		c.EOS = []int{n}
	} else if json.Unmarshal(raw, &c.EOS) != nil {
		o.fail("eos_token_id is neither a number nor a list of numbers")
	}
}

func repeatKind(k Kind, n int) []Kind { return slices.Repeat([]Kind{k}, max(n, 0)) }
