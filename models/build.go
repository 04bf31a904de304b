package models

import (
	"fmt"

	"github.com/smelt-go/smelt/mil"
)

// graph is the state of building one function.
type graph struct {
	*mil.Builder
	m    *Model
	c    *Config
	part Part
	seen map[string]*mil.Value // consts of this function by tensor name
	kv   map[Kind]*kvStack
	rope map[Kind]ropeRows
	mask map[Kind]*mil.Value
	// layers are the keys and values that layers of this part may read, by
	// the layer that made them.
	layers    map[int]*layerKV
	hot, kept map[Kind]*mil.Value // of merged caches: where the call writes, and what it leaves
	perLayer  *mil.Value          // combined per-layer embeddings, [1,T,L*P]
}

// ropeRows are the rotation rows of the tokens of this call, [1,1,T,D].
type ropeRows struct{ cos, sin *mil.Value }

// kvStack collects what the layers of one kind read from and add to the cache.
type kvStack struct {
	keys, values *mil.Value // [n,kv,S,D]
	state, all   *mil.Value // the state and what was read from it
	next         int        // index of the next layer of this kind
	newK, newV   []*mil.Value
	wholeK       []*mil.Value // caches with the tokens of the call in them
	wholeV       []*mil.Value
}

// layerKV are the keys and values of one layer: those in the cache before this
// call, [1,kv,S,D], and those of its tokens, [1,kv,T,D]. In merged parts the
// former hold the latter.
type layerKV struct{ oldK, oldV, newK, newV *mil.Value }

// Build adds the ops of part to b, in fp32. Inputs, states and outputs are
// those that part declares; values are named layers.N.what.
//
// Ops and constants that carry the scale of the residual stream are tagged
// "residual": "source" on constants that make it, "norm" on norms that read
// it, "sink" on weights that are multiplied with it.
func (m *Model) Build(b *mil.Builder, part Part) error {
	g := &graph{Builder: b, m: m, c: &m.cfg, part: part, seen: map[string]*mil.Value{},
		kv: map[Kind]*kvStack{}, rope: map[Kind]ropeRows{}, mask: map[Kind]*mil.Value{}, layers: map[int]*layerKV{},
		hot: map[Kind]*mil.Value{}, kept: map[Kind]*mil.Value{}}
	in := map[string]*mil.Value{}
	for _, p := range part.Inputs {
		in[p.Name] = b.Input(p.Name, mil.T(floatAs32(p.DType), p.Shape...))
	}
	for _, p := range part.States {
		in[p.Name] = b.State(p.Name, mil.T(floatAs32(p.DType), p.Shape...))
	}
	if err := g.bind(in); err != nil {
		return err
	}
	x, err := g.start(in)
	if err == nil {
		err = g.startPerLayer(in, x)
	}
	if err != nil {
		return err
	}
	for i := part.First; i < part.Last; i++ {
		if x = g.layer(i, x); b.Err() != nil {
			return b.Err() // commit looks at shapes, which are gone
		}
	}
	g.commit(in)
	g.finish(x)
	return b.Err()
}

// floatAs32 is the element type while building; lowering to fp16 is a pass.
func floatAs32(d mil.DType) mil.DType {
	if d.IsFloat() {
		return mil.Float32
	}
	return d
}

// input finds a bound input by role.
func (g *graph) input(in map[string]*mil.Value, r Role, k Kind) *mil.Value {
	if p, ok := find(g.part.Inputs, r, k); ok {
		return in[p.Name]
	}
	return nil
}

// bind looks up masks, RoPE rows and caches of the kinds in this part.
func (g *graph) bind(in map[string]*mil.Value) error {
	first, last := g.part.First, g.part.Last
	for _, k := range g.c.AllKinds() {
		if !g.c.HasKind(k, first, last) {
			continue
		}
		g.mask[k] = g.input(in, Mask, k)
		g.rope[k] = ropeRows{g.input(in, RopeCos, k), g.input(in, RopeSin, k)}
		if g.mask[k] == nil || g.rope[k].cos == nil || g.rope[k].sin == nil {
			return fmt.Errorf("models: %s layers need mask, rope_cos and rope_sin inputs", k)
		}
		if g.part.Merged {
			g.hot[k] = g.input(in, WriteOneHot, k)
		}
		if n := len(g.c.Owners(k, first, last)); n > 0 {
			if err := g.bindStack(in, k, n); err != nil {
				return err
			}
		}
		if s := g.c.Borrowed(k, first, last); s >= 0 {
			kv := &layerKV{g.input(in, SharedKeys, k), g.input(in, SharedValues, k), g.input(in, SharedNewKeys, k), g.input(in, SharedNewValues, k)}
			if kv.oldK == nil || kv.oldV == nil || !g.part.Merged && (kv.newK == nil || kv.newV == nil) {
				return fmt.Errorf("models: layers %d to %d read the keys and values of layer %d and need them as inputs", first, last, s)
			}
			g.layers[s] = kv
		}
	}
	return nil
}

