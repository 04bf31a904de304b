package models

import (
	"fmt"
	"io"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/mil"
)

// Tensors of the Gemma 4 assistant beside those of its layers.
const (
	preProjection  = "pre_projection"
	postProjection = "post_projection"
	centroids      = "masked_embedding.centroids"
	tokenOrder     = "masked_embedding.token_ordering"
	assistantTable = "model." + embedTable
)

// readGemma4Assistant reads the multi-token-prediction drafter of Gemma 4: its
// layers without keys, values and per-layer embeddings of their own. It reads
// the keys and values of its target's last layer of each kind.
func readGemma4Assistant(o *object, c *DrafterConfig, _ DrafterChoices) {
	c.TargetHidden = o.int("backbone_hidden_size")
	clusters, top := o.intOr("num_centroids", 0), o.intOr("centroid_intermediate_top_k", 0)
	if o.boolOr("use_ordered_embeddings", false) {
		c.Clusters, c.TopClusters = clusters, top
	}
	t := o.sub("text_config")
	if t == nil {
		return
	}
	t.is("gemma4_text")
	tied := o.boolOr("tie_word_embeddings", t.boolOr("tie_word_embeddings", true))
	t.common(&c.Config)
	known := t.gemma4Text(&c.Config)
	if t.boolOr("attention_k_eq_v", false) {
		t.fail("attention_k_eq_v is not supported: a drafter has no keys of its own")
	}
	if t.boolOr("use_double_wide_mlp", false) {
		t.fail("use_double_wide_mlp is true, but a drafter's layers are all of one width")
	}
	for _, k := range []string{"hidden_size_per_layer_input", "vocab_size_per_layer_input"} {
		if n := t.intOr(k, 0); n != 0 {
			t.fail("%s is %d, but a drafter has no per-layer embeddings", k, n)
		}
	}
	if n := t.intOr("num_kv_shared_layers", 0); known && n != 0 && n != c.Layers {
		t.fail("num_kv_shared_layers is %d, but all %d layers of a drafter read the target's keys and values", n, c.Layers)
	}
	t.specials(&c.Config)
	if t.err == nil {
		t.unread(nil)
	}
	o.join(t)
	c.Tied, c.FinalSoftcap, c.VNorm = tied, 0, false // drafters do not apply the cap
	c.DraftVocab, c.Norm = c.Vocab, "post"
	switch {
	case c.Clusters == 0 && c.TopClusters == 0:
	case c.Clusters <= 0 || c.TopClusters <= 0 || c.TopClusters > c.Clusters || c.Vocab%c.Clusters != 0:
		o.fail("num_centroids %d and centroid_intermediate_top_k %d do not divide a vocabulary of %d", c.Clusters, c.TopClusters, c.Vocab)
	}
}

