package models

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// readGemma4 reads the text model of Gemma 4: Gemma 3's sandwich norms, with
// plain gains and attention scale 1; full layers with heads of another size
// and RoPE on a part of them; the last layers read the keys and values of
// earlier ones; every layer adds a gated embedding of its own for the token.
func readGemma4(o *object, c *Config) {
	if o.boolOr("attention_k_eq_v", false) {
		o.fail("attention_k_eq_v is not supported yet")
	}
	c.SharedWide = o.boolOr("use_double_wide_mlp", false)
	c.PerLayer = o.int("hidden_size_per_layer_input")
	if v := o.intOr("vocab_size_per_layer_input", o.int("vocab_size")); c.PerLayer > 0 && v != o.int("vocab_size") {
		o.fail("vocab_size_per_layer_input %d differs from vocab_size %d", v, o.int("vocab_size"))
	}
	if o.gemma4Text(c) {
		o.gemma4Sharing(c)
	}
}

// gemma4Text reads what drafters made of Gemma 4's layers have too. It reports
// whether the layers are known.
func (o *object) gemma4Text(c *Config) bool {
	o.ownHeadDim()
	o.heads(c)
	c.Vocab = o.int("vocab_size")
	c.MaxPositions = o.int("max_position_embeddings")
	c.Eps = o.float("rms_norm_eps")
	o.activation(c, "hidden_activation", "hidden_act")
	c.Tied = o.boolOr("tie_word_embeddings", true)
	c.QKNorm, c.Sandwich, c.VNorm, c.LayerScalar = true, true, true, true
	bias := o.boolOr("attention_bias", false)
	c.QKVBias, c.OBias = bias, bias
	c.AttnScale = 1
	c.FinalSoftcap = o.floatOr("final_logit_softcapping", 0)
	c.EmbedScale = sqrt32(c.Hidden)
	if o.boolOr("enable_moe_block", false) || o.intOr("num_experts", 0) > 0 {
		o.fail("mixture of experts (enable_moe_block) is not supported yet")
	}
	for _, k := range []string{"moe_intermediate_size", "top_k_experts"} {
		o.touch(k)
	}
	if o.boolOr("use_bidirectional_attention", false) {
		o.fail("use_bidirectional_attention is not supported: the cache needs causal attention")
	}
	if !o.isNull("sliding_window") {
		c.Window = o.int("sliding_window")
	}
	if c.Kinds = o.layerTypes(); c.Kinds == nil {
		c.Kinds = repeatKind(Sliding, c.Layers)
		for i := 5; i < c.Layers; i += 6 {
			c.Kinds[i] = Full
		}
		if c.Layers > 0 {
			c.Kinds[c.Layers-1] = Full
		}
	}
	if len(c.Kinds) != c.Layers {
		o.fail("layer_types has %d entries for %d layers", len(c.Kinds), c.Layers)
		return false
	}
	o.gemma4Dims(c)
	o.gemma4Rope(c)
	return true
}

// gemma4Dims reads the shapes of full layers in either spelling:
// global_head_dim and num_global_key_value_heads, or per_layer_config.
func (o *object) gemma4Dims(c *Config) {
	c.DimsOf = map[Kind]Dims{}
	for _, k := range []Kind{Full, Sliding} {
		c.DimsOf[k] = Dims{c.HeadDim, c.KVHeads}
	}
	global := Dims{o.intOr("global_head_dim", c.HeadDim), o.intOr("num_global_key_value_heads", c.KVHeads)}
	stated := !o.isNull("global_head_dim") || !o.isNull("num_global_key_value_heads")
	if o.isNull("per_layer_config") {
		c.DimsOf[Full] = global
		return
	}
	p := o.sub("per_layer_config")
	if p == nil {
		return
	}
	seen := map[int]Dims{}
	for _, key := range slices.Sorted(maps.Keys(p.m)) {
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= c.Layers {
			p.fail("key %q is not one of the %d layers", key, c.Layers)
			break
		}
		q := p.sub(key)
		if q == nil {
			break
		}
		seen[i] = Dims{q.intOr("head_dim", c.HeadDim), q.intOr("num_key_value_heads", c.KVHeads)}
		q.unread(nil)
		p.join(q)
	}
	o.join(p)
	for i, k := range c.Kinds {
		d, ok := seen[i]
		if !ok {
			d = Dims{c.HeadDim, c.KVHeads}
		}
		if first := slices.Index(c.Kinds, k); i == first {
			c.DimsOf[k] = d
		} else if c.DimsOf[k] != d {
			o.fail("per_layer_config gives layers %d and %d, both %s, different shapes (%v and %v)", first, i, k, c.DimsOf[k], d)
		}
	}
	if stated && slices.Contains(c.Kinds, Full) && global != c.DimsOf[Full] {
		o.fail("per_layer_config says %v for full layers, global_head_dim and num_global_key_value_heads say %v", c.DimsOf[Full], global)
	}
}