// bindStack finds the cache of the n layers of kind k that have their own
// keys and values.
func (g *graph) bindStack(in map[string]*mil.Value, k Kind, n int) error {
	st := &kvStack{keys: g.input(in, KeyCache, k), values: g.input(in, ValueCache, k)}
	if p, ok := find(g.part.States, KVState, k); ok {
		if len(p.Shape) != 4 {
			return fmt.Errorf("models: state %s has shape %v, want [2n,kv,S,D]", p.Name, p.Shape)
		}
		st.state = in[p.Name]
		st.all = g.Op("read_state", "kv_"+string(k)+"_read", mil.Args{"input": st.state})
		st.keys = g.sliceAxis("kv_"+string(k)+"_keys", st.all, 0, 0, n)
		st.values = g.sliceAxis("kv_"+string(k)+"_values", st.all, 0, n, 2*n)
	} else if st.keys != nil && st.values != nil {
		if t, _ := st.keys.Tensor(); t.Rank() != 4 {
			return fmt.Errorf("models: the key cache of %s layers is %v, want [n,kv,S,D]", k, t)
		}
	} else {
		return fmt.Errorf("models: %s layers need a key and a value cache, or a state", k)
	}
	g.kv[k] = st
	return nil
}

// start makes the residual stream: from the tokens, or from the chunk before.
func (g *graph) start(in map[string]*mil.Value) (*mil.Value, error) {
	if h := g.input(in, HiddenIn, ""); h != nil {
		return h, nil
	}
	ids := g.input(in, InputIDs, "")
	if ids == nil {
		return nil, fmt.Errorf("models: the part has neither %s nor %s as input", HiddenIn, InputIDs)
	}
	x := g.Op("gather", "embed.rows", mil.Args{"x": g.weight("model.embed_tokens.weight"), "indices": ids, "axis": 0})
	if g.c.EmbedScale == 1 && !g.part.Scaled {
		return x, nil
	}
	s := g.Const("embed.scale", mil.NewFloats(mil.Float32, nil, g.c.EmbedScale))
	g.Tag(s, "residual", "source")
	return g.Op("mul", "embed", mil.Args{"x": x, "y": s}), nil
}

// commit gathers the new keys and values of the layers; where the part has
// states and write positions it also writes them.
func (g *graph) commit(in map[string]*mil.Value) {
	for _, k := range g.c.AllKinds() {
		st := g.kv[k]
		if st == nil {
			continue
		}
		if g.part.Merged {
			g.commitMerged(k)
			continue
		}
		name := "kv_" + string(k)
		keys, values := g.stack(name+"_new_keys", st.newK), g.stack(name+"_new_values", st.newV)
		if p, ok := find(g.part.Outputs, NewKeys, k); ok {
			g.Output(p.Name, keys)
		}
		if p, ok := find(g.part.Outputs, NewValues, k); ok {
			g.Output(p.Name, values)
		}
		if st.state == nil {
			continue
		}
		g.lend(k)
		at, hot := g.input(in, WritePos, k), g.input(in, WriteOneHot, k)
		if at == nil && hot == nil {
			continue // verify: nothing is committed
		}
		added := g.Op("concat", name+"_new", mil.Args{"values": []*mil.Value{keys, values}, "axis": 0})
		var updated *mil.Value
		if hot != nil {
			updated = g.scatter(name, st.all, added, hot)
		} else {
			updated = g.update(name, st.all, added, at)
		}
		g.Op("write_state", name+"_write", mil.Args{"input": st.state, "data": updated})
	}
}

// lend returns what later parts read of this part's keys and values, where
// the host cannot take it from its cache.
func (g *graph) lend(k Kind) {
	for _, i := range g.c.Owners(k, g.part.First, g.part.Last) {
		if !g.c.Lent(i, g.part.Last) {
			continue
		}
		kv := g.layers[i]
		for _, x := range []struct {
			role Role
			v    *mil.Value
		}{{SharedKeys, kv.oldK}, {SharedValues, kv.oldV}, {SharedNewKeys, kv.newK}, {SharedNewValues, kv.newV}} {
			if p, ok := find(g.part.Outputs, x.role, k); ok {
				g.Output(p.Name, x.v)
			}
		}
	}
}

