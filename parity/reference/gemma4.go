package reference

import (
	"maps"
	"math"
	"slices"
	"strconv"
)

func readGemma4(o *object, c *Config) {
	readGemma4Text(o, c)
	c.PerLayer.Width = o.count("hidden_size_per_layer_input")
	vocab := o.count("vocab_size_per_layer_input")
	if width := c.PerLayer.Width; o.err == nil && width > 0 {
		if vocab == 0 {
			o.fail("vocab_size_per_layer_input: is 0, but hidden_size_per_layer_input is %d", width)
		}
		c.PerLayer.Vocab = vocab
		c.PerLayer.TokenScale = float32(math.Sqrt(float64(width)))
		c.PerLayer.ProjectionScale = inverseRoot(float64(c.Hidden))
		c.PerLayer.CombineScale = inverseRoot(2)
	}
	c.DoubleWide = o.flagOr("use_double_wide_mlp", false)

	sharing := o.count("num_kv_shared_layers")
	if o.err != nil {
		return
	}
	if sharing >= c.Layers {
		o.fail("num_kv_shared_layers: %d of %d layers share keys and values, so that none is left to compute them", sharing, c.Layers)
		return
	}
	first := c.Layers - sharing
	for layer, kind := range c.Kinds {
		source := layer
		for layer >= first && source >= 0 && (source >= first || c.Kinds[source] != kind) {
			source--
		}
		if source < 0 {
			o.fail("num_kv_shared_layers: layer %d shares the keys and values of a %v layer, but none of the first %d layers is one", layer, kind, first)
			return
		}
		c.KVSource = append(c.KVSource, source)
	}
}

// readGemma4Text reads what targets and drafters have in common.
func readGemma4Text(o *object, c *Config) {
	const pattern = 6 // every sixth layer is full unless layer_types says otherwise

	c.readShape(o)
	c.Vocab = o.size("vocab_size")
	c.Heads = o.size("num_attention_heads")
	c.KVHeads = o.size("num_key_value_heads")
	c.HeadDim = o.size("head_dim")
	c.MaxPositions = o.size("max_position_embeddings")
	c.NormEps = o.number("rms_norm_eps")
	c.Activation = o.text("hidden_activation")
	c.Sandwich, c.QKNorm, c.VNorm, c.LayerScalar = true, true, true, true
	c.QKVBias = o.flagOr("attention_bias", false)
	c.OutBias = c.QKVBias
	c.EmbedScale = float32(math.Sqrt(float64(c.Hidden)))
	c.ScoreScale = 1
	c.FinalSoftcap = float32(o.numberOr("final_logit_softcapping", 0))
	if o.flagOr("attention_k_eq_v", false) {
		o.fail("attention_k_eq_v: is true; layers that use their keys as values are not supported")
	}
	if o.flagOr("enable_moe_block", false) {
		o.fail("enable_moe_block: is true; mixtures of experts are not supported")
	}
	for _, key := range []string{"num_experts", "top_k_experts", "moe_intermediate_size"} {
		o.taken[key] = true // they describe the block that is off
	}
	// "vision" lets the tokens of one image see each other; text stays causal.
	if o.has("use_bidirectional_attention") && string(o.fields["use_bidirectional_attention"]) != "false" {
		if mode := o.text("use_bidirectional_attention"); mode != "vision" {
			o.fail("use_bidirectional_attention: is %q; only causal attention is supported", mode)
		}
	}
	c.Window = o.sizeOr("sliding_window", 0)
	if !c.readKinds(o) {
		c.kindsBy(func(layer int) bool { return (layer+1)%pattern != 0 && layer != c.Layers-1 })
	}
	if o.err == nil && c.Kinds[c.Layers-1] != FullAttention {
		o.fail("layer_types: the last layer is %v, but transformers makes it full_attention whatever is written here (correct the entry)", c.Kinds[c.Layers-1])
	}
	readGemma4Heads(o, c)
	readGemma4Rope(o, c)
}

// readGemma4Heads reads the dimensions of full layers. Published files have
// them in keys of their own; transformers writes exceptions by layer, and
// ignores num_global_key_value_heads unless values are keys.
func readGemma4Heads(o *object, c *Config) {
	dim, kvHeads := o.sizeOr("global_head_dim", 0), o.sizeOr("num_global_key_value_heads", 0)
	exceptions := o.object("per_layer_config")
	if o.err != nil {
		return
	}
	if exceptions == nil {
		if dim == 0 {
			o.fail("global_head_dim: key is missing, and per_layer_config too (the model cannot be computed without one)")
		}
		if kvHeads != 0 && kvHeads != c.KVHeads {
			o.fail("num_global_key_value_heads: is %d beside num_key_value_heads %d, but counts only where attention_k_eq_v is true (remove it)", kvHeads, c.KVHeads)
		}
		c.FullHeadDim, c.FullKVHeads = dim, c.KVHeads
		return
	}
	type heads struct{ dim, kv int }
	layers := slices.Repeat([]heads{{c.HeadDim, c.KVHeads}}, c.Layers)
	for _, key := range slices.Sorted(maps.Keys(exceptions.fields)) {
		layer, err := strconv.Atoi(key)
		if err != nil || layer < 0 || layer >= c.Layers || strconv.Itoa(layer) != key {
			exceptions.fail("%q is not one of the %d layers", key, c.Layers)
			break
		}
		at := exceptions.object(key)
		if at == nil {
			continue
		}
		layers[layer] = heads{at.sizeOr("head_dim", c.HeadDim), at.sizeOr("num_key_value_heads", c.KVHeads)}
		at.refuseRest(func(string) bool { return false })
		exceptions.adopt(at)
	}
	o.adopt(exceptions)
	if o.err != nil {
		return
	}
	full := layers[c.Layers-1]
	for layer, kind := range c.Kinds {
		want, of := full, "of the last layer"
		if kind == SlidingAttention {
			want, of = heads{c.HeadDim, c.KVHeads}, "beside it"
		}
		if got := layers[layer]; got != want {
			o.fail("per_layer_config: layer %d (%v) has head_dim %d and num_key_value_heads %d, which contradicts the %d and %d %s",
				layer, kind, got.dim, got.kv, want.dim, want.kv, of)
			return
		}
	}
	if dim != 0 && dim != full.dim {
		o.fail("global_head_dim: is %d, but per_layer_config says %d (keep one)", dim, full.dim)
	}
	if kvHeads != 0 && kvHeads != full.kv {
		o.fail("num_global_key_value_heads: is %d, but per_layer_config says %d (keep one)", kvHeads, full.kv)
	}
	c.FullHeadDim, c.FullKVHeads = full.dim, full.kv
}

// readGemma4Rope reads rope_parameters, which has an entry a layer type.
func readGemma4Rope(o *object, c *Config) {
	parameters := o.object("rope_parameters")
	if parameters == nil {
		c.FullRope = Rope{Type: "proportional", Theta: 1e6, Factor: 1, Partial: 0.25}
		c.SlidingRope = Rope{Type: "default", Theta: 1e4}
		return
	}
	read := func(kind LayerKind) Rope {
		at := parameters.object(kind.String())
		if at == nil {
			if slices.Contains(c.Kinds, kind) {
				parameters.missing(kind.String())
			}
			return Rope{Type: "default", Theta: 1e4}
		}
		if !at.has("rope_theta") {
			at.missing("rope_theta")
		}
		r := readRopeObject(at, 0, "proportional")
		parameters.adopt(at)
		return r
	}
	c.FullRope, c.SlidingRope = read(FullAttention), read(SlidingAttention)
	parameters.refuseRest(func(string) bool { return false })
	o.adopt(parameters)
}
