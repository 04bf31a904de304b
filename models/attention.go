package models

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// attention is grouped-query attention over the cache and the T new tokens.
// x is [1,T,H], normed. Query heads that share a key head are rows of one
// matrix, so keys and values are never repeated; scores against the cache and
// against the new tokens are joined before the softmax, so the cache is never
// copied.
func (g *graph) attention(i int, x *mil.Value) *mil.Value {
	c, T := g.c, g.part.T
	p, n := fmt.Sprintf("model.layers.%d.self_attn.", i), fmt.Sprintf("layers.%d.", i)
	kind, d := c.Kinds[i], c.Dims(c.Kinds[i])
	rows, D := c.Heads/d.KVHeads*T, d.HeadDim

	heads := func(what string, count int) *mil.Value {
		v := g.linear(n+what+"_proj", p+what+"_proj", x, c.QKVBias, false)
		v = g.Op("reshape", n+what+"_heads", mil.Args{"x": v, "shape": []int{1, T, count, D}})
		switch {
		case c.QKNorm && what != "v":
			v = g.rms(n+what+"_norm", p+what+"_norm.weight", v, false, false)
		case c.VNorm && what == "v":
			v = g.rmsPlain(n+"v_norm", v)
		}
		return g.Op("transpose", n+what+"_t", mil.Args{"x": v, "perm": []int{0, 2, 1, 3}})
	}
	q := g.rotate(n+"q", heads("q", c.Heads), kind)
	if c.Source(i) == i {
		k := g.rotate(n+"k", heads("k", d.KVHeads), kind)
		v := heads("v", d.KVHeads)
		st := g.kv[kind]
		st.newK, st.newV = append(st.newK, k), append(st.newV, v)
		g.layers[i] = &layerKV{newK: k, newV: v}
		if g.part.Merged {
			g.layers[i] = g.merge(n, kind, k, v)
		}
	}
	kv := g.layers[c.Source(i)]
	if c.AttnScale != 1 {
		q = g.Op("mul", n+"q_scaled", mil.Args{"x": q, "y": c.AttnScale})
	}
	q = g.Op("reshape", n+"q_rows", mil.Args{"x": q, "shape": []int{1, d.KVHeads, rows, D}})

	var o *mil.Value
	if g.part.Merged {
		o = g.attendMerged(n, kind, q, kv, rows)
	} else {
		o = g.attend(n, kind, q, kv, rows)
	}
	o = g.Op("reshape", n+"mix_heads", mil.Args{"x": o, "shape": []int{1, c.Heads, T, D}})
	o = g.Op("transpose", n+"mix_t", mil.Args{"x": o, "perm": []int{0, 2, 1, 3}})
	o = g.Op("reshape", n+"mix_flat", mil.Args{"x": o, "shape": []int{1, T, c.Heads * D}})
	return g.linear(n+"attn_out", p+"o_proj", o, c.OBias, !c.Sandwich)
}

// attend is attention over the cache and, beside it, the tokens of the call.
// q is [1,kv,rows,D].
func (g *graph) attend(n string, kind Kind, q *mil.Value, kv *layerKV, rows int) *mil.Value {
	T, heads := g.part.T, g.c.Dims(kind).KVHeads
	if kv.oldK == nil {
		st := g.kv[kind]
		kv.oldK = g.sliceAxis(n+"k_cache", st.keys, 0, st.next, st.next+1)
		kv.oldV = g.sliceAxis(n+"v_cache", st.values, 0, st.next, st.next+1)
		st.next++
	}
	slots := axis(kv.oldK, 2)
	s0 := g.Op("matmul", n+"scores_cache", mil.Args{"x": q, "y": kv.oldK, "transpose_y": true})
	s1 := g.Op("matmul", n+"scores_new", mil.Args{"x": q, "y": kv.newK, "transpose_y": true})
	s := g.Op("concat", n+"scores", mil.Args{"values": []*mil.Value{s0, s1}, "axis": 3})
	s = g.softcap(n+"scores", s, g.c.AttnSoftcap)
	if T > 1 {
		s = g.Op("reshape", n+"scores_by_head", mil.Args{"x": s, "shape": []int{heads, rows / T, T, slots + T}})
	}
	s = g.Op("add", n+"scores_masked", mil.Args{"x": s, "y": g.mask[kind]})
	w := g.Op("softmax", n+"probs", mil.Args{"x": s, "axis": -1})
	if T > 1 {
		w = g.Op("reshape", n+"probs_rows", mil.Args{"x": w, "shape": []int{1, heads, rows, slots + T}})
	}
	w0 := g.sliceAxis(n+"probs_cache", w, 3, 0, slots)
	w1 := g.sliceAxis(n+"probs_new", w, 3, slots, slots+T)
	o0 := g.Op("matmul", n+"mix_cache", mil.Args{"x": w0, "y": kv.oldV})
	o1 := g.Op("matmul", n+"mix_new", mil.Args{"x": w1, "y": kv.newV})
	return g.Op("add", n+"mix", mil.Args{"x": o0, "y": o1})
}

// rotate applies RoPE to [1,heads,T,D]: x·cos + [-x₂, x₁]·sin, halves paired.
func (g *graph) rotate(name string, x *mil.Value, k Kind) *mil.Value {
	D, r := g.c.Dims(k).HeadDim, g.rope[k]
	lo := g.sliceAxis(name+".lo", x, 3, 0, D/2)
	hi := g.sliceAxis(name+".hi", x, 3, D/2, D)
	neg := g.Op("mul", name+".neg", mil.Args{"x": hi, "y": -1.0})
	half := g.Op("concat", name+".half", mil.Args{"values": []*mil.Value{neg, lo}, "axis": 3})
	a := g.Op("mul", name+".cos", mil.Args{"x": x, "y": r.cos})
	b := g.Op("mul", name+".sin", mil.Args{"x": half, "y": r.sin})
	return g.Op("add", name, mil.Args{"x": a, "y": b})
}

// axis is the size of one axis of v, 0 after an error.
func axis(v *mil.Value, i int) int {
	t, _ := v.Tensor()
	if t.Rank() <= i {
		return 0
	}
	return t.Shape[i]
}