// stack joins per-layer [1,kv,T,D] into [n,kv,T,D].
func (g *graph) stack(name string, vs []*mil.Value) *mil.Value {
	if len(vs) == 1 {
		return vs[0]
	}
	return g.Op("concat", name, mil.Args{"values": vs, "axis": 0})
}

// update writes T consecutive slots from the position at, int32 [1].
func (g *graph) update(name string, old, added, at *mil.Value) *mil.Value {
	t, _ := added.Tensor()
	zero := g.Const(name+"_zero2", mil.NewInts(mil.Int32, []int{2}, 0, 0))
	last := g.Const(name+"_zero1", mil.NewInts(mil.Int32, []int{1}, 0))
	end01 := g.Const(name+"_end2", mil.NewInts(mil.Int32, []int{2}, t.Shape[0], t.Shape[1]))
	end3 := g.Const(name+"_end1", mil.NewInts(mil.Int32, []int{1}, t.Shape[3]))
	next := g.Op("add", name+"_next", mil.Args{"x": at, "y": g.Const(name+"_count", mil.NewInts(mil.Int32, []int{1}, g.part.T))})
	begin := g.Op("concat", name+"_begin", mil.Args{"values": []*mil.Value{zero, at, last}, "axis": 0})
	end := g.Op("concat", name+"_end", mil.Args{"values": []*mil.Value{end01, next, end3}, "axis": 0})
	return g.Op("slice_update", name+"_updated", mil.Args{"x": old, "update": added, "begin": begin, "end": end})
}

// scatter writes token t to the slot where column t of hot is one; columns of
// zeros write nothing. old·(1-Σhot) + hot·new is exact: every sum has one term.
func (g *graph) scatter(name string, old, added, hot *mil.Value) *mil.Value {
	taken := g.Op("reduce_sum", name+"_taken", mil.Args{"x": hot, "axes": []int{3}, "keep_dims": true})
	keep := g.Op("sub", name+"_keep", mil.Args{"x": 1.0, "y": taken})
	kept := g.Op("mul", name+"_kept", mil.Args{"x": old, "y": keep})
	put := g.Op("matmul", name+"_put", mil.Args{"x": hot, "y": added})
	return g.Op("add", name+"_updated", mil.Args{"x": kept, "y": put})
}

// finish applies the final norm and the head, as the outputs ask.
func (g *graph) finish(x *mil.Value) {
	var normed, logits *mil.Value
	norm := func() *mil.Value {
		if normed == nil {
			normed = g.rms("final_norm", "model.norm.weight", x, true, false)
		}
		return normed
	}
	head := func() *mil.Value {
		if logits == nil {
			logits = g.Op("linear", "logits", mil.Args{"x": norm(), "weight": g.weight(g.m.headName())})
			logits = g.softcap("logits", logits, g.c.FinalSoftcap)
		}
		return logits
	}
	var top []*mil.Value
	largest := func(p Port) []*mil.Value {
		if top == nil {
			// Indices of 16 bits would wrap in large vocabularies.
			top = g.OpN("topk", "top", mil.Args{"x": head(), "k": p.Shape[len(p.Shape)-1], "axis": -1, "output_indices_dtype": "int32"})
		}
		return top
	}
	for _, p := range g.part.Outputs {
		switch p.Role {
		case TopIDs:
			g.Output(p.Name, largest(p)[1])
		case TopLogits:
			g.Output(p.Name, largest(p)[0])
		case HiddenOut:
			if p.PostNorm {
				g.Output(p.Name, norm())
			} else {
				g.Output(p.Name, x)
			}
		case PerLayerOut:
			g.Output(p.Name, g.perLayer)
		case Logits:
			g.Output(p.Name, head())
		case TokenID:
			g.Output(p.Name, g.Op("reduce_argmax", "token_id", mil.Args{"x": head(), "axis": -1, "keep_dims": false, "output_dtype": "int32"}))
		case TokenLogit:
			g.Output(p.Name, g.Op("reduce_max", "token_logit", mil.Args{"x": head(), "axes": []int{-1}, "keep_dims": false}))
		}
	}
}
