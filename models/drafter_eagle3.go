package models

import (
	"fmt"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/mil"
)

// readEagle3 reads an EAGLE-3 head in the form of a Llama layer: one decoder
// layer over the embedding of a token beside three taps of the token before.
func readEagle3(o *object, c *DrafterConfig, choices DrafterChoices) {
	o.common(&c.Config)
	o.heads(&c.Config)
	o.decoder(&c.Config)
	c.QKVBias, c.OBias = false, false
	if o.boolOr("attention_bias", false) || o.boolOr("mlp_bias", false) {
		o.fail("attention_bias and mlp_bias are not supported in EAGLE-3 heads")
	}
	if c.Layers != 1 {
		o.fail("num_hidden_layers is %d; EAGLE-3 heads of more than one layer are not supported", c.Layers)
	}
	if c.Tied {
		o.fail("tie_word_embeddings is true; the head of an EAGLE-3 drafter is its own")
	}
	for _, k := range []string{"norm_before_residual", "fc_norm", "norm_before_fc", "norm_output"} {
		if o.boolOr(k, false) {
			o.fail("%s is a variant of EAGLE-3 with other numbers, which is not supported", k)
		}
	}
	c.TargetHidden = o.intOr("target_hidden_size", c.Hidden)
	c.DraftVocab = o.intOr("draft_vocab_size", c.Vocab)
	if c.DraftVocab < 1 || c.DraftVocab > c.Vocab {
		o.fail("draft_vocab_size is %d of a vocab_size of %d", c.DraftVocab, c.Vocab)
	}
	c.Kinds = repeatKind(Full, c.Layers)
	c.Rope = map[Kind]Rope{Full: o.rope(&c.Config)}
	o.specials(&c.Config)
	o.eagle3Taps(c, choices)
}

// eagle3Taps chooses the three layers that are tapped: the outputs of layers 1,
// L/2-1 and L-4 of a target of L layers, unless others are given.
func (o *object) eagle3Taps(c *DrafterConfig, choices DrafterChoices) {
	for _, k := range []string{"eagle_config", "eagle_aux_hidden_state_layer_ids"} {
		if !o.isNull(k) && choices.Taps == nil {
			o.fail("%s lists tapped layers, which some runtimes take as inputs and others as outputs: say which outputs are meant (--taps)", k)
		}
	}
	c.TargetLayers = choices.TargetLayers
	L := c.TargetLayers
	switch c.Taps = choices.Taps; {
	case c.Taps == nil && L == 0:
		o.fail("the number of layers of the target decides which of them are tapped: name the target (--target DIR)")
	case c.Taps == nil && L < 6:
		o.fail("a target of %d layers has no three layers to tap by the rule of EAGLE-3 (1, L/2-1, L-4)", L)
	case c.Taps == nil:
		c.Taps = []int{1, L/2 - 1, L - 4}
	case len(c.Taps) != 3:
		o.fail("%d tapped layers %v, want three: low, middle, high", len(c.Taps), c.Taps)
	case L > 0 && c.Taps[0] == 2 && c.Taps[1] == L/2 && c.Taps[2] == L-3:
		o.fail("taps %v are those layers whose inputs EAGLE-3 taps in a target of %d layers; count outputs: %v", c.Taps, L, []int{1, L/2 - 1, L - 4})
	case c.Taps[0] >= c.Taps[1] || c.Taps[1] >= c.Taps[2]:
		o.fail("taps %v are not in the order low, middle, high", c.Taps)
	}
}

func (d *Drafter) eagle3Tensors() (want map[string][]int, ints, optional []string) {
	c := &d.cfg
	want = map[string][]int{
		fcWeight: {c.Hidden, 3 * c.TargetHidden}, "norm.weight": {c.Hidden}, "midlayer.hidden_norm.weight": {c.Hidden},
		headTable: {c.DraftVocab, c.Hidden}, embedTable: {c.Vocab, c.Hidden}, "d2t": {c.DraftVocab}, "t2d": {c.Vocab},
	}
	layerTensors(want, "midlayer.", "self_attn.", &c.Config, Full, 2*c.Hidden, "input_layernorm", "post_attention_layernorm")
	optional = []string{embedTable, "t2d"}
	if c.DraftVocab == c.Vocab {
		optional = append(optional, "d2t")
	}
	return want, []string{"d2t", "t2d"}, optional
}

