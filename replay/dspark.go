package replay

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/models"
)

// dspark runs a block drafter: behind n tokens a block of the anchor, token n, and
// masks at positions from n on, all of whose slots see each other and the
// projected taps of the n tokens.
func (d *Drafter) dspark(c *calc, texts []drafter.Rows, bases [][]int, slots int) *Draft {
	cfg := d.c
	dims := cfg.Dims(models.Full)
	freq := cfg.Rope[models.Full].InvFreq()
	h := heads{cfg.Heads, dims.KVHeads, dims.HeadDim, float32(cfg.AttnScale)}
	from := 0
	if cfg.Reading == models.ReadMasks {
		from = 1
	}
	width := len(cfg.Taps) * cfg.TargetHidden
	lengths := make([]int, len(texts))
	var taps []float32
	var positions []int
	for i, t := range texts {
		lengths[i] = len(t.Tokens)
		taps = append(taps, t.Taps...)
		for p := range t.Tokens {
			positions = append(positions, p)
		}
	}
	at := places(lengths, bases)
	context := c.norm(c.one(decoder.Matrix{Rows: len(positions), Cols: width, Data: taps}, "fc"), "hidden_norm", cfg.Hidden)
	kv := func(i int, x decoder.Matrix, positions []int, raw decoder.Matrix) (k, v decoder.Matrix) {
		p := fmt.Sprintf("layers.%d.self_attn.", i)
		return rotated(c.norm(raw, p+"k_norm", dims.HeadDim), freq, positions), c.norm(raw, "", dims.HeadDim)
	}
	B := cfg.Block
	ids, where := make([]int32, at.rows*B), make([]int, at.rows*B)
	prefix := make([]span, at.rows)
	at.each(func(row, text, n int) {
		for s := range B {
			ids[row*B+s], where[row*B+s] = int32(cfg.MaskToken), n+s
		}
		ids[row*B] = texts[text].Tokens[n]
		prefix[row] = span{from: at.start[text], to: at.start[text] + n}
	})
	x := c.rows("embed_tokens", cfg.Hidden, float32(cfg.EmbedScale), ids)
	for i := range cfg.Layers {
		p := fmt.Sprintf("layers.%d.", i)
		ck, cv := kv(i, context, positions, c.one(context, p+"self_attn.k_proj"))
		a := c.norm(x, p+"input_layernorm", cfg.Hidden)
		qk := c.linear(a, p+"self_attn.q_proj", p+"self_attn.k_proj")
		q := rotated(c.norm(qk[0], p+"self_attn.q_norm", dims.HeadDim), freq, where)
		bk, bv := kv(i, a, where, qk[1])
		a = c.attend(q, h, func(r int) []span {
			s, block := prefix[r/B], r/B*B
			return []span{{ck, cv, s.from, s.to}, {bk, bv, block, block + B}}
		})
		x = c.add(x, c.norm(c.one(a, p+"self_attn.o_proj"), p+"post_attention_layernorm", cfg.Hidden))
		f := c.mlp(c.norm(x, p+"pre_feedforward_layernorm", cfg.Hidden), p+"mlp.")
		x = c.add(x, c.norm(f, p+"post_feedforward_layernorm", cfg.Hidden))
		scalar := c.vector(p+"layer_scalar", 1)
		for j := range x.Data {
			x.Data[j] *= scalar[0]
		}
		if c.err != nil {
			return nil
		}
	}
	y := c.norm(x, "norm", cfg.Hidden)
	out := &Draft{Slots: slots, Rows: at.rows}
	for j := range slots {
		s, previous := decoder.NewMatrix(at.rows, cfg.Hidden), make([]int32, at.rows)
		at.each(func(row, text, n int) {
			copy(s.Row(row), y.Row(row*B+from+j))
			previous[row] = texts[text].Tokens[n+j]
		})
		out.states, out.previous = append(out.states, s), append(out.previous, previous)
	}
	c.see("lm_head", out.states)
	out.head = c.newHead("lm_head", cfg.Vocab, cfg.Hidden, cfg.FinalSoftcap)
	if out.head.rank = cfg.Markov; cfg.Markov > 0 {
		out.head.first, out.head.second = c.tensor("markov_head.markov_w1"), c.tensor("markov_head.markov_w2")
		if c.tap != nil {
			rows := c.rows("markov_head.markov_w1", cfg.Markov, 1, slices.Concat(out.previous...))
			c.see("markov_head.markov_w2", []decoder.Matrix{rows})
		}
	}
	return out
}
