package models

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/mil"
)

// readMTPModules reads a stack of multi-token-prediction modules, indexed as in
// DeepSeek-V3: module k reads, at position t, the hidden state of t (the
// trunk's for module 0, else the module before's) and the embedding of token
// t+1+k, and guesses token t+2+k.
func readMTPModules(o *object, c *DrafterConfig, choices DrafterChoices) {
	c.Hidden, c.Intermediate = o.int("hidden_size"), o.int("intermediate_size")
	c.Heads, c.KVHeads, c.HeadDim = o.int("num_attention_heads"), o.int("num_kv_heads"), o.int("head_dim")
	c.Vocab, c.Layers = o.int("vocab_size"), o.int("num_modules")
	c.Eps = o.float("rms_norm_eps")
	c.MaxPositions = o.intOr("max_position_embeddings", math.MaxInt32)
	if c.Window = o.int("kv_window"); c.Window < 1 {
		o.fail("kv_window is %d, want a positive number", c.Window)
	}
	if c.Layers < 1 || c.Layers > maxLayers {
		o.fail("num_modules is %d", c.Layers)
		return
	}
	c.FinalSoftcap = o.floatOr("logit_softcap", 0)
	o.activation(&c.Config, "hidden_act")
	if !o.boolOr("tie_word_embeddings", true) {
		o.fail("tie_word_embeddings is false; the modules share the trunk's head")
	}
	if s := o.str("embed_scale", "sqrt(hidden_size)"); s != "sqrt(hidden_size)" {
		o.fail("embed_scale %q is not known (want sqrt(hidden_size))", s)
	}
	c.EmbedScale = sqrt32(c.Hidden)
	c.Tied, c.QKNorm, c.Sandwich = true, true, true
	if c.HeadDim > 0 {
		c.AttnScale = 1 / math.Sqrt(float64(c.HeadDim))
	}
	c.Kinds = repeatKind(Sliding, c.Layers)
	c.Rope = map[Kind]Rope{Sliding: {Type: "default", Theta: o.float("rope_theta"), Dim: c.HeadDim, Factor: 1}}
	o.specials(&c.Config)
	c.TargetHidden, c.DraftVocab, c.Norm = c.Hidden, c.Vocab, "pre"
	c.TargetLayers = choices.TargetLayers
}

func (d *Drafter) mtpTensors() (want map[string][]int, ints, optional []string) {
	c := &d.cfg
	want = map[string][]int{embedTable: {c.Vocab, c.Hidden}}
	for k := range c.Layers {
		p := fmt.Sprintf("modules_list.%d.", k)
		layerTensors(want, p, "attn.", &c.Config, Sliding, c.Hidden, "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm", "final_norm")
		want[p+"input_proj.weight"] = []int{c.Hidden, 2 * c.Hidden}
	}
	return want, nil, nil
}

// mtpModule is module i.
func (g *draftGraph) mtpModule(i int) {
	c := g.dc
	p, n := fmt.Sprintf("modules_list.%d.", i), fmt.Sprintf("layers.%d.", i)
	// The hidden state comes first: here, not in every drafter.
	x := g.Op("concat", n+"inputs", mil.Args{"values": []*mil.Value{g.need(DraftHiddenIn, ""), g.need(TokenEmbedding, "")}, "axis": 2})
	x = g.linear(n+"in", p+"input_proj", x, false, false)
	a := g.rms(n+"attn_norm", p+"input_layernorm.weight", x, false, false)
	q := g.rotate(n+"q", g.heads(n+"q", p+"attn.q_proj", p+"attn.q_norm.weight", a, c.Heads, c.HeadDim), Sliding)
	k := g.rotate(n+"k", g.heads(n+"k", p+"attn.k_proj", p+"attn.k_norm.weight", a, c.KVHeads, c.HeadDim), Sliding)
	v := g.heads(n+"v", p+"attn.v_proj", "", a, c.KVHeads, c.HeadDim)
	kv := &layerKV{oldK: g.need(KeyCache, Sliding), oldV: g.need(ValueCache, Sliding), newK: k, newV: v}
	a = g.rms(n+"post_attn_norm", p+"post_attention_layernorm.weight", g.mix(n, p+"attn.o_proj", Sliding, q, kv, false), false, false)
	x = g.Op("add", n+"resid_mid", mil.Args{"x": x, "y": a})
	f := g.gated(n, p+"mlp.", g.rms(n+"mlp_norm", p+"pre_feedforward_layernorm.weight", x, false, false))
	f = g.rms(n+"post_mlp_norm", p+"post_feedforward_layernorm.weight", f, false, false)
	x = g.Op("add", n+"out", mil.Args{"x": x, "y": f})
	x = g.rms(n+"final_norm", p+"final_norm.weight", x, false, false)
	g.give(DraftHiddenOut, "", x)
	logits := g.Op("linear", "logits", mil.Args{"x": x, "weight": g.weight(embedTable)})
	g.give(Logits, "", g.softcap("logits", logits, c.FinalSoftcap))
	g.give(NewKeys, Sliding, k)
	g.give(NewValues, Sliding, v)
}