func (d *Drafter) gemma4Tensors() (want map[string][]int, ints, optional []string) {
	c := &d.cfg
	want = map[string][]int{
		assistantTable: {c.Vocab, c.Hidden}, "model.norm.weight": {c.Hidden},
		preProjection + ".weight": {c.Hidden, 2 * c.TargetHidden}, postProjection + ".weight": {c.TargetHidden, c.Hidden},
	}
	if !c.Tied {
		want[headTable] = []int{c.Vocab, c.Hidden}
	}
	if c.Clusters > 0 {
		want[centroids+".weight"] = []int{c.Clusters, c.Hidden}
		want[tokenOrder] = []int{c.Vocab}
		ints = append(ints, tokenOrder)
	}
	for i, k := range c.Kinds {
		p := fmt.Sprintf("model.layers.%d.", i)
		layerTensors(want, p, "self_attn.", &c.Config, k, c.Hidden, "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
		for _, own := range []string{"k_proj.weight", "v_proj.weight", "k_norm.weight"} {
			delete(want, p+"self_attn."+own)
		}
		want[p+"layer_scalar"] = []int{1}
	}
	return want, ints, nil
}

// readOrder reads which tokens each cluster holds: a permutation of the
// vocabulary.
func (d *Drafter) readOrder() error {
	t, _ := d.m.src.Tensor(tokenOrder)
	ids, err := checkpoint.ReadInts(t)
	if err != nil {
		return fmt.Errorf("models: %w", err)
	}
	d.order = make([]int32, len(ids))
	seen := make([]bool, len(ids))
	for i, id := range ids {
		if id < 0 || int(id) >= len(seen) || seen[id] {
			return fmt.Errorf("models: tensor %q: element %d is %d: not every token of the vocabulary of %d occurs once", tokenOrder, i, id, len(ids))
		}
		d.order[i], seen[id] = int32(id), true
	}
	return nil
}

// gemma4Assistant is one step: the embedding of the last token beside a hidden
// state of the target's width, through layers that attend to the target's
// keys and values.
func (g *draftGraph) gemma4Assistant() {
	c := g.dc
	x := g.Op("concat", "inputs_embeds", mil.Args{"values": []*mil.Value{g.need(TokenEmbedding, ""), g.need(TargetHidden, "")}, "axis": 2})
	x = g.linear("pre_projection", preProjection, x, false, false)
	for i, k := range c.Kinds {
		p, n := fmt.Sprintf("model.layers.%d.", i), fmt.Sprintf("layers.%d.", i)
		a := g.rms(n+"attn_norm", p+"input_layernorm.weight", x, false, false)
		q := g.rotate(n+"q", g.heads(n+"q", p+"self_attn.q_proj", p+"self_attn.q_norm.weight", a, c.Heads, c.Dims(k).HeadDim), k)
		a = g.mix(n, p+"self_attn.o_proj", k, q, &layerKV{oldK: g.need(KeyCache, k), oldV: g.need(ValueCache, k)}, true)
		a = g.rms(n+"post_attn_norm", p+"post_attention_layernorm.weight", a, false, false)
		x = g.Op("add", n+"resid_mid", mil.Args{"x": x, "y": a})
		f := g.gated(n, p+"mlp.", g.rms(n+"mlp_norm", p+"pre_feedforward_layernorm.weight", x, false, false))
		f = g.rms(n+"post_mlp_norm", p+"post_feedforward_layernorm.weight", f, false, false)
		x = g.Op("add", n+"resid_mlp", mil.Args{"x": x, "y": f})
		x = g.Op("mul", n+"out", mil.Args{"x": x, "y": g.weight(p + "layer_scalar")})
	}
	x = g.rms("final_norm", "model.norm.weight", x, false, false)
	g.give(DraftHiddenOut, "", g.linear("projected", postProjection, x, false, false))
	table := assistantTable
	if !c.Tied {
		table = headTable
	}
	if c.Clusters == 0 {
		g.give(Logits, "", g.Op("linear", "logits", mil.Args{"x": x, "weight": g.weight(table)}))
		return
	}
	ids, logits := g.clusters(table, x)
	g.give(CandidateIDs, "", ids)
	g.give(CandidateLogits, "", logits)
}

// clusters computes the logits of the tokens in the best clusters alone.
func (g *draftGraph) clusters(table string, x *mil.Value) (ids, logits *mil.Value) {
	c := g.dc
	size, n := c.Vocab/c.Clusters, c.Vocab/c.Clusters*c.TopClusters
	scores := g.linear("centroid_scores", centroids, x, false, false)
	best := g.OpN("topk", "clusters", mil.Args{"x": scores, "k": c.TopClusters, "axis": -1, "output_indices_dtype": "int32"})[1]
	best = g.Op("reshape", "clusters_flat", mil.Args{"x": best, "shape": []int{c.TopClusters}})
	members := make([]int, len(g.d.order))
	for i, id := range g.d.order {
		members[i] = int(id)
	}
	ids = g.Op("gather", "members", mil.Args{"x": g.Const(tokenOrder, mil.NewInts(mil.Int32, []int{c.Clusters, size}, members...)), "indices": best, "axis": 0})
	ids = g.Op("reshape", "candidate_ids", mil.Args{"x": ids, "shape": []int{1, n}})
	var rows *mil.Value
	if g.flat {
		flat := g.Op("reshape", "candidates_flat", mil.Args{"x": ids, "shape": []int{n}})
		rows = g.Op("gather", "rows_flat", mil.Args{"x": g.weight(table), "indices": flat, "axis": 0})
	} else {
		t, ok := g.d.m.src.Tensor(table)
		if !ok {
			g.Fail(fmt.Errorf("models: tensor %q is missing", table))
			return x, x
		}
		rows = g.Op("gather", "rows", mil.Args{"x": g.Const(table, &byCluster{&weight{t}, g.d.order, []int{c.Clusters, size, c.Hidden}}), "indices": best, "axis": 0})
		rows = g.Op("reshape", "rows_flat", mil.Args{"x": rows, "shape": []int{n, c.Hidden}})
	}
	x = g.Op("reshape", "final_norm_row", mil.Args{"x": x, "shape": []int{1, c.Hidden}})
	return ids, g.Op("matmul", "candidate_logits", mil.Args{"x": x, "y": rows, "transpose_y": true})
}

// byCluster is a table whose rows are written in another order.
type byCluster struct {
	w     *weight
	order []int32
	shape []int
}

func (b *byCluster) Type() mil.TensorType { return mil.T(mil.Float32, b.shape...) }

// Name is the tensor's name in the checkpoint.
func (b *byCluster) Name() string { return b.w.Name() }

func (b *byCluster) WriteTo(out io.Writer) (int64, error) {
	defer checkpoint.Release(b.w.t)
	width := int64(b.shape[len(b.shape)-1]) * 4
	row := make([]byte, width)
	done := int64(0)
	for _, id := range b.order {
		if err := b.w.readRange(row, int64(id)*width); err != nil {
			return done, err
		}
		n, err := out.Write(row)
		if done += int64(n); err != nil {
			return done, err
		}
	}
	return done, nil
}
