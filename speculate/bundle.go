package speculate

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// BundleTarget is a converted bundle as a target. It needs decode and verify
// functions.
type BundleTarget struct {
	e       *engine.Engine
	s       *engine.Session
	needs   drafter.Needs
	pending *engine.Pending // the last Verify, its tokens and what it computed
	ids     []int32
	states  []tokenState
	max     int
	wide    map[string]int // layers whose keys and values are read, by kind
	// taps has the streams after tapped layers of the last call, [T·hidden].
	taps  map[int][]float32
	table checkpoint.Tensor
	close func() error
}

// NewBundleTarget starts a text.
func NewBundleTarget(e *engine.Engine) (*BundleTarget, error) {
	t := &BundleTarget{e: e, s: e.NewSession(), wide: map[string]int{}}
	c := e.Contract()
	decode := false
	for _, f := range c.Chunks[0].Functions {
		switch f.Kind {
		case chunking.Verify:
			t.max = max(t.max, f.T)
		case chunking.Decode:
			decode = true
		}
	}
	if t.max == 0 || !decode {
		return nil, fmt.Errorf("speculate: %s cannot be a target: it has no decode and verify functions (convert with --functions decode,prefill:64,verify:8)", e.Dir())
	}
	for l, k := range c.Model.Kinds {
		if c.Model.KVSource == nil || c.Model.KVSource[l] == l {
			t.wide[string(k)] = l
		}
	}
	return t, nil
}

// Session is the engine's session, for options such as WriteThrough.
func (t *BundleTarget) Session() *engine.Session { return t.s }

// SetWriteThrough writes all drafts into the cache at once, accepted or not, as
// some hosts used to: see engine.Session.
func (t *BundleTarget) SetWriteThrough(on bool) { t.s.WriteThrough = on }

// Describe says what the bundle is.
func (t *BundleTarget) Describe() drafter.Target {
	c := t.e.Contract()
	d := drafter.Target{Name: t.e.Dir(), Hidden: c.Model.Hidden, Vocab: c.Model.Vocab, Layers: c.Model.Layers, Keys: map[string]drafter.Shape{}}
	for kind := range t.wide {
		a := c.Attention[models.Kind(kind)]
		d.Keys[kind] = drafter.Shape{Heads: a.KVHeads, HeadDim: a.HeadDim}
	}
	return d
}

// Context is the number of positions.
func (t *BundleTarget) Context() int { return t.e.Contract().Context }

// EOS are the tokens that end a text.
func (t *BundleTarget) EOS() []int32 {
	var out []int32
	for _, id := range t.e.Contract().Model.EOS {
		out = append(out, int32(id))
	}
	return out
}

// MaxVerify is the number of tokens of the largest verify function.
func (t *BundleTarget) MaxVerify() int { return t.max }

// Pos is the number of tokens processed.
func (t *BundleTarget) Pos() int { return t.s.Pos() }

// Reset starts a new text.
func (t *BundleTarget) Reset() { t.s.Reset() }

// hiddenNorm is the tag of the hidden states that rows carry, "" if none.
func (t *BundleTarget) hiddenNorm() string {
	c := t.e.Contract()
	for _, p := range c.Chunks[len(c.Chunks)-1].Functions[0].Outputs {
		if p.Role == models.HiddenOut {
			return p.Norm
		}
	}
	return ""
}

// Require asks for taps, hidden states, keys and values.
func (t *BundleTarget) Require(n drafter.Needs) error {
	t.s.Tap, t.taps = nil, nil
	if len(n.Taps) > 0 {
		if err := t.tap(n.Taps); err != nil {
			return err
		}
	}
	if n.Norm != "" && t.hiddenNorm() != n.Norm {
		return fmt.Errorf("speculate: the drafter reads %s-norm hidden states, %s delivers %q (convert with --head token,logits,%s)", n.Norm, t.e.Dir(), t.hiddenNorm(),
			map[string]string{drafter.Pre: "hidden", drafter.Post: "normed"}[n.Norm])
	}
	t.needs = n
	return nil
}

