package models

import (
	"encoding/json"
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// readDSpark reads a DSpark block drafter made of Gemma 4's full layers, whose
// values are their keys: all slots of a block at once, over a context of
// projected taps; a bigram head; a confidence head.
func readDSpark(o *object, c *DrafterConfig, choices DrafterChoices) {
	o.common(&c.Config)
	o.gemma4Text(&c.Config)
	if !o.boolOr("attention_k_eq_v", false) {
		o.fail("attention_k_eq_v is not true: values of their own are not supported in DSpark drafters")
	}
	for _, k := range []string{"hidden_size_per_layer_input", "num_kv_shared_layers", "vocab_size_per_layer_input"} {
		if n := o.intOr(k, 0); n != 0 && k != "vocab_size_per_layer_input" {
			o.fail("%s is %d, want 0 in a DSpark drafter", k, n)
		}
	}
	if o.boolOr("use_double_wide_mlp", false) {
		o.fail("use_double_wide_mlp is not supported in DSpark drafters")
	}
	if c.Tied {
		o.fail("tie_word_embeddings is true; a DSpark drafter stores its head")
	}
	for i, k := range c.Kinds {
		if k != Full {
			o.fail("layer_types[%d] is %s; DSpark drafters have full attention only", i, k)
			break
		}
	}
	o.specials(&c.Config)
	for _, k := range []string{"num_anchors", "target_model_type", "target_text_model_type"} {
		o.touch(k)
	}
	c.TargetHidden, c.DraftVocab = c.Hidden, c.Vocab
	c.Block, c.MaskToken = o.int("block_size"), o.int("mask_token_id")
	if c.Block < 1 || c.MaskToken < 0 || c.MaskToken >= c.Vocab {
		o.fail("block_size is %d and mask_token_id %d", c.Block, c.MaskToken)
	}
	c.TargetLayers = o.intOr("num_target_layers", 0)
	if L := choices.TargetLayers; L > 0 && c.TargetLayers > 0 && L != c.TargetLayers {
		o.fail("num_target_layers is %d, but the target has %d layers", c.TargetLayers, L)
	}
	if json.Unmarshal(o.get("target_layer_ids"), &c.Taps) != nil || len(c.Taps) == 0 {
		o.fail("target_layer_ids is not a list of layers")
	}
	if choices.Taps != nil && fmt.Sprint(choices.Taps) != fmt.Sprint(c.Taps) {
		o.fail("target_layer_ids are %v, not %v", c.Taps, choices.Taps)
	}
	if c.Markov = o.intOr("markov_rank", 0); c.Markov > 0 {
		if t := o.str("markov_head_type", "vanilla"); t != "vanilla" {
			o.fail("markov_head_type %q is not supported (known: vanilla)", t)
		}
	}
	o.touch("markov_head_type")
	c.Confidence = o.boolOr("enable_confidence_head", false)
	c.ConfidenceMarkov = o.boolOr("confidence_head_with_markov", false) && c.Markov > 0
	o.reading(c, choices)
}

// reading decides which token a slot guesses. The architecture says that the
// anchor's slot is read; files that say otherwise leave it to the caller.
func (o *object) reading(c *DrafterConfig, choices DrafterChoices) {
	c.Reading = ReadAnchor
	doubt := ""
	if !o.boolOr("sample_from_anchor", true) {
		doubt = "sample_from_anchor is false"
	}
	if n := o.intOr("logits_start", 0); n != 0 {
		doubt = fmt.Sprintf("logits_start is %d", n)
	}
	if !o.isNull("dflash_config") {
		doubt = "there is a dflash_config"
	}
	switch choices.Reading {
	case "":
		if doubt != "" {
			o.fail("%s, but the architecture reads the anchor's slot: which token a slot guesses is not settled (measure the acceptance of both and say --reading %s or %s)", doubt, ReadAnchor, ReadMasks)
		}
	case ReadAnchor, ReadMasks:
		c.Reading = choices.Reading
		if c.Reading == ReadMasks && c.Block < 2 {
			o.fail("a block of %d slots has no draft if the anchor's is not read", c.Block)
		}
	default:
		o.fail("reading %q is not known (want %s or %s)", choices.Reading, ReadAnchor, ReadMasks)
	}
}

func (d *Drafter) dsparkTensors() (want map[string][]int, ints, optional []string) {
	c := &d.cfg
	want = map[string][]int{
		fcWeight: {c.Hidden, len(c.Taps) * c.TargetHidden}, "hidden_norm.weight": {c.Hidden}, "norm.weight": {c.Hidden},
		embedTable: {c.Vocab, c.Hidden}, headTable: {c.Vocab, c.Hidden},
	}
	for i, k := range c.Kinds {
		p := fmt.Sprintf("layers.%d.", i)
		layerTensors(want, p, "self_attn.", &c.Config, k, c.Hidden, "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
		delete(want, p+"self_attn.v_proj.weight")
		want[p+"layer_scalar"] = []int{1}
	}
	if c.Markov > 0 {
		want["markov_head.markov_w1.weight"] = []int{c.Vocab, c.Markov}
		want["markov_head.markov_w2.weight"] = []int{c.Vocab, c.Markov}
	}
	if c.Confidence {
		in := c.Hidden
		if c.ConfidenceMarkov {
			in += c.Markov
		}
		want["confidence_head.proj.weight"] = []int{1, in}
		want["confidence_head.proj.bias"] = []int{1}
	}
	return want, nil, nil
}

// dsparkKV are the keys and values of layer i for rows x: values are the raw
// projection of the keys, normed without gains and not rotated.
func (g *draftGraph) dsparkKV(i int, x *mil.Value) (k, v *mil.Value) {
	p, n := fmt.Sprintf("layers.%d.self_attn.", i), fmt.Sprintf("layers.%d.", i)
	d := g.c.Dims(Full)
	raw := g.linear(n+"k_proj", p+"k_proj", x, false, false)
	k = g.rotate(n+"k", g.split(n+"k", p+"k_norm.weight", raw, d.KVHeads, d.HeadDim), Full)
	v = g.Op("reshape", n+"v_heads", mil.Args{"x": raw, "shape": []int{1, g.part.T, d.KVHeads, d.HeadDim}})
	v = g.Op("transpose", n+"v", mil.Args{"x": g.rmsPlain(n+"v_norm", v), "perm": []int{0, 2, 1, 3}})
	return k, v
}

// dsparkContext makes the keys and values of committed tokens from their taps:
// one projection for all layers, without their input norms.
func (g *draftGraph) dsparkContext() {
	x := g.Op("linear", "fused", mil.Args{"x": g.need(TapsIn, ""), "weight": g.weight(fcWeight)})
	x = g.rms("context", "hidden_norm.weight", x, false, false)
	var keys, values []*mil.Value
	for i := range g.c.Layers {
		k, v := g.dsparkKV(i, x)
		keys, values = append(keys, k), append(values, v)
	}
	g.give(NewKeys, Full, g.stack("new_keys", keys))
	g.give(NewValues, Full, g.stack("new_values", values))
}

// dsparkBlock is one block: every slot sees the context and all other slots.
func (g *draftGraph) dsparkBlock() {
	c := g.dc
	d := c.Dims(Full)
	x := g.need(TokenEmbedding, "")
	for i := range c.Layers {
		p, n := fmt.Sprintf("layers.%d.", i), fmt.Sprintf("layers.%d.", i)
		a := g.rms(n+"attn_norm", p+"input_layernorm.weight", x, false, false)
		q := g.rotate(n+"q", g.heads(n+"q", p+"self_attn.q_proj", p+"self_attn.q_norm.weight", a, c.Heads, d.HeadDim), Full)
		kv := &layerKV{}
		kv.newK, kv.newV = g.dsparkKV(i, a)
		kv.oldK, kv.oldV = g.cacheOf(n, Full, i)
		a = g.rms(n+"post_attn_norm", p+"post_attention_layernorm.weight", g.mix(n, p+"self_attn.o_proj", Full, q, kv, false), false, false)
		x = g.Op("add", n+"resid_mid", mil.Args{"x": x, "y": a})
		f := g.gated(n, p+"mlp.", g.rms(n+"mlp_norm", p+"pre_feedforward_layernorm.weight", x, false, false))
		f = g.rms(n+"post_mlp_norm", p+"post_feedforward_layernorm.weight", f, false, false)
		x = g.Op("add", n+"resid_mlp", mil.Args{"x": x, "y": f})
		x = g.Op("mul", n+"out", mil.Args{"x": x, "y": g.weight(p + "layer_scalar")})
	}
	y := g.rms("final_norm", "norm.weight", x, false, false)
	base := g.softcap("base_logits", g.Op("linear", "base_logits", mil.Args{"x": y, "weight": g.weight(headTable)}), c.FinalSoftcap)
	g.dsparkHeads(y, base)
}

// dsparkHeads walks the slots: the bigram head adds to each slot's logits what
// the token drafted before it suggests, after the soft cap.
func (g *draftGraph) dsparkHeads(y, base *mil.Value) {
	c := g.dc
	slot := func(name string, x *mil.Value, j, width int) *mil.Value {
		return g.Op("reshape", name+"_row", mil.Args{"x": g.sliceAxis(name, x, 1, j, j+1), "shape": []int{1, width}})
	}
	prev := g.need(Anchor, "")
	var ids, logits, confidence []*mil.Value
	first := 0
	if c.Reading == ReadMasks {
		first = 1
	}
	for j := first; j < g.part.T; j++ {
		n := fmt.Sprintf("slots.%d.", j)
		l := slot(n+"base", base, j, c.Vocab)
		var row *mil.Value
		if c.Markov > 0 {
			row = g.Op("gather", n+"previous", mil.Args{"x": g.weight("markov_head.markov_w1.weight"), "indices": prev, "axis": 0})
			l = g.Op("add", n+"logits", mil.Args{"x": l, "y": g.linear(n+"markov", "markov_head.markov_w2", row, false, false)})
		}
		if c.Confidence {
			in := slot(n+"final_norm", y, j, c.Hidden)
			if c.ConfidenceMarkov {
				in = g.Op("concat", n+"confidence_in", mil.Args{"values": []*mil.Value{in, row}, "axis": 1})
			}
			s := g.linear(n+"confidence_logit", "confidence_head.proj", in, true, false)
			confidence = append(confidence, g.Op("sigmoid", n+"confidence", mil.Args{"x": s}))
		}
		prev = g.argmax(n+"draft", l)
		ids = append(ids, g.Op("reshape", n+"draft_id", mil.Args{"x": prev, "shape": []int{1, 1}}))
		logits = append(logits, g.Op("reshape", n+"logits_out", mil.Args{"x": l, "shape": []int{1, 1, c.Vocab}}))
	}
	join := func(name string, vs []*mil.Value) *mil.Value {
		if len(vs) == 1 {
			return vs[0]
		}
		return g.Op("concat", name, mil.Args{"values": vs, "axis": 1})
	}
	g.give(DraftIDs, "", join("draft_ids", ids))
	g.give(Logits, "", join("logits", logits))
	if c.Confidence {
		g.give(Confidence, "", join("confidence", confidence))
	}
}
