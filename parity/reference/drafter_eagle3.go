package reference

import (
	"fmt"
	"math"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/drafter"
)

// eagle3 is an EAGLE-3 head in the form of one Llama layer. Row t pairs the
// target's taps of position t with the embedding of token t+1 and guesses token
// t+2; later rows of a chain take the head's own residual stream in place of
// taps.
type eagle3 struct {
	Config
	src   Source
	draft int // draft vocabulary
	taps  []int
	ids   []int32 // the target's ids of the draft vocabulary; nil: the same
	table string  // own embeddings; "": the target's
}

const eagle3Steps = 64

func (d *DraftSource) openEagle3(config []byte, o DraftOptions) error {
	root, err := parseObject("config.json", config)
	if err != nil {
		return err
	}
	e := &eagle3{src: d.src}
	root.texts("architectures")
	root.textOr("model_type", "llama")
	e.Layers = root.size("num_hidden_layers")
	e.Hidden, e.Vocab, e.Intermediate = root.size("hidden_size"), root.size("vocab_size"), root.size("intermediate_size")
	e.Heads, e.KVHeads = root.size("num_attention_heads"), root.size("num_key_value_heads")
	if e.HeadDim = root.sizeOr("head_dim", 0); e.HeadDim == 0 && e.Heads > 0 {
		e.HeadDim = e.Hidden / e.Heads
	}
	e.NormEps = root.number("rms_norm_eps")
	e.Activation = root.text("hidden_act")
	e.draft = root.sizeOr("draft_vocab_size", e.Vocab)
	hidden := root.sizeOr("target_hidden_size", e.Hidden)
	root.sizeOr("max_position_embeddings", 0)
	e.FullRope = readRope(root)
	if root.flagOr("tie_word_embeddings", false) || e.Layers != 1 {
		root.fail("want one layer and a head of its own")
	}
	root.refuseRest(neutral)
	if root.err != nil {
		return root.err
	}
	switch L := o.TargetLayers; {
	case o.Taps != nil:
		e.taps = o.Taps
	case L >= 6:
		e.taps = []int{1, L/2 - 1, L - 4}
	default:
		return fmt.Errorf("reference: which layers are tapped follows from the number of layers of the target: say it")
	}
	if len(e.taps) != 3 {
		return fmt.Errorf("reference: an EAGLE-3 head taps three layers, not %v", e.taps)
	}
	H, q, kv := e.Hidden, e.Heads*e.HeadDim, e.KVHeads*e.HeadDim
	err = checkDrafterTensors(d.src, map[string][]int{
		"fc.weight": {H, 3 * hidden}, "norm.weight": {H}, "lm_head.weight": {e.draft, H}, "embed_tokens.weight": {e.Vocab, H},
		"d2t": {e.draft}, "t2d": {e.Vocab},
		"midlayer.hidden_norm.weight": {H}, "midlayer.input_layernorm.weight": {H}, "midlayer.post_attention_layernorm.weight": {H},
		"midlayer.self_attn.q_proj.weight": {q, 2 * H}, "midlayer.self_attn.k_proj.weight": {kv, 2 * H},
		"midlayer.self_attn.v_proj.weight": {kv, 2 * H}, "midlayer.self_attn.o_proj.weight": {H, q},
		"midlayer.mlp.gate_proj.weight": {e.Intermediate, H}, "midlayer.mlp.up_proj.weight": {e.Intermediate, H}, "midlayer.mlp.down_proj.weight": {H, e.Intermediate},
	}, []string{"d2t", "t2d"}, []string{"d2t", "t2d", "embed_tokens.weight"})
	if err != nil {
		return err
	}
	if _, d.embeds = d.src.Tensor("embed_tokens.weight"); d.embeds {
		e.table = "embed_tokens.weight"
	}
	if t, ok := d.src.Tensor("d2t"); ok {
		offsets, err := checkpoint.ReadInts(t)
		if err != nil {
			return fmt.Errorf("reference: %w", err)
		}
		for i, off := range offsets {
			id := int64(i) + off
			if id < 0 || id >= int64(e.Vocab) {
				return fmt.Errorf("reference: tensor \"d2t\": token %d of the draft vocabulary stands for %d of %d", i, id, e.Vocab)
			}
			e.ids = append(e.ids, int32(id))
		}
	} else if e.draft != e.Vocab {
		return fmt.Errorf("reference: tensor \"d2t\" is missing")
	}
	d.needs = drafter.Needs{Hidden: hidden, Vocab: e.Vocab, Layers: o.TargetLayers, Taps: e.taps}
	d.begin = func(t drafter.Embedder) drafter.Session {
		return &eagle3Session{e: e, needs: d.needs, embed: t, k: &Matrix{}, v: &Matrix{}}
	}
	return nil
}