// tap keeps the residual stream after the layers, which graphs name
// layers_N_out, or return from the chunk that ends there.
func (t *BundleTarget) tap(layers []int) error {
	t.taps = map[int][]float32{}
	names := map[string]int{}
	for _, l := range layers {
		if l < 0 || l >= t.e.Contract().Model.Layers {
			return fmt.Errorf("speculate: %s has no residual stream after layer %d to be tapped", t.e.Dir(), l)
		}
		names[fmt.Sprintf("layers_%d_out", l)] = l
		for _, c := range t.e.Contract().Chunks {
			if p := chunking.Find(c.Functions[0].Outputs, models.HiddenOut, ""); p != nil && p.Norm == drafter.Pre && c.Last == l+1 {
				names[p.Name+"@"+c.Name] = l
			}
		}
	}
	unscale := float32(1 / t.e.Contract().ResidualScale)
	t.s.Tap = func(c *chunking.Chunk, _ *chunking.Function, name string, x *runtime.Tensor) {
		l, ok := names[name]
		if !ok {
			if l, ok = names[name+"@"+c.Name]; !ok {
				return
			}
		}
		keep := t.taps[l][:0]
		for _, v := range x.F {
			keep = append(keep, v*unscale)
		}
		t.taps[l] = keep
	}
	return nil
}

// Close releases the table that Embed opened.
func (t *BundleTarget) Close() error {
	if t.close == nil {
		return nil
	}
	return t.close()
}

// Embed writes the scaled embedding of a token, for drafters that take their
// target's.
func (t *BundleTarget) Embed(dst []float32, id int32) error {
	c := t.e.Contract()
	if t.table == nil {
		if c.Embedding.Mode != chunking.EmbedSidecar {
			return fmt.Errorf("speculate: %s has no table of embeddings for its drafter (convert with --embed sidecar)", t.e.Dir())
		}
		f, err := checkpoint.OpenFile(filepath.Join(t.e.Dir(), c.Embedding.File))
		if err != nil {
			return err
		}
		t.close = f.Close
		t.table, _ = f.Tensor(c.Embedding.Tensor)
	}
	if t.table == nil || len(dst) != c.Model.Hidden || id < 0 || int(id) >= c.Model.Vocab {
		return fmt.Errorf("speculate: no embedding of token %d with %d elements in %s", id, len(dst), t.e.Dir())
	}
	if err := t.table.ReadFloat32(dst, int(id)*len(dst)); err != nil {
		return err
	}
	for i := range dst {
		dst[i] *= float32(c.Embedding.Scale / c.ResidualScale)
	}
	return nil
}

// tokenState is what a call computed for one token.
type tokenState struct {
	hidden []float32
	taps   map[int][]float32
}

// state copies what the row'th token of the last call left.
func (t *BundleTarget) state(row int, r engine.Row) tokenState {
	var s tokenState
	if t.needs.Norm != "" {
		s.hidden = slices.Clone(r.Hidden)
	}
	if len(t.needs.Taps) > 0 {
		s.taps = map[int][]float32{}
		for _, l := range t.needs.Taps {
			h := t.needs.Hidden
			s.taps[l] = slices.Clone(t.taps[l][row*h : (row+1)*h])
		}
	}
	return s
}

// rows collects what the needs ask for of tokens at position pos.
func (t *BundleTarget) rows(pos int, ids []int32, got []tokenState) (drafter.Rows, error) {
	r := drafter.Rows{Position: pos, Tokens: slices.Clone(ids)}
	if t.needs.Norm != "" {
		scale := float32(1)
		if t.needs.Norm == drafter.Pre {
			scale = float32(1 / t.e.Contract().ResidualScale)
		}
		r.Norm = t.needs.Norm
		for i := range ids {
			for _, v := range got[i].hidden {
				r.Hidden = append(r.Hidden, v*scale)
			}
		}
	}
	for i := range ids {
		for _, l := range t.needs.Taps {
			r.Taps = append(r.Taps, got[i].taps[l]...)
		}
	}
	for kind := range t.needs.Keys {
		keys, values, err := t.tail(kind, pos, len(ids))
		if err != nil {
			return r, err
		}
		if r.Keys == nil {
			r.Keys, r.Values = map[string][]float32{}, map[string][]float32{}
		}
		r.Keys[kind], r.Values[kind] = keys, values
	}
	return r, nil
}

