package reference

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// family says how one architecture's config.json is read.
type family struct {
	modelType string
	nested    bool   // the decoder's keys are in text_config
	inner     string // model_type there
	tied      bool   // what a missing tie_word_embeddings means
	read      func(o *object, c *Config)
}

var families = map[string]family{
	"LlamaForCausalLM":               {modelType: "llama", read: readLlama},
	"Qwen2ForCausalLM":               {modelType: "qwen2", read: readQwen2},
	"Qwen3ForCausalLM":               {modelType: "qwen3", read: readQwen3},
	"Gemma3ForCausalLM":              {modelType: "gemma3_text", tied: true, read: readGemma3},
	"Gemma3ForConditionalGeneration": {modelType: "gemma3", nested: true, inner: "gemma3_text", tied: true, read: readGemma3},
	"Gemma4ForCausalLM":              {modelType: "gemma4_text", tied: true, read: readGemma4},
	"Gemma4ForConditionalGeneration": {modelType: "gemma4", nested: true, inner: "gemma4_text", tied: true, read: readGemma4},
}

func supported() string {
	return strings.Join(slices.Sorted(maps.Keys(families)), ", ")
}

// readSilu reads what Llama and the Qwens have in common: a pre-norm decoder
// with plain RMS norms and one rope for all layers.
func readSilu(o *object, c *Config) {
	c.readShape(o)
	c.Vocab = o.size("vocab_size")
	c.Heads = o.size("num_attention_heads")
	c.Activation = o.text("hidden_act")
	c.NormEps = o.number("rms_norm_eps")
	c.MaxPositions = o.size("max_position_embeddings")
	c.FullRope = readRope(o)
	c.SlidingRope = c.FullRope
}

func readLlama(o *object, c *Config) {
	readSilu(o, c)
	c.KVHeads = o.sizeOr("num_key_value_heads", c.Heads)
	c.readHeadDim(o)
	c.QKVBias = o.flagOr("attention_bias", false)
	c.OutBias = c.QKVBias
	c.MLPBias = o.flagOr("mlp_bias", false)
	c.ScoreScale = inverseRoot(float64(c.HeadDim))
	if !c.readKinds(o) {
		c.kindsBy(func(int) bool { return false })
	}
	if slices.Contains(c.Kinds, SlidingAttention) {
		o.fail("layer_types: LlamaForCausalLM has no sliding_attention")
	}
}

func readQwen2(o *object, c *Config) {
	readSilu(o, c)
	c.KVHeads = o.size("num_key_value_heads")
	c.readHeadDim(o)
	c.QKVBias = true
	if !o.flagOr("attention_bias", true) {
		o.fail("attention_bias: is false, but Qwen2ForCausalLM always has a bias on q, k and v")
	}
	c.ScoreScale = inverseRoot(float64(c.HeadDim))
	readQwenWindow(o, c)
}

func readQwen3(o *object, c *Config) {
	// Qwen3's class default; not hidden/heads.
	const defaultHeadDim = 128

	readSilu(o, c)
	c.KVHeads = o.size("num_key_value_heads")
	c.HeadDim = o.sizeOr("head_dim", defaultHeadDim)
	c.QKVBias = o.flagOr("attention_bias", false)
	c.OutBias = c.QKVBias
	c.QKNorm = true
	c.ScoreScale = inverseRoot(float64(c.HeadDim))
	readQwenWindow(o, c)
}

// readQwenWindow: the window counts only when use_sliding_window is true, and
// then from layer max_window_layers on unless layer_types says otherwise. A
// sliding_window of null switches it off.
func readQwenWindow(o *object, c *Config) {
	on := o.flagOr("use_sliding_window", false)
	if _, present := o.fields["sliding_window"]; on && !present {
		o.missing("sliding_window")
	}
	window := o.sizeOr("sliding_window", 0)
	first := c.Layers
	if !o.decode("max_window_layers", &first, "an integer") && on && window > 0 && !o.has("layer_types") {
		o.missing("max_window_layers")
	}
	if on {
		c.Window = window
	}
	if !c.readKinds(o) {
		c.kindsBy(func(layer int) bool { return c.Window > 0 && layer >= first })
	}
	if o.err == nil && slices.Contains(c.Kinds, SlidingAttention) && c.Window == 0 {
		o.fail("layer_types: has sliding_attention, but use_sliding_window is not true or sliding_window is not set")
	}
}

// readGemma3 falls back on the class defaults of Gemma3TextConfig where the
// published multimodal checkpoints do: their text_config names only what
// differs from them.
func readGemma3(o *object, c *Config) {
	const (
		vocab        = 262208
		heads        = 8
		kvHeads      = 4
		headDim      = 256
		queryScalar  = 256
		maxPositions = 131072
		window       = 4096
		pattern      = 6
		eps          = 1e-6
	)
	c.readShape(o)
	c.Vocab = o.sizeOr("vocab_size", vocab)
	c.Heads = o.sizeOr("num_attention_heads", heads)
	c.KVHeads = o.sizeOr("num_key_value_heads", kvHeads)
	c.HeadDim = o.sizeOr("head_dim", headDim)
	c.MaxPositions = o.sizeOr("max_position_embeddings", maxPositions)
	c.NormEps = o.numberOr("rms_norm_eps", eps)
	c.Activation = o.textOr("hidden_activation", "gelu_pytorch_tanh")
	if o.has("hidden_act") && o.text("hidden_act") != c.Activation {
		o.fail("hidden_act: differs from hidden_activation %q, which is the key Gemma 3 uses", c.Activation)
	}
	c.UnitOffset, c.Sandwich, c.QKNorm = true, true, true
	c.QKVBias = o.flagOr("attention_bias", false)
	c.OutBias = c.QKVBias
	c.EmbedScale = float32(math.Sqrt(float64(c.Hidden)))
	c.ScoreScale = inverseRoot(o.numberOr("query_pre_attn_scalar", queryScalar))
	c.ScoreSoftcap = float32(o.numberOr("attn_logit_softcapping", 0))
	c.FinalSoftcap = float32(o.numberOr("final_logit_softcapping", 0))
	if o.flagOr("use_bidirectional_attention", false) {
		o.fail("use_bidirectional_attention: is true; only causal attention is supported")
	}

	c.Window = o.sizeOr("sliding_window", 0)
	if _, present := o.fields["sliding_window"]; !present {
		c.Window = window
	}
	every := o.sizeOr("sliding_window_pattern", o.sizeOr("_sliding_window_pattern", pattern))
	if !c.readKinds(o) && every > 0 {
		c.kindsBy(func(layer int) bool { return (layer+1)%every != 0 })
	}
	readGemma3Rope(o, c)
}
