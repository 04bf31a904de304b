package reference

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/internal/elementary"
)

// dspark is a block drafter of Gemma 4's full layers whose values are their
// keys: all slots of a block at once, over the projected taps of the text.
type dspark struct {
	Config
	src        Source
	block      int
	mask       int32
	taps       []int
	rank       int
	confidence bool
	withRow    bool // the confidence head reads the bigram row too
	from       int  // first slot that is read
	short      bool // blocks are as long as drafts are wanted
	scale      float32
}

func (d *DraftSource) openDSpark(config []byte, o DraftOptions) error {
	root, err := parseObject("config.json", config)
	if err != nil {
		return err
	}
	c := &dspark{src: d.src}
	root.texts("architectures")
	root.textOr("model_type", "gemma4_text")
	c.block, c.mask = root.size("block_size"), int32(root.count("mask_token_id"))
	root.decode("target_layer_ids", &c.taps, "a list of layers")
	layers := root.sizeOr("num_target_layers", 0)
	c.rank = root.sizeOr("markov_rank", 0)
	if t := root.textOr("markov_head_type", "vanilla"); t != "vanilla" {
		root.fail("markov_head_type: %q is not supported", t)
	}
	c.confidence = root.flagOr("enable_confidence_head", false)
	c.withRow = root.flagOr("confidence_head_with_markov", false) && c.rank > 0
	if !root.flagOr("attention_k_eq_v", false) || root.flagOr("tie_word_embeddings", true) || len(c.taps) == 0 {
		root.fail("want attention_k_eq_v true, tie_word_embeddings false and target_layer_ids")
	}
	for _, k := range []string{"num_anchors", "target_model_type", "target_text_model_type"} {
		root.taken[k] = true
	}
	for _, k := range []string{"hidden_size_per_layer_input", "num_kv_shared_layers"} {
		if n := 0; root.decode(k, &n, "an integer") && n != 0 {
			root.fail("%s: is %d, want 0", k, n)
		}
	}
	root.taken["use_double_wide_mlp"] = true
	kvHeads := root.sizeOr("num_global_key_value_heads", 0)
	// The decoder's reader refuses both, which are read here.
	root.fields["attention_k_eq_v"] = []byte("false")
	delete(root.fields, "num_global_key_value_heads")
	readGemma4Text(root, &c.Config)
	if kvHeads > 0 {
		c.FullKVHeads = kvHeads
	}
	c.check(root)
	root.refuseRest(neutral)
	if root.err != nil {
		return root.err
	}
	if slices.Contains(c.Kinds, SlidingAttention) {
		return fmt.Errorf("reference: config.json: layer_types: a block drafter has full layers only")
	}
	if o.SkipAnchor {
		c.from = 1
	}
	c.scale, c.short = c.EmbedScale, o.ShortBlocks
	l := c.Layer(0)
	H, q, kv := c.Hidden, c.Heads*l.HeadDim, l.KVHeads*l.HeadDim
	want := map[string][]int{"fc.weight": {H, len(c.taps) * H}, "hidden_norm.weight": {H}, "norm.weight": {H},
		"embed_tokens.weight": {c.Vocab, H}, "lm_head.weight": {c.Vocab, H}}
	for i := range c.Layers {
		p := fmt.Sprintf("layers.%d.", i)
		want[p+"layer_scalar"] = []int{1}
		for name, shape := range map[string][]int{
			"self_attn.q_proj": {q, H}, "self_attn.k_proj": {kv, H}, "self_attn.o_proj": {H, q}, "self_attn.q_norm": {l.HeadDim}, "self_attn.k_norm": {l.HeadDim},
			"input_layernorm": {H}, "post_attention_layernorm": {H}, "pre_feedforward_layernorm": {H}, "post_feedforward_layernorm": {H},
			"mlp.gate_proj": {c.Intermediate, H}, "mlp.up_proj": {c.Intermediate, H}, "mlp.down_proj": {H, c.Intermediate},
		} {
			want[p+name+".weight"] = shape
		}
	}
	if c.rank > 0 {
		want["markov_head.markov_w1.weight"], want["markov_head.markov_w2.weight"] = []int{c.Vocab, c.rank}, []int{c.Vocab, c.rank}
	}
	if c.confidence {
		in := H
		if c.withRow {
			in += c.rank
		}
		want["confidence_head.proj.weight"], want["confidence_head.proj.bias"] = []int{1, in}, []int{1}
	}
	if err := checkDrafterTensors(d.src, want, nil, nil); err != nil {
		return err
	}
	d.embeds = true
	d.needs = drafter.Needs{Hidden: H, Vocab: c.Vocab, Layers: layers, Taps: c.taps}
	d.begin = func(drafter.Embedder) drafter.Session {
		s := &dsparkSession{c: c, needs: d.needs}
		s.Reset()
		return s
	}
	return nil
}

func (c *dspark) sheet() *sheet {
	return &sheet{weights: weightReader{src: c.src}, eps: c.NormEps, act: activations[c.Activation]}
}

// kv are keys and values of layer i for rows x at positions from first on.
// Values are the projection of the keys, before their norm, without rotation.
func (c *dspark) kv(s *sheet, i int, x *Matrix, first int) KV {
	l, p := c.Layer(i), fmt.Sprintf("layers.%d.self_attn.", i)
	raw := s.linear(x, p+"k_proj.weight", l.KVHeads*l.HeadDim)
	return KV{
		K: rotated(s.norm(raw, p+"k_norm.weight", l.HeadDim), c.FullRope, first, l.HeadDim),
		V: s.norm(raw, "", l.HeadDim),
	}
}