// tail reads the keys and values of n committed positions from pos on.
func (t *BundleTarget) tail(kind string, pos, n int) (keys, values []float32, err error) {
	layer, ok := t.wide[kind]
	if !ok {
		return nil, nil, fmt.Errorf("speculate: %s has no %s layers", t.e.Dir(), kind)
	}
	k, v, positions, err := t.s.KV(layer)
	if err != nil {
		return nil, nil, err
	}
	for p := pos; p < pos+n; p++ {
		at, ok := slices.BinarySearch(positions, p)
		if !ok {
			return nil, nil, fmt.Errorf("speculate: position %d has left the cache of %s layers", p, kind)
		}
		for h := range k {
			keys = append(keys, k[h][at]...)
			values = append(values, v[h][at]...)
		}
	}
	return keys, values, nil
}

// Prefill processes tokens that are part of the text.
func (t *BundleTarget) Prefill(ids []int32) (drafter.Rows, error) {
	if needsNothing(t.needs) || len(ids) == 0 {
		r := drafter.Rows{Position: t.s.Pos(), Tokens: slices.Clone(ids)}
		_, err := t.s.Prefill(ids, nil)
		return r, err
	}
	// In pieces, so that no key leaves a sliding cache before it is read.
	var all drafter.Rows
	step := len(ids)
	for kind := range t.needs.Keys {
		step = min(step, t.e.Contract().Attention[models.Kind(kind)].Slots)
	}
	for at := 0; at < len(ids); at += step {
		piece := ids[at:min(at+step, len(ids))]
		pos := t.s.Pos()
		var got []tokenState
		start, end := pos, pos // of the call that a row is from
		_, err := t.s.Prefill(piece, func(r engine.Row) error {
			if t.s.Pos() != end {
				start, end = end, t.s.Pos()
			}
			got = append(got, t.state(r.Position-start, r))
			return nil
		})
		if err != nil {
			return all, err
		}
		r, err := t.rows(pos, piece, got)
		if err != nil {
			return all, err
		}
		join(&all, r)
	}
	return all, nil
}

// join appends rows.
func join(all *drafter.Rows, r drafter.Rows) {
	if len(all.Tokens) == 0 {
		*all = r
		return
	}
	all.Tokens = append(all.Tokens, r.Tokens...)
	all.Taps = append(all.Taps, r.Taps...)
	all.Hidden = append(all.Hidden, r.Hidden...)
	for k := range r.Keys {
		all.Keys[k] = append(all.Keys[k], r.Keys[k]...)
		all.Values[k] = append(all.Values[k], r.Values[k]...)
	}
}

// Decode processes one token that is part of the text.
func (t *BundleTarget) Decode(id int32) (Choice, drafter.Rows, error) {
	pos := t.s.Pos()
	row, err := t.s.Decode(id)
	if err != nil {
		return Choice{}, drafter.Rows{}, err
	}
	r, err := t.rows(pos, []int32{id}, []tokenState{t.state(0, row)})
	return Choice{row.Token, row.Logits}, r, err
}

// Verify feeds drafts.
func (t *BundleTarget) Verify(ids []int32) ([]Choice, error) {
	p, err := t.s.Verify(ids)
	if err != nil {
		return nil, err
	}
	t.pending, t.ids = p, slices.Clone(ids)
	t.states = t.states[:0]
	var out []Choice
	for i, r := range p.Rows() {
		out = append(out, Choice{r.Token, r.Logits})
		t.states = append(t.states, t.state(i, r))
	}
	return out, nil
}

// Commit makes the first n drafts part of the text.
func (t *BundleTarget) Commit(n int) (drafter.Rows, error) {
	if t.pending == nil {
		return drafter.Rows{}, fmt.Errorf("speculate: nothing to commit")
	}
	p, pos := t.pending, t.s.Pos()
	t.pending = nil
	if err := p.Commit(n); err != nil {
		return drafter.Rows{}, err
	}
	return t.rows(pos, t.ids[:n], t.states[:n])
}
