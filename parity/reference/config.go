package reference

import (
	"math"
	"slices"
	"strings"
)

// LayerKind says which earlier positions a layer attends to.
type LayerKind int

const (
	// FullAttention attends to every position up to its own.
	FullAttention LayerKind = iota
	// SlidingAttention attends to the last Config.Window positions, its own
	// included.
	SlidingAttention
)

// String returns the spelling used in config.json.
func (k LayerKind) String() string {
	if k == SlidingAttention {
		return "sliding_attention"
	}
	return "full_attention"
}

// Config is a decoder's config.json in one normal form: plain data, every
// default resolved.
type Config struct {
	Architecture string // as in config.json, e.g. "Gemma3ForCausalLM"

	Layers       int
	Hidden       int
	Intermediate int
	Vocab        int
	Heads        int // query heads
	KVHeads      int
	HeadDim      int
	MaxPositions int
	// Of the full layers. They differ from KVHeads and HeadDim in Gemma 4 only.
	FullKVHeads, FullHeadDim int

	Kinds  []LayerKind // one a layer
	Window int         // width of sliding layers; 0 when there are none
	// KVSource has for each layer the one whose keys and values it reads: in
	// Gemma 4 an earlier one, where layers share, else its own. In a drafter it
	// is TargetKV.
	KVSource []int
	// DoubleWide: where keys and values are another layer's, the MLP has twice
	// the width.
	DoubleWide bool
	// Rope of full and of sliding layers. They differ in the Gemmas only.
	FullRope, SlidingRope Rope

	Activation string  // as in config.json, e.g. "silu"
	NormEps    float64 // added to the mean square in every RMS norm
	UnitOffset bool    // RMS norms multiply by 1+w instead of w
	Sandwich   bool    // norms after attention and after the MLP, before the residual sum
	QKNorm     bool    // RMS norm over each head of q and k, before rope
	VNorm      bool    // RMS norm without a weight over each head of v
	// LayerScalar: a stored number multiplies the residual stream after each
	// layer.
	LayerScalar bool

	QKVBias, OutBias, MLPBias bool
	TiedHead                  bool // the head is the embedding matrix

	EmbedScale   float32 // multiplies embedding rows; 1 where there is none
	ScoreScale   float32 // multiplies q·k
	ScoreSoftcap float32 // s → cap·tanh(s/cap) on scaled scores; 0: none
	FinalSoftcap float32 // the same on logits; 0: none

	PerLayer PerLayer
}

// PerLayer describes per-layer embeddings: beside the residual stream every
// layer receives a vector of its own for each token. Width 0: there are none.
type PerLayer struct {
	Width, Vocab    int     // of the table: [Vocab, layers·Width]
	TokenScale      float32 // multiplies rows of the table
	ProjectionScale float32 // multiplies the projected embedding, before its norm
	CombineScale    float32 // multiplies the sum of both
}

// TargetKV in Config.KVSource stands for keys and values that another model
// delivers.
const TargetKV = -1

// Layer is what one layer of a Config has for itself.
type Layer struct {
	Kind             LayerKind
	KVHeads, HeadDim int
	KVSource         int
	Intermediate     int
}

// Layer returns the dimensions of layer i.
func (c *Config) Layer(i int) Layer {
	l := Layer{Kind: c.Kinds[i], KVHeads: c.KVHeads, HeadDim: c.HeadDim, KVSource: c.KVSource[i], Intermediate: c.Intermediate}
	if l.Kind == FullAttention {
		l.KVHeads, l.HeadDim = c.FullKVHeads, c.FullHeadDim
	}
	if c.DoubleWide && l.KVSource != i {
		l.Intermediate *= 2
	}
	return l
}

// ParseConfig reads config.json. For multimodal architectures it reads
// text_config.
func ParseConfig(configJSON []byte) (Config, error) {
	root, err := parseObject("config.json", configJSON)
	if err != nil {
		return Config{}, err
	}
	var c Config
	switch archs := root.texts("architectures"); {
	case root.err != nil:
	case len(archs) != 1:
		root.fail("architectures: want one name, got %d", len(archs))
	default:
		c.Architecture = archs[0]
	}
	family, ok := families[c.Architecture]
	if root.err == nil && c.Architecture == drafterArchitecture {
		root.fail("architectures: %s is a drafter, which runs on a target's keys and values (use OpenDrafter)", c.Architecture)
	}
	if root.err == nil && !ok {
		root.fail("architectures: %q is not supported (supported: %s)", c.Architecture, supported())
	}
	if root.err != nil {
		return Config{}, root.err
	}
	if t := root.textOr("model_type", family.modelType); t != family.modelType {
		root.fail("model_type: %q does not belong to %s (want %q)", t, c.Architecture, family.modelType)
	}

	o := root
	if family.nested {
		o = root.object("text_config")
		if o == nil {
			if root.err == nil {
				root.missing("text_config")
			}
			return Config{}, root.err
		}
		if t := o.textOr("model_type", family.inner); t != family.inner {
			o.fail("model_type: %q does not belong to %s (want %q)", t, c.Architecture, family.inner)
		}
		o.taken["architectures"] = true
		root.refuseRest(neutralOutside)
		if root.has("tie_word_embeddings") && o.has("tie_word_embeddings") &&
			root.flagOr("tie_word_embeddings", true) != o.flagOr("tie_word_embeddings", true) {
			root.fail("tie_word_embeddings: differs from the one in text_config")
		}
		family.tied = root.flagOr("tie_word_embeddings", family.tied)
		o.err = either(root.err, o.err)
	}
	c.TiedHead = o.flagOr("tie_word_embeddings", family.tied)
	family.read(o, &c)
	c.check(o)
	o.refuseRest(neutral)
	if o.err != nil {
		return Config{}, o.err
	}
	return c, nil
}