// gemma4Sharing finds whose keys and values the last num_kv_shared_layers
// layers read: the last layer of their kind that has its own.
func (o *object) gemma4Sharing(c *Config) {
	n := o.intOr("num_kv_shared_layers", 0)
	if n < 0 || n > 0 && n >= c.Layers {
		o.fail("num_kv_shared_layers is %d of %d layers, at least one must have keys and values of its own", n, c.Layers)
		return
	}
	c.KVSource = make([]int, c.Layers)
	producer := map[Kind]int{}
	for i, k := range c.Kinds {
		c.KVSource[i] = i
		if i < c.Layers-n {
			producer[k] = i
			continue
		}
		p, ok := producer[k]
		if !ok {
			o.fail("layer %d shares keys and values, but no %s layer before layer %d has its own", i, k, c.Layers-n)
			return
		}
		c.KVSource[i] = p
	}
}

// gemma4Rope reads rope_parameters, a RoPE each for full and sliding layers.
func (o *object) gemma4Rope(c *Config) {
	c.Rope = map[Kind]Rope{}
	if o.isNull("rope_parameters") {
		o.fail("key \"rope_parameters\" is missing")
		return
	}
	o.onlyParameters()
	p := o.sub("rope_parameters")
	if p == nil {
		return
	}
	for _, k := range []struct {
		kind Kind
		key  string
	}{{Full, "full_attention"}, {Sliding, "sliding_attention"}} {
		if p.isNull(k.key) {
			if c.HasKind(k.kind, 0, c.Layers) {
				o.fail("key \"rope_parameters.%s\" is missing", k.key)
			}
			continue
		}
		q := p.sub(k.key)
		if q == nil {
			break
		}
		if q.isNull("rope_theta") {
			q.fail("key \"rope_theta\" is missing")
		}
		dim := c.Dims(k.kind).HeadDim
		if q.str("rope_type", "") == "proportional" {
			part := q.floatOr("partial_rotary_factor", 1)
			if part <= 0 || part > 1 {
				q.fail("partial_rotary_factor is %g, want more than 0 and at most 1", part)
			}
			c.Rope[k.kind] = Rope{Type: "proportional", Theta: q.float("rope_theta"), Dim: dim,
				Factor: q.floatOr("factor", 1), Rotated: int(part * float64(dim) / 2)}
			q.unread(nil)
		} else {
			c.Rope[k.kind] = q.ropeSpec(0, dim)
		}
		o.join(q)
	}
	p.unread(nil)
	o.join(p)
}

func (o *object) intOr(key string, def int) int {
	if o.isNull(key) {
		return def
	}
	return o.int(key)
}

// gemma4Expected adds the tensors that only Gemma 4 has.
func (m *Model) gemma4Expected(e map[string][]int) {
	c := m.cfg
	if c.LayerScalar {
		for i := range c.Layers {
			e[fmt.Sprintf("model.layers.%d.layer_scalar", i)] = []int{1}
		}
	}
	if c.PerLayer == 0 {
		return
	}
	wide := c.Layers * c.PerLayer
	e["model.embed_tokens_per_layer.weight"] = []int{c.Vocab, wide}
	e["model.per_layer_model_projection.weight"] = []int{wide, c.Hidden}
	e["model.per_layer_projection_norm.weight"] = []int{c.PerLayer}
	for i := range c.Layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		e[p+"per_layer_input_gate.weight"] = []int{c.PerLayer, c.Hidden}
		e[p+"per_layer_projection.weight"] = []int{c.Hidden, c.PerLayer}
		e[p+"post_per_layer_input_norm.weight"] = []int{c.Hidden}
	}
}
