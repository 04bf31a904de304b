package engine

import (
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// mtpSession drives a stack of MTP modules. Module k at position t pairs the
// hidden state of t with token t+1+k. A module has taken every position whose
// token is part of the text; those that only a guess reaches are taken during
// a draft and given back after it.
type mtpSession struct {
	*draftBase
	tokens  []int32 // of the text
	modules []mtpModule
}

// mtpModule is how far a module has come.
type mtpModule struct {
	done int // positions taken
	// queue holds the hidden states of positions done, done+1, …: of the trunk,
	// or what the module before returned.
	queue [][]float32
}

func newMTPSession(b *draftBase) *mtpSession {
	return &mtpSession{draftBase: b, modules: make([]mtpModule, b.c.Layers)}
}

func (s *mtpSession) Reset() {
	s.reset()
	s.tokens, s.modules = nil, make([]mtpModule, s.c.Layers)
}

func (s *mtpSession) Commit(rows drafter.Rows) error {
	if err := s.needs.Check(rows, s.pos); err != nil {
		return err
	}
	n, h := len(rows.Tokens), s.needs.Hidden
	if err := s.room(n); err != nil {
		return err
	}
	for i := range n {
		s.modules[0].queue = append(s.modules[0].queue, slices.Clone(rows.Hidden[i*h:(i+1)*h]))
	}
	s.tokens = append(s.tokens, rows.Tokens...)
	s.pos += n
	for k := range s.modules {
		if _, err := s.advance(k, s.tokens, nil); err != nil {
			return err
		}
	}
	return nil
}

// advance runs module k over all positions whose tokens are in the text and
// whose hidden states have arrived. It returns the logits of the last position,
// nil if there was none. keep sees what will be written over.
func (s *mtpSession) advance(k int, text []int32, keep func(k, pos, n int)) ([]float32, error) {
	m := &s.modules[k]
	var logits []float32
	for {
		// Position t needs token t+1+k.
		n := min(len(m.queue), len(text)-1-k-m.done)
		if n <= 0 {
			return logits, nil
		}
		f := s.c.Find(models.ModuleStep, k, n)
		n = min(n, f.T)
		c := s.call(f)
		h := s.c.Hidden
		in := c.byRole[models.DraftHiddenIn].F
		clear(in)
		for i := range n {
			copy(in[i*h:], m.queue[i])
		}
		if err := c.embed(s.draftBase, text[m.done+1+k:m.done+1+k+n]...); err != nil {
			return nil, err
		}
		c.place(s.draftBase, m.done, n, nil)
		want := []models.Role{models.NewKeys, models.NewValues}
		if k+1 < len(s.modules) || keep != nil {
			want = append(want, models.DraftHiddenOut)
		}
		if keep != nil {
			want = append(want, models.Logits)
			keep(k, m.done, n)
		}
		out, err := c.run(s.draftBase, want...)
		if err != nil {
			return nil, err
		}
		c.store(s.draftBase, out, m.done, n)
		if k+1 < len(s.modules) {
			for i := range n {
				s.modules[k+1].queue = append(s.modules[k+1].queue, slices.Clone(out[models.DraftHiddenOut].F[i*h:(i+1)*h]))
			}
		}
		if t := out[models.Logits]; t != nil {
			logits = slices.Clone(t.F[(n-1)*s.c.Vocab : n*s.c.Vocab])
		}
		m.done += n
		m.queue = m.queue[n:]
	}
}

// Draft lets module 0 guess after next, module 1 after that guess, and so on.
func (s *mtpSession) Draft(next int32, n int) (drafter.Draft, error) {
	var d drafter.Draft
	if err := s.wanted(next, n); err != nil {
		return d, err
	}
	before := slices.Clone(s.modules)
	var undo []func()
	defer func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
		s.modules = before
	}()
	keep := func(k, pos, rows int) { undo = append(undo, s.snapshot(k, pos, rows)) }
	text := append(slices.Clone(s.tokens), next)
	for k := range n {
		logits, err := s.advance(k, text, keep)
		if err != nil {
			return drafter.Draft{}, err
		}
		id, _ := argmax(logits)
		text = append(text, id)
		d.Tokens, d.Logits = append(d.Tokens, id), append(d.Logits, logits)
	}
	return d, nil
}

// snapshot remembers what module k's caches hold where rows positions from pos
// on will be written, and returns what puts it back.
func (s *mtpSession) snapshot(k, pos, rows int) func() {
	type saved struct {
		t  *runtime.Tensor
		at int
		v  []float32
	}
	var all []saved
	for kind, a := range s.c.Attention {
		for _, role := range []models.Role{models.KeyCache, models.ValueCache} {
			t := s.kv[cacheKey{k, kind, role}]
			for head := range a.KVHeads {
				for i := range rows {
					at := (head*a.Slots + slotOf(a, pos+i)) * a.HeadDim
					all = append(all, saved{t, at, slices.Clone(t.F[at : at+a.HeadDim])})
				}
			}
		}
	}
	return func() {
		for _, x := range slices.Backward(all) {
			copy(x.t.F[x.at:], x.v)
		}
	}
}

func slotOf(a chunking.Attn, pos int) int { return a.Slot(pos, pos) }