// check tests what holds for every family, and fills in what most of them do
// not distinguish.
func (c *Config) check(o *object) {
	if o.err != nil {
		return
	}
	if c.FullHeadDim == 0 {
		c.FullHeadDim = c.HeadDim
	}
	if c.FullKVHeads == 0 {
		c.FullKVHeads = c.KVHeads
	}
	if c.KVSource == nil {
		for layer := range c.Layers {
			c.KVSource = append(c.KVSource, layer)
		}
	}
	for _, n := range []int{c.KVHeads, c.FullKVHeads} {
		if c.Heads%n != 0 {
			o.fail("num_key_value_heads: %d does not divide num_attention_heads %d", n, c.Heads)
		}
	}
	for _, n := range []int{c.HeadDim, c.FullHeadDim} {
		if n%2 != 0 {
			o.fail("head_dim: rope needs an even number, got %d", n)
		}
	}
	if _, ok := activations[c.Activation]; !ok {
		o.fail("activation %q is not supported (supported: %s)", c.Activation, activationNames())
	}
	if slices.Contains(c.Kinds, SlidingAttention) {
		if c.Window <= 0 {
			o.fail("sliding_window: key is missing, but some layers are sliding_attention")
		}
	} else {
		c.Window = 0
	}
}

// readShape reads what every family spells alike.
func (c *Config) readShape(o *object) {
	// A damaged number must not turn into an endless list of layers.
	const maxLayers = 4096
	if c.Layers = o.size("num_hidden_layers"); c.Layers > maxLayers {
		o.fail("num_hidden_layers: %d is more than the %d this package accepts", c.Layers, maxLayers)
		c.Layers = 0
	}
	c.Hidden = o.size("hidden_size")
	c.Intermediate = o.size("intermediate_size")
	c.EmbedScale = 1
}

// headDim is hidden/heads unless config.json says otherwise.
func (c *Config) readHeadDim(o *object) {
	if o.has("head_dim") {
		c.HeadDim = o.size("head_dim")
		return
	}
	o.taken["head_dim"] = true
	if o.err != nil {
		return
	}
	if c.Hidden%c.Heads != 0 {
		o.fail("head_dim: key is missing and hidden_size %d is not a multiple of num_attention_heads %d", c.Hidden, c.Heads)
		return
	}
	c.HeadDim = c.Hidden / c.Heads
}

// readKinds reads an explicit list of layer types; false when there is none.
func (c *Config) readKinds(o *object) bool {
	if !o.has("layer_types") {
		o.taken["layer_types"] = true
		return false
	}
	types := o.texts("layer_types")
	if o.err != nil {
		return true
	}
	if len(types) != c.Layers {
		o.fail("layer_types: has %d entries for num_hidden_layers %d", len(types), c.Layers)
		return true
	}
	for i, t := range types {
		switch t {
		case FullAttention.String():
			c.Kinds = append(c.Kinds, FullAttention)
		case SlidingAttention.String():
			c.Kinds = append(c.Kinds, SlidingAttention)
		default:
			o.fail("layer_types: entry %d: unknown layer type %q", i, t)
			return true
		}
	}
	return true
}

// kindsBy fills Kinds from a rule.
func (c *Config) kindsBy(sliding func(layer int) bool) {
	for i := range c.Layers {
		kind := FullAttention
		if sliding(i) {
			kind = SlidingAttention
		}
		c.Kinds = append(c.Kinds, kind)
	}
}

func inverseRoot(x float64) float32 { return float32(1 / math.Sqrt(x)) }

func either(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// neutralKeys are keys of config.json that describe training, serving or
// bookkeeping, and never what the decoder computes at inference.
var neutralKeys = map[string]bool{
	"architectures": true, "attention_dropout": true, "attn_implementation": true, "auto_map": true,
	"bos_token_id": true, "cache_implementation": true, "dtype": true, "eos_token_id": true,
	"hidden_dropout": true, "id2label": true, "initializer_range": true, "label2id": true,
	"model_type": true, "num_labels": true, "output_attentions": true,
	"output_hidden_states": true, "pad_token_id": true, "pretraining_tp": true, "problem_type": true,
	"return_dict": true, "task_specific_params": true, "tokenizer_class": true, "torch_dtype": true,
	"transformers.js_config": true, "transformers_version": true, "unsloth_fixed": true,
	"unsloth_version": true, "use_cache": true,
}

// neutral reports whether a key of the decoder's config can be left unread.
// Keys that begin with an underscore are private notes of transformers.
func neutral(key string) bool { return neutralKeys[key] || strings.HasPrefix(key, "_") }

// neutralOutside does the same for the keys around text_config: everything
// that belongs to the vision and audio sides.
func neutralOutside(key string) bool {
	switch key {
	case "boi_token_index", "eoi_token_index", "image_token_index", "image_token_id", "mm_tokens_per_image",
		"boi_token_id", "eoi_token_id", "vision_config", "vision_soft_tokens_per_image", "video_token_id",
		"audio_config", "audio_token_id", "boa_token_id", "eoa_token_id", "eoa_token_index", "tie_word_embeddings":
		return true
	}
	return neutral(key)
}