// rows computes rows at positions from first on: fused taps, or the head's own
// stream, beside the embeddings of tokens. k and v hold the earlier rows; the
// new ones come back below them.
func (e *eagle3) rows(s *sheet, fused, embedded *Matrix, first int, k, v *Matrix) (out, newK, newV *Matrix) {
	const p = "midlayer."
	z := beside(s.norm(embedded, p+"input_layernorm.weight", e.Hidden), s.norm(fused, p+"hidden_norm.weight", e.Hidden))
	q := rotated(s.linear(z, p+"self_attn.q_proj.weight", e.Heads*e.HeadDim), e.FullRope, first, e.HeadDim)
	k = below(k, rotated(s.linear(z, p+"self_attn.k_proj.weight", e.KVHeads*e.HeadDim), e.FullRope, first, e.HeadDim))
	v = below(v, s.linear(z, p+"self_attn.v_proj.weight", e.KVHeads*e.HeadDim))
	a := s.attend(q, k, v, heads{query: e.Heads, kv: e.KVHeads, dim: e.HeadDim, scale: float32(1 / math.Sqrt(float64(e.HeadDim))),
		span: func(t int) (int, int) { return 0, first + t + 1 }})
	h := s.add(fused, s.linear(a, p+"self_attn.o_proj.weight", e.Hidden))
	h = s.add(h, s.mlp(s.norm(h, p+"post_attention_layernorm.weight", e.Hidden), p+"mlp.", e.Intermediate))
	return h, k, v
}

// logits of the last row, over the target's vocabulary.
func (e *eagle3) logits(s *sheet, h *Matrix) []float32 {
	last := &Matrix{Rows: 1, Cols: h.Cols, Data: h.Row(h.Rows - 1)}
	l := s.linear(s.norm(last, "norm.weight", e.Hidden), "lm_head.weight", e.draft)
	if e.ids == nil {
		return l.Data
	}
	out := slices.Repeat([]float32{float32(math.Inf(-1))}, e.Vocab)
	for i, id := range e.ids {
		out[id] = l.Data[i]
	}
	return out
}

// eagle3Session keeps the rows of the text whose next token is known.
type eagle3Session struct {
	e      *eagle3
	needs  drafter.Needs
	embed  drafter.Embedder
	tokens []int32
	taps   []float32 // of rows from k.Rows on
	k, v   *Matrix
}

func (s *eagle3Session) Needs() drafter.Needs { return s.needs }
func (s *eagle3Session) Position() int        { return len(s.tokens) }
func (s *eagle3Session) MaxDraft() int        { return eagle3Steps }
func (s *eagle3Session) Reset() {
	s.tokens, s.taps, s.k, s.v = nil, nil, &Matrix{}, &Matrix{}
}

func (s *eagle3Session) sheet() *sheet {
	return &sheet{weights: weightReader{src: s.e.src}, eps: s.e.NormEps, act: activations[s.e.Activation]}
}

// take computes the rows of positions from k.Rows on that have a next token in
// text.
func (s *eagle3Session) take(sh *sheet, text []int32) (h, k, v *Matrix) {
	n := len(text) - 1 - s.k.Rows
	width := 3 * s.needs.Hidden
	taps := &Matrix{Rows: n, Cols: width, Data: s.taps[:n*width]}
	embedded := sh.embeddings(s.e.table, s.e.Hidden, 1, s.embed, text[s.k.Rows+1:]...)
	return s.e.rows(sh, sh.linear(taps, "fc.weight", s.e.Hidden), embedded, s.k.Rows, s.k, s.v)
}

func (s *eagle3Session) Commit(rows drafter.Rows) error {
	if err := s.needs.Check(rows, len(s.tokens)); err != nil {
		return err
	}
	s.tokens, s.taps = append(s.tokens, rows.Tokens...), append(s.taps, rows.Taps...)
	if len(s.tokens)-1 == s.k.Rows {
		return nil
	}
	sh := s.sheet()
	done := s.k.Rows
	_, s.k, s.v = s.take(sh, s.tokens)
	s.taps = slices.Clone(s.taps[(s.k.Rows-done)*3*s.needs.Hidden:])
	return sh.err
}

func (s *eagle3Session) Draft(next int32, n int) (drafter.Draft, error) {
	var out drafter.Draft
	if err := checkDraft(len(s.tokens), next, s.e.Vocab, n, eagle3Steps); err != nil {
		return out, err
	}
	sh := s.sheet()
	h, k, v := s.take(sh, append(slices.Clone(s.tokens), next))
	for {
		logits := s.e.logits(sh, h)
		if sh.err != nil {
			return drafter.Draft{}, sh.err
		}
		next = first(logits)
		out.Tokens, out.Logits = append(out.Tokens, next), append(out.Logits, logits)
		if len(out.Tokens) == n {
			return out, nil
		}
		own := &Matrix{Rows: 1, Cols: h.Cols, Data: h.Row(h.Rows - 1)}
		h, k, v = s.e.rows(sh, own, sh.embeddings(s.e.table, s.e.Hidden, 1, s.embed, next), k.Rows, k, v)
	}
}
