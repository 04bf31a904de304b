package replay

import (
	"context"
	"fmt"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/models"
)

// assistant runs the Gemma 4 assistant: slot j behind n tokens reads the target's
// embedding of token n+j and a hidden state, the target's of token n−1 or what
// slot j−1 projected, and attends to the target's keys and values of the n tokens
// from position n, whatever j.
func (d *Drafter) assistant(ctx context.Context, c *calc, texts []drafter.Rows, bases [][]int, slots int) *Draft {
	cfg := d.c
	at := places(make([]int, len(texts)), bases)
	type kv struct{ k, v decoder.Matrix }
	own := make([]map[models.Kind]kv, len(texts))
	for i, t := range texts {
		own[i] = map[models.Kind]kv{}
		for kind, shape := range d.needs.Keys {
			w := shape.Heads * shape.HeadDim
			own[i][models.Kind(kind)] = kv{decoder.Matrix{Rows: len(t.Tokens), Cols: w, Data: t.Keys[kind]}, decoder.Matrix{Rows: len(t.Tokens), Cols: w, Data: t.Values[kind]}}
		}
	}
	of, n := make([]int, at.rows), make([]int, at.rows)
	hidden := decoder.NewMatrix(at.rows, cfg.TargetHidden)
	at.each(func(row, text, base int) {
		of[row], n[row] = text, base
		copy(hidden.Row(row), texts[text].Hidden[(base-1)*cfg.TargetHidden:base*cfg.TargetHidden])
	})
	table := "model.embed_tokens"
	if !cfg.Tied {
		table = "lm_head"
	}
	out := &Draft{Slots: slots, Rows: at.rows}
	for j := range slots {
		ids := make([]int32, at.rows)
		at.each(func(row, text, base int) { ids[row] = texts[text].Tokens[base+j] })
		x := c.one(beside(d.embed(ctx, c, ids), hidden), "pre_projection")
		for i, kind := range cfg.Kinds {
			p := fmt.Sprintf("model.layers.%d.", i)
			dims := cfg.Dims(kind)
			h := heads{cfg.Heads, dims.KVHeads, dims.HeadDim, float32(cfg.AttnScale)}
			a := c.norm(x, p+"input_layernorm", cfg.Hidden)
			q := rotated(c.norm(c.one(a, p+"self_attn.q_proj"), p+"self_attn.q_norm", dims.HeadDim), cfg.Rope[kind].InvFreq(), n)
			a = c.attend(q, h, func(r int) []span {
				first := 0
				if kind == models.Sliding {
					// Its query stands behind the last row, which it counts as well.
					first = max(0, n[r]-cfg.Window-1)
				}
				rows := own[of[r]][kind]
				return []span{{rows.k, rows.v, first, n[r]}}
			})
			x = c.add(x, c.norm(c.one(a, p+"self_attn.o_proj"), p+"post_attention_layernorm", cfg.Hidden))
			f := c.mlp(c.norm(x, p+"pre_feedforward_layernorm", cfg.Hidden), p+"mlp.")
			x = c.add(x, c.norm(f, p+"post_feedforward_layernorm", cfg.Hidden))
			scalar := c.vector(p+"layer_scalar", 1)
			for k := range x.Data {
				x.Data[k] *= scalar[0]
			}
			if c.err != nil {
				return nil
			}
		}
		y := c.norm(x, "model.norm", cfg.Hidden)
		out.states = append(out.states, y)
		hidden = c.one(y, "post_projection")
		if c.err != nil {
			return nil
		}
	}
	c.see(table, out.states)
	out.head = c.newHead(table, cfg.Vocab, cfg.Hidden, 0)
	if cfg.Clusters > 0 {
		const path = "masked_embedding.centroids"
		c.see(path, out.states)
		if t := c.tensor(path); t != nil {
			w, err := checkpoint.ReadAll(t)
			c.fail(err)
			out.head.centroids = w
		}
		out.head.order, out.head.top = d.order, cfg.TopClusters
	}
	return out
}
