package models

import "github.com/smelt-go/smelt/mil"

// Parts of which Merged is set attend to caches that hold the tokens of the
// call already:
//
//   - With WriteOneHot, the tokens are written to their slots: the cache is
//     old·(1-Σhot) + hot·new, exact because every sum has one term.
//   - Without it, the cache is right-aligned: the newest token stands in the
//     last slot. Where the cache is returned the oldest rows make room, else
//     the tokens are appended.
//
// Cached rows may be wider than heads; the rest is zero.

// merge makes what layer i of kind k attends to, [1,kv,columns,D], from its
// part of the cache and the keys and values of the call.
func (g *graph) merge(n string, k Kind, key, value *mil.Value) *layerKV {
	st := g.kv[k]
	kv := &layerKV{newK: key, newV: value}
	at := st.next
	st.next++
	kv.oldK, st.wholeK = g.mergeOne(n+"k_", k, g.sliceAxis(n+"k_cache", st.keys, 0, at, at+1), key, st.wholeK)
	kv.oldV, st.wholeV = g.mergeOne(n+"v_", k, g.sliceAxis(n+"v_cache", st.values, 0, at, at+1), value, st.wholeV)
	return kv
}

// mergeOne returns the keys or values to attend to, and appends the new cache
// of the layer to whole if the part returns caches.
func (g *graph) mergeOne(name string, k Kind, old, added *mil.Value, whole []*mil.Value) (*mil.Value, []*mil.Value) {
	D, wide := axis(added, 3), axis(old, 3)
	narrow := func(x *mil.Value, name string) *mil.Value {
		if wide == D {
			return x
		}
		return g.sliceAxis(name, x, 3, 0, D)
	}
	_, returned := find(g.part.Outputs, KeyCacheOut, k)
	if g.hot[k] == nil && !returned {
		return g.Op("concat", name+"seen", mil.Args{"values": []*mil.Value{narrow(old, name+"cache_head"), added}, "axis": 2}), whole
	}
	if wide > D {
		added = g.Op("pad", name+"wide", mil.Args{"x": added, "pad": []int{0, 0, 0, 0, 0, 0, 0, wide - D}})
	}
	var merged *mil.Value
	if hot := g.hot[k]; hot != nil {
		kept := g.Op("mul", name+"kept", mil.Args{"x": old, "y": g.keep(k)})
		put := "matmul"
		if g.part.T == 1 {
			put = "mul"
		}
		merged = g.Op("add", name+"merged", mil.Args{"x": kept, "y": g.Op(put, name+"put", mil.Args{"x": hot, "y": added})})
	} else {
		rest := g.sliceAxis(name+"kept", old, 2, g.part.T, axis(old, 2))
		merged = g.Op("concat", name+"merged", mil.Args{"values": []*mil.Value{rest, added}, "axis": 2})
	}
	return narrow(merged, name+"seen"), append(whole, merged)
}

// keep is 1 for the slots that the call does not write, [1,1,S,1].
func (g *graph) keep(k Kind) *mil.Value {
	if v, ok := g.kept[k]; ok {
		return v
	}
	name, taken := "kv_"+string(k), g.hot[k]
	if g.part.T > 1 {
		taken = g.Op("reduce_sum", name+"_taken", mil.Args{"x": taken, "axes": []int{3}, "keep_dims": true})
	}
	g.kept[k] = g.Op("sub", name+"_keep", mil.Args{"x": 1.0, "y": taken})
	return g.kept[k]
}

// attendMerged is attention over what merge made. q is [1,kv,rows,D].
func (g *graph) attendMerged(n string, k Kind, q *mil.Value, kv *layerKV, rows int) *mil.Value {
	T, heads, slots := g.part.T, g.c.Dims(k).KVHeads, axis(kv.oldK, 2)
	s := g.Op("matmul", n+"scores", mil.Args{"x": q, "y": kv.oldK, "transpose_y": true})
	s = g.softcap(n+"scores", s, g.c.AttnSoftcap)
	if T > 1 {
		s = g.Op("reshape", n+"scores_by_head", mil.Args{"x": s, "shape": []int{heads, rows / T, T, slots}})
	}
	s = g.Op("add", n+"scores_masked", mil.Args{"x": s, "y": g.mask[k]})
	w := g.Op("softmax", n+"probs", mil.Args{"x": s, "axis": -1})
	if T > 1 {
		w = g.Op("reshape", n+"probs_rows", mil.Args{"x": w, "shape": []int{1, heads, rows, slots}})
	}
	return g.Op("matmul", n+"mix", mil.Args{"x": w, "y": kv.oldV})
}

// commitMerged returns what a part with merged caches gives of kind k.
func (g *graph) commitMerged(k Kind) {
	st := g.kv[k]
	for _, x := range []struct {
		role Role
		name string
		vs   []*mil.Value
	}{{KeyCacheOut, "keys_out", st.wholeK}, {ValueCacheOut, "values_out", st.wholeV}, {NewKeys, "new_keys", st.newK}, {NewValues, "new_values", st.newV}} {
		if p, ok := find(g.part.Outputs, x.role, k); ok {
			g.Output(p.Name, g.stack("kv_"+string(k)+"_"+x.name, x.vs))
		}
	}
	g.lend(k)
}
