package models

import "math"

// readGemma3 reads the text model of Gemma 3: gains 1+w, norms before and
// after attention and MLP, q and k norm, embeddings scaled by √hidden, a
// pattern of sliding and full layers with a RoPE each.
func readGemma3(o *object, c *Config) {
	// text_config of the multimodal checkpoints leaves these out.
	for _, d := range [][2]string{
		{"vocab_size", "262208"}, {"num_attention_heads", "8"}, {"num_key_value_heads", "4"}, {"head_dim", "256"},
		{"max_position_embeddings", "131072"}, {"rms_norm_eps", "1e-06"}, {"query_pre_attn_scalar", "256"},
		{"hidden_activation", `"gelu_pytorch_tanh"`}, {"tie_word_embeddings", "true"}, {"sliding_window", "4096"},
	} {
		o.published(d[0], d[1])
	}
	o.ownHeadDim()
	o.heads(c)
	c.Vocab = o.int("vocab_size")
	c.MaxPositions = o.int("max_position_embeddings")
	c.Eps = o.float("rms_norm_eps")
	o.activation(c, "hidden_activation", "hidden_act")
	if a, b := o.str("hidden_activation", ""), o.str("hidden_act", ""); a != "" && b != "" && a != b {
		o.fail("hidden_act %q contradicts hidden_activation %q", b, a)
	}
	c.Tied = o.boolOr("tie_word_embeddings", true)
	c.NormOffset, c.QKNorm, c.Sandwich = 1, true, true
	bias := o.boolOr("attention_bias", false)
	c.QKVBias, c.OBias = bias, bias
	c.AttnScale = 1 / math.Sqrt(o.float("query_pre_attn_scalar"))
	c.AttnSoftcap = o.floatOr("attn_logit_softcapping", 0)
	c.FinalSoftcap = o.floatOr("final_logit_softcapping", 0)
	c.EmbedScale = sqrt32(c.Hidden)
	if o.boolOr("use_bidirectional_attention", false) {
		o.fail("use_bidirectional_attention is not supported: the cache needs causal attention")
	}
	if !o.isNull("sliding_window") {
		c.Window = o.int("sliding_window")
	}
	o.gemmaKinds(c)
	o.gemmaRope(c)
}

// gemmaKinds reads the pattern: layer_types, or a full layer every
// sliding_window_pattern layers.
func (o *object) gemmaKinds(c *Config) {
	if c.Kinds = o.layerTypes(); c.Kinds != nil {
		o.touch("sliding_window_pattern")
		return
	}
	key := "sliding_window_pattern"
	if o.isNull(key) && !o.isNull("_sliding_window_pattern") {
		key = "_sliding_window_pattern"
	}
	o.published(key, "6")
	every := o.int(key)
	if every <= 0 {
		o.fail("%s is %d, want a positive number", key, every)
		return
	}
	c.Kinds = repeatKind(Sliding, c.Layers)
	for i := every - 1; i < c.Layers; i += every {
		c.Kinds[i] = Full
	}
}

// gemmaRope reads rope_parameters per kind, or the older rope_theta,
// rope_scaling and rope_local_base_freq.
func (o *object) gemmaRope(c *Config) {
	c.Rope = map[Kind]Rope{}
	if o.isNull("rope_parameters") {
		o.published("rope_theta", "1000000.0")
		o.published("rope_local_base_freq", "10000.0")
		c.Rope[Full] = o.rope(c)
		c.Rope[Sliding] = Rope{Type: "default", Theta: o.float("rope_local_base_freq"), Dim: c.HeadDim, Factor: 1}
		return
	}
	o.onlyParameters()
	p := o.sub("rope_parameters")
	if p == nil {
		return
	}
	for _, k := range []struct {
		kind       Kind
		key, older string
	}{{Full, "full_attention", "rope_theta"}, {Sliding, "sliding_attention", "rope_local_base_freq"}} {
		theta := o.floatOr(k.older, 0)
		if p.isNull(k.key) {
			if c.HasKind(k.kind, 0, min(c.Layers, len(c.Kinds))) {
				o.fail("key \"rope_parameters.%s\" is missing", k.key)
			}
			continue
		}
		q := p.sub(k.key)
		if q == nil {
			break
		}
		if q.isNull("rope_theta") && theta == 0 {
			q.fail("key \"rope_theta\" is missing")
		}
		c.Rope[k.kind] = q.ropeSpec(theta, c.HeadDim)
		o.join(q)
	}
	p.unread(nil)
	o.join(p)
}

// sqrt32 is √n in float32, the precision of embedding scales.
func sqrt32(n int) float64 { return float64(float32(math.Sqrt(float64(n)))) }
