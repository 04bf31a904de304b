package engine

import (
	"fmt"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
)

// Mark is a position that a session can go back to: see Session.Mark.
type Mark struct {
	s      *Session
	pos, n int
	saved  []savedRows
}

// savedRows are the cached rows of one chunk and kind that the tokens after a
// mark take the place of.
type savedRows struct {
	chunk int
	kind  models.Kind
	k, v  []float32 // [layers·heads][n][stride]
}

// Mark prepares to take back the next n tokens, which a draft model feeds
// before anybody has accepted them. Caches of full attention need nothing for
// it; rings lose their oldest rows to new ones, and those are kept here.
// Shifting caches cannot go back.
func (s *Session) Mark(n int) (*Mark, error) {
	m := &Mark{s: s, pos: s.pos, n: n}
	err := s.rings(func(i int, k models.Kind, a chunking.Attn, c *cache) error {
		if a.Layout == chunking.Shift {
			return fmt.Errorf("engine: shifting caches cannot take tokens back (convert with --kv tensor)")
		}
		if n > a.Slots {
			return fmt.Errorf("engine: %d tokens cannot be taken back, a sliding cache has %d slots", n, a.Slots)
		}
		r := savedRows{chunk: i, kind: k}
		r.k = copyRows(nil, c.half(models.NewKeys), a, m.pos, 0, n)
		r.v = copyRows(nil, c.half(models.NewValues), a, m.pos, 0, n)
		m.saved = append(m.saved, r)
		return nil
	})
	return m, err
}

// Pos is the position that the mark remembers.
func (m *Mark) Pos() int { return m.pos }

// Rewind takes back the tokens after the mark, all but the first keep. No more
// than the mark's n may have been fed since.
func (s *Session) Rewind(m *Mark, keep int) error {
	switch fed := s.pos - m.pos; {
	case m.s != s:
		return fmt.Errorf("engine: the mark is another session's")
	case fed < 0 || fed > m.n:
		return fmt.Errorf("engine: %d tokens were fed after a mark for %d", fed, m.n)
	case keep < 0 || keep > fed:
		return fmt.Errorf("engine: keep %d of %d tokens", keep, fed)
	case keep == fed:
		return nil
	}
	for _, r := range m.saved {
		c, err := s.load(r.chunk, s.e.chunks[r.chunk], r.kind)
		if err != nil {
			return err
		}
		a := s.e.contract.Attention[r.kind]
		copyRows(r.k, c.half(models.NewKeys), a, m.pos, keep, m.n)
		copyRows(r.v, c.half(models.NewValues), a, m.pos, keep, m.n)
		if err := c.save(); err != nil {
			return err
		}
	}
	s.pos = m.pos + keep
	return nil
}

// rings visits the caches in which new rows overwrite old ones.
func (s *Session) rings(each func(i int, k models.Kind, a chunking.Attn, c *cache) error) error {
	for i, ch := range s.e.chunks {
		for _, k := range []models.Kind{models.Full, models.Sliding} {
			a, ok := s.e.contract.Attention[k]
			if !ok || a.Layout == chunking.Linear {
				continue
			}
			if s.e.contract.KV == chunking.KVState {
				if chunking.Find(ch.decl.Functions[0].States, models.KVState, k) == nil {
					continue
				}
			} else if s.kv[i][k] == nil {
				continue
			}
			c, err := s.load(i, ch, k)
			if err != nil {
				return err
			}
			if err := each(i, k, a, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyRows copies the rows of the tokens from to n after pos: out of the cache
// if saved is nil, else back into it.
func copyRows(saved, cached []float32, a chunking.Attn, pos, from, n int) []float32 {
	stride := a.Stride()
	rows := len(cached) / (a.Slots * stride)
	back := saved != nil
	if !back {
		saved = make([]float32, rows*n*stride)
	}
	for row := range rows {
		for t := from; t < n; t++ {
			kept := saved[(row*n+t)*stride : (row*n+t+1)*stride]
			at := (row*a.Slots + a.Slot(pos+t, pos+t)) * stride
			if back {
				copy(cached[at:at+stride], kept)
			} else {
				copy(kept, cached[at:at+stride])
			}
		}
	}
	return saved
}
