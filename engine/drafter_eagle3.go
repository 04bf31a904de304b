package engine

import (
	"slices"

	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// eagle3Session drives an EAGLE-3 head. The row of position t pairs the taps of
// t with the embedding of token t+1, so that the last committed token waits for
// the one after it.
type eagle3Session struct {
	*draftBase
	waiting []float32 // taps of the last committed token
	// ahead is the row that the last Draft computed for it.
	ahead struct {
		next int32
		out  map[models.Role]*runtime.Tensor // copies
	}
}

func (s *eagle3Session) Reset() { s.reset(); s.waiting, s.ahead.out = nil, nil }

func (s *eagle3Session) Commit(rows drafter.Rows) error {
	if err := s.needs.Check(rows, s.pos); err != nil {
		return err
	}
	n, width := len(rows.Tokens), len(s.needs.Taps)*s.needs.Hidden
	if err := s.room(n); err != nil {
		return err
	}
	taps, tokens, at := rows.Taps[:(n-1)*width], rows.Tokens[1:], s.pos
	if s.pos > 0 {
		at--
		if a := &s.ahead; a.out != nil && a.next == rows.Tokens[0] {
			s.call(s.c.Find(models.Extend, 0, 1)).store(s.draftBase, a.out, at, 1)
			at++
		} else {
			taps, tokens = slices.Concat(s.waiting, taps), rows.Tokens
		}
	}
	for len(tokens) > 0 {
		f := s.c.Find(models.Extend, 0, len(tokens))
		c := s.call(f)
		k := min(f.T, len(tokens))
		if _, err := s.extend(c, taps[:k*width], tokens[:k], at, models.NewKeys, models.NewValues); err != nil {
			return err
		}
		taps, tokens, at = taps[k*width:], tokens[k:], at+k
	}
	s.waiting = append(s.waiting[:0], rows.Taps[(n-1)*width:]...)
	s.ahead.out = nil
	s.pos += n
	return nil
}

// extend runs rows of the text and keeps their keys and values.
func (s *eagle3Session) extend(c *draftCall, taps []float32, tokens []int32, at int, want ...models.Role) (map[models.Role]*runtime.Tensor, error) {
	t := c.byRole[models.TapsIn]
	clear(t.F[copy(t.F, taps):])
	if err := c.embed(s.draftBase, tokens...); err != nil {
		return nil, err
	}
	c.place(s.draftBase, at, len(tokens), nil)
	out, err := c.run(s.draftBase, want...)
	if err == nil {
		c.store(s.draftBase, out, at, len(tokens))
	}
	return out, err
}

// Draft runs the row of the last committed token and then a chain over its own
// output. What it leaves in the cache is beyond the committed rows and will be
// written over.
func (s *eagle3Session) Draft(next int32, n int) (drafter.Draft, error) {
	var d drafter.Draft
	if err := s.wanted(next, n); err != nil {
		return d, err
	}
	if err := s.room(n - 1); err != nil {
		return d, err
	}
	at := s.pos - 1
	c := s.call(s.c.Find(models.Extend, 0, 1))
	out, err := s.extend(c, s.waiting, []int32{next}, at, models.DraftHiddenOut, models.Logits, models.NewKeys, models.NewValues)
	if err != nil {
		return d, err
	}
	s.ahead.next, s.ahead.out = next, map[models.Role]*runtime.Tensor{}
	for _, r := range []models.Role{models.NewKeys, models.NewValues} {
		t := *out[r]
		t.F = slices.Clone(t.F)
		s.ahead.out[r] = &t
	}
	hidden, width := out[models.DraftHiddenOut], s.c.Hidden
	logits := out[models.Logits].F[:s.c.DraftVocab]
	for {
		l := s.target(logits)
		next, _ = argmax(l)
		d.Tokens, d.Logits = append(d.Tokens, next), append(d.Logits, l)
		if len(d.Tokens) == n {
			return d, nil
		}
		at++
		step := s.call(s.c.Find(models.DraftOnce, 0, 1))
		copy(step.byRole[models.DraftHiddenIn].F, hidden.F[:width])
		if err := step.embed(s.draftBase, next); err != nil {
			return d, err
		}
		step.place(s.draftBase, at, 1, nil)
		if out, err = step.run(s.draftBase, models.DraftHiddenOut, models.Logits, models.NewKeys, models.NewValues); err != nil {
			return d, err
		}
		step.store(s.draftBase, out, at, 1)
		hidden, logits = out[models.DraftHiddenOut], out[models.Logits].F
	}
}
