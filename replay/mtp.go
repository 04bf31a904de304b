package replay

import (
	"fmt"

	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/drafter"
)

// mtp runs a stack of multi-token-prediction modules, each over all positions of
// the texts: module k reads at t the hidden state of t (the trunk's, or what
// module k−1 returned) and token t+1+k, and guesses token t+2+k, so that slot k
// behind n tokens is its row n−1.
func (d *Drafter) mtp(c *calc, texts []drafter.Rows, bases [][]int, slots int) *Draft {
	cfg := d.c
	dims := cfg.Dims(cfg.Kinds[0])
	freq := cfg.Rope[cfg.Kinds[0]].InvFreq()
	h := heads{cfg.Heads, dims.KVHeads, dims.HeadDim, float32(cfg.AttnScale)}
	out := &Draft{Slots: slots, Rows: places(make([]int, len(texts)), bases).rows}
	var before decoder.Matrix
	var was []int // rows of every text in it
	for k := range slots {
		var hidden []float32
		var tokens []int32
		var positions, first, lengths []int
		at := 0
		for i, t := range texts {
			n := len(t.Tokens) - 1 - k
			if k == 0 {
				hidden = append(hidden, t.Hidden[:n*cfg.Hidden]...)
			} else {
				hidden = append(hidden, before.Data[at*cfg.Hidden:(at+n)*cfg.Hidden]...)
				at += was[i]
			}
			start := len(tokens)
			tokens = append(tokens, t.Tokens[1+k:]...)
			lengths = append(lengths, n)
			for p := range n {
				positions, first = append(positions, p), append(first, start)
			}
		}
		p := fmt.Sprintf("modules_list.%d.", k)
		x := decoder.Matrix{Rows: len(tokens), Cols: cfg.Hidden, Data: hidden}
		x = c.one(beside(x, c.rows("embed_tokens", cfg.Hidden, float32(cfg.EmbedScale), tokens)), p+"input_proj")
		qkv := c.linear(c.norm(x, p+"input_layernorm", cfg.Hidden), p+"attn.q_proj", p+"attn.k_proj", p+"attn.v_proj")
		q := rotated(c.norm(qkv[0], p+"attn.q_norm", dims.HeadDim), freq, positions)
		key := rotated(c.norm(qkv[1], p+"attn.k_norm", dims.HeadDim), freq, positions)
		a := c.attend(q, h, func(r int) []span {
			return []span{{key, qkv[2], first[r] + max(0, positions[r]-cfg.Window+1), r + 1}}
		})
		x = c.add(x, c.norm(c.one(a, p+"attn.o_proj"), p+"post_attention_layernorm", cfg.Hidden))
		f := c.mlp(c.norm(x, p+"pre_feedforward_layernorm", cfg.Hidden), p+"mlp.")
		x = c.add(x, c.norm(f, p+"post_feedforward_layernorm", cfg.Hidden))
		before, was = c.norm(x, p+"final_norm", cfg.Hidden), lengths
		if c.err != nil {
			return nil
		}
		s := decoder.NewMatrix(out.Rows, cfg.Hidden)
		pl := places(lengths, bases)
		pl.each(func(row, text, n int) { copy(s.Row(row), before.Row(pl.start[text]+n-1)) })
		out.states = append(out.states, s)
	}
	c.see("embed_tokens", out.states)
	out.head = c.newHead("embed_tokens", cfg.Vocab, cfg.Hidden, cfg.FinalSoftcap)
	return out
}