// slots runs a block at positions from first on over the context's keys and
// values, and returns its states after the final norm.
func (c *dspark) slots(s *sheet, ids []int32, first int, context []KV) *Matrix {
	x := s.embeddings("embed_tokens.weight", c.Hidden, c.scale, nil, ids...)
	for i := range c.Layers {
		l, p := c.Layer(i), fmt.Sprintf("layers.%d.", i)
		a := s.norm(x, p+"input_layernorm.weight", c.Hidden)
		q := rotated(s.norm(s.linear(a, p+"self_attn.q_proj.weight", c.Heads*l.HeadDim), p+"self_attn.q_norm.weight", l.HeadDim), c.FullRope, first, l.HeadDim)
		own := c.kv(s, i, a, first)
		k, v := below(context[i].K, own.K), below(context[i].V, own.V)
		a = s.attend(q, k, v, heads{query: c.Heads, kv: l.KVHeads, dim: l.HeadDim, scale: 1, span: func(int) (int, int) { return 0, k.Rows }})
		x = s.add(x, s.norm(s.linear(a, p+"self_attn.o_proj.weight", c.Hidden), p+"post_attention_layernorm.weight", c.Hidden))
		f := s.mlp(s.norm(x, p+"pre_feedforward_layernorm.weight", c.Hidden), p+"mlp.", c.Intermediate)
		x = s.add(x, s.norm(f, p+"post_feedforward_layernorm.weight", c.Hidden))
		scalar := []float32{1}
		if s.err == nil {
			s.err = s.weights.read(p+"layer_scalar", scalar, 0)
		}
		for j := range x.Data {
			x.Data[j] *= scalar[0]
		}
		s.show(fmt.Sprintf("layers.%d.out", i), x)
	}
	return s.show("final_norm", s.norm(x, "norm.weight", c.Hidden))
}

// dsparkSession keeps the keys and values of the text's taps, by layer.
type dsparkSession struct {
	c       *dspark
	needs   drafter.Needs
	n       int
	context []KV
}

func (s *dsparkSession) Needs() drafter.Needs { return s.needs }
func (s *dsparkSession) Position() int        { return s.n }
func (s *dsparkSession) MaxDraft() int        { return s.c.block - s.c.from }
func (s *dsparkSession) Reset() {
	s.n, s.context = 0, make([]KV, s.c.Layers)
	for i := range s.context {
		s.context[i] = KV{&Matrix{}, &Matrix{}}
	}
}

func (s *dsparkSession) Commit(rows drafter.Rows) error {
	if err := s.needs.Check(rows, s.n); err != nil {
		return err
	}
	sh, k := s.c.sheet(), len(rows.Tokens)
	taps := &Matrix{Rows: k, Cols: len(rows.Taps) / k, Data: rows.Taps}
	x := sh.norm(sh.linear(taps, "fc.weight", s.c.Hidden), "hidden_norm.weight", s.c.Hidden)
	for i, old := range s.context {
		kv := s.c.kv(sh, i, x, s.n)
		s.context[i] = KV{below(old.K, kv.K), below(old.V, kv.V)}
	}
	s.n += k
	return sh.err
}

// Draft runs the full block and returns its first slots, or, if asked for short
// blocks, one of as many slots as are wanted, which gives other numbers.
func (s *dsparkSession) Draft(next int32, n int) (drafter.Draft, error) {
	slots := s.c.block
	if s.c.short {
		slots = n + s.c.from
	}
	return s.run(next, n, slots, nil)
}

func (s *dsparkSession) run(next int32, n, slots int, tap Tap) (drafter.Draft, error) {
	c := s.c
	var out drafter.Draft
	if err := checkDraft(s.n, next, c.Vocab, n, s.MaxDraft()); err != nil {
		return out, err
	}
	sh := c.sheet()
	sh.tap = tap
	ids := slices.Repeat([]int32{c.mask}, slots)
	ids[0] = next
	y := c.slots(sh, ids, s.n, s.context)
	base := sh.linear(y, "lm_head.weight", c.Vocab)
	if c.FinalSoftcap != 0 {
		softcap(base.Data, c.FinalSoftcap)
	}
	sh.show("base_logits", base)
	for j := c.from; j < c.from+n && sh.err == nil; j++ {
		logits := base.Row(j)
		state := &Matrix{Rows: 1, Cols: c.Hidden, Data: y.Row(j)}
		if c.rank > 0 {
			row := sh.rows("markov_head.markov_w1.weight", c.rank, next)
			for i, b := range sh.linear(row, "markov_head.markov_w2.weight", c.Vocab).Data {
				logits[i] += b
			}
			if c.withRow {
				state = beside(state, row)
			}
		}
		if c.confidence {
			bias := []float32{0}
			z := sh.linear(state, "confidence_head.proj.weight", 1).Data[0]
			if sh.err == nil {
				sh.err = sh.weights.read("confidence_head.proj.bias", bias, 0)
			}
			out.Confidence = append(out.Confidence, float32(1/(1+elementary.Exp(-float64(z+bias[0])))))
		}
		next = first(logits)
		out.Tokens, out.Logits = append(out.Tokens, next), append(out.Logits, logits)
	}
	if sh.err != nil {
		return drafter.Draft{}, sh.err
	}
	return out, nil
}
