package speculate

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/models"
)

// BundleTarget is a converted bundle as a target. It needs decode and verify
// functions.
type BundleTarget struct {
	e       *engine.Engine
	s       *engine.Session
	needs   drafter.Needs
	pending *engine.Pending
	ids     []int32
	max     int
	wide    map[string]int // layers whose keys and values are read, by kind
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
	if len(n.Taps) > 0 {
		return fmt.Errorf("speculate: %s does not deliver the residual stream after layers %v", t.e.Dir(), n.Taps)
	}
	if n.Norm != "" && t.hiddenNorm() != n.Norm {
		return fmt.Errorf("speculate: the drafter reads %s-norm hidden states, %s delivers %q (convert with --head token,logits,%s)", n.Norm, t.e.Dir(), t.hiddenNorm(),
			map[string]string{drafter.Pre: "hidden", drafter.Post: "normed"}[n.Norm])
	}
	t.needs = n
	return nil
}

// rows collects what the needs ask for of tokens at position pos.
func (t *BundleTarget) rows(pos int, ids []int32, got []engine.Row) (drafter.Rows, error) {
	r := drafter.Rows{Position: pos, Tokens: slices.Clone(ids)}
	if t.needs.Norm != "" {
		scale := float32(1)
		if t.needs.Norm == drafter.Pre {
			scale = float32(1 / t.e.Contract().ResidualScale)
		}
		r.Norm = t.needs.Norm
		for i := range ids {
			for _, v := range got[i].Hidden {
				r.Hidden = append(r.Hidden, v*scale)
			}
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
		var got []engine.Row
		_, err := t.s.Prefill(piece, func(r engine.Row) error {
			got = append(got, engine.Row{Hidden: slices.Clone(r.Hidden)})
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
	r, err := t.rows(pos, []int32{id}, []engine.Row{row})
	return Choice{row.Token, row.Logits}, r, err
}

// Verify feeds drafts.
func (t *BundleTarget) Verify(ids []int32) ([]Choice, error) {
	p, err := t.s.Verify(ids)
	if err != nil {
		return nil, err
	}
	t.pending, t.ids = p, slices.Clone(ids)
	var out []Choice
	for _, r := range p.Rows() {
		out = append(out, Choice{r.Token, r.Logits})
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
	return t.rows(pos, t.ids[:n], p.Rows())
}
