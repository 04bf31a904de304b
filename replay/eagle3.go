package replay

import (
	"context"

	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/drafter"
)

// eagle3 runs an EAGLE-3 head: row t of a text pairs the target's taps of t with
// the embedding of token t+1. Slot 0 behind n tokens is row n−1; slot j takes the
// head's own stream of slot j−1 in place of taps, at position n−1+j, and sees the
// text's rows up to n−1 and the slots' own.
func (d *Drafter) eagle3(ctx context.Context, c *calc, texts []drafter.Rows, bases [][]int, slots int) *Draft {
	cfg := d.c
	width := len(cfg.Taps) * cfg.TargetHidden
	lengths := make([]int, len(texts))
	var taps []float32
	var tokens []int32
	var positions []int
	for i, t := range texts {
		n := len(t.Tokens) - 1
		lengths[i] = n
		taps = append(taps, t.Taps[:n*width]...)
		tokens = append(tokens, t.Tokens[1:]...)
		for p := range n {
			positions = append(positions, p)
		}
	}
	at := places(lengths, bases)
	own := false
	if _, ok := d.src.Tensor("embed_tokens.weight"); ok {
		own = true
	}
	embed := func(ids []int32) decoder.Matrix {
		if own {
			return c.rows("embed_tokens", cfg.Hidden, 1, ids)
		}
		return d.embed(ctx, c, ids)
	}
	const p = "midlayer."
	freq := cfg.Rope[cfg.Kinds[0]].InvFreq()
	h := heads{cfg.Heads, cfg.KVHeads, cfg.HeadDim, float32(cfg.AttnScale)}
	rows := func(fused, embedded decoder.Matrix, positions []int, spans func(k, v decoder.Matrix) func(int) []span) (x, k, v decoder.Matrix) {
		z := beside(c.norm(embedded, p+"input_layernorm", cfg.Hidden), c.norm(fused, p+"hidden_norm", cfg.Hidden))
		qkv := c.linear(z, p+"self_attn.q_proj", p+"self_attn.k_proj", p+"self_attn.v_proj")
		k, v = rotated(qkv[1], freq, positions), qkv[2]
		a := c.attend(rotated(qkv[0], freq, positions), h, spans(k, v))
		x = c.add(fused, c.one(a, p+"self_attn.o_proj"))
		x = c.add(x, c.mlp(c.norm(x, p+"post_attention_layernorm", cfg.Hidden), p+"mlp."))
		return x, k, v
	}
	row2text := make([]int, len(positions)) // first row of the row's text
	for i, n := range lengths {
		for r := range n {
			row2text[at.start[i]+r] = at.start[i]
		}
	}
	fused := c.one(decoder.Matrix{Rows: len(positions), Cols: width, Data: taps}, "fc")
	x, k, v := rows(fused, embed(tokens), positions, func(k, v decoder.Matrix) func(int) []span {
		return func(r int) []span { return []span{{k, v, row2text[r], r + 1}} }
	})
	if c.err != nil {
		return nil
	}
	out := &Draft{Slots: slots, Rows: at.rows}
	chain := decoder.NewMatrix(at.rows, cfg.Hidden)
	at.each(func(row, text, n int) { copy(chain.Row(row), x.Row(at.start[text]+n-1)) })
	type kv struct{ k, v decoder.Matrix }
	var steps []kv
	for j := 0; ; j++ {
		out.states = append(out.states, c.norm(chain, "norm", cfg.Hidden))
		if j+1 == slots || c.err != nil {
			break
		}
		ids, positions := make([]int32, at.rows), make([]int, at.rows)
		prefix := make([]span, at.rows)
		at.each(func(row, text, n int) {
			ids[row], positions[row] = texts[text].Tokens[n+j+1], n+j
			prefix[row] = span{k, v, at.start[text], at.start[text] + n}
		})
		var own kv
		chain, own.k, own.v = rows(chain, embed(ids), positions, func(k, v decoder.Matrix) func(int) []span {
			return func(r int) []span {
				s := []span{prefix[r]}
				for _, before := range steps {
					s = append(s, span{before.k, before.v, r, r + 1})
				}
				return append(s, span{k, v, r, r + 1})
			}
		})
		steps = append(steps, own)
	}
	c.see("lm_head", out.states)
	out.head = c.newHead("lm_head", cfg.DraftVocab, cfg.Hidden, 0)
	return out
}