// readVocabulary reads which tokens of the target the draft vocabulary holds:
// d2t[i] is what to add to i.
func (d *Drafter) readVocabulary() error {
	t, ok := d.m.src.Tensor("d2t")
	if !ok {
		return nil
	}
	offsets, err := checkpoint.ReadInts(t)
	if err != nil {
		return fmt.Errorf("models: %w", err)
	}
	reachable := make([]bool, d.cfg.Vocab)
	last := int64(-1)
	for i, off := range offsets {
		id := int64(i) + off
		if id <= last || id >= int64(d.cfg.Vocab) {
			return fmt.Errorf("models: tensor \"d2t\": token %d of the draft vocabulary stands for %d after %d, in a vocabulary of %d (d2t holds offsets to ascending ids, not ids)", i, id, last, d.cfg.Vocab)
		}
		last, reachable[id] = id, true
		d.ids = append(d.ids, int32(id))
	}
	t, ok = d.m.src.Tensor("t2d")
	if !ok {
		return nil
	}
	flags, err := checkpoint.ReadInts(t)
	if err != nil {
		return fmt.Errorf("models: %w", err)
	}
	for id, f := range flags {
		if (f != 0) != reachable[id] {
			return fmt.Errorf("models: tensors \"d2t\" and \"t2d\" disagree whether token %d is in the draft vocabulary", id)
		}
	}
	return nil
}

// eagle3 is the head's one layer: over taps of tokens that are part of the
// text, or over its own output in a chain of drafts.
func (g *draftGraph) eagle3(f DrafterFunction) {
	c := g.dc
	var h *mil.Value
	if f == Extend {
		h = g.Op("linear", "fused", mil.Args{"x": g.need(TapsIn, ""), "weight": g.weight(fcWeight)})
	} else {
		h = g.need(DraftHiddenIn, "")
	}
	const p, n = "midlayer.", "layers.0."
	e := g.rms(n+"embed_norm", p+"input_layernorm.weight", g.need(TokenEmbedding, ""), false, false)
	z := g.Op("concat", n+"attn_norm", mil.Args{"values": []*mil.Value{e, g.rms(n+"hidden_norm", p+"hidden_norm.weight", h, false, false)}, "axis": 2})
	q := g.rotate(n+"q", g.heads(n+"q", p+"self_attn.q_proj", "", z, c.Heads, c.HeadDim), Full)
	k := g.rotate(n+"k", g.heads(n+"k", p+"self_attn.k_proj", "", z, c.KVHeads, c.HeadDim), Full)
	v := g.heads(n+"v", p+"self_attn.v_proj", "", z, c.KVHeads, c.HeadDim)
	kv := &layerKV{newK: k, newV: v}
	kv.oldK, kv.oldV = g.cacheOf(n, Full, 0)
	// What joins the residual stream is the tap before its norm.
	x := g.Op("add", n+"resid_mid", mil.Args{"x": h, "y": g.mix(n, p+"self_attn.o_proj", Full, q, kv, false)})
	m := g.gated(n, p+"mlp.", g.rms(n+"mlp_norm", p+"post_attention_layernorm.weight", x, false, false))
	x = g.Op("add", n+"out", mil.Args{"x": x, "y": m})
	g.give(DraftHiddenOut, "", x)
	g.give(Logits, "", g.Op("linear", "logits", mil.Args{"x": g.rms("final_norm", "norm.weight", x, false, false), "weight": g.weight(headTable)}))
	g.give(NewKeys, Full, k)
	g.give(NewValues, Full, v)
}
