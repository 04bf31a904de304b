package engine

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/models"
)

// dsparkSession drives a DSpark block drafter: the caches hold keys and values
// made of the taps of committed tokens; a block's own are dropped.
type dsparkSession struct{ *draftBase }

func (s *dsparkSession) Reset() { s.reset() }

func (s *dsparkSession) Commit(rows drafter.Rows) error {
	if err := s.needs.Check(rows, s.pos); err != nil {
		return err
	}
	n, width := len(rows.Tokens), len(s.needs.Taps)*s.needs.Hidden
	if err := s.room(n); err != nil {
		return err
	}
	for done := 0; done < n; {
		f := s.c.Find(models.ContextRows, 0, n-done)
		if f == nil {
			return fmt.Errorf("engine: the drafter has no function that takes taps")
		}
		c, k := s.call(f), min(f.T, n-done)
		t := c.byRole[models.TapsIn]
		clear(t.F[copy(t.F, rows.Taps[done*width:(done+k)*width]):])
		c.place(s.draftBase, s.pos+done, k, nil)
		out, err := c.run(s.draftBase, models.NewKeys, models.NewValues)
		if err != nil {
			return err
		}
		// Context functions have no caches of their own to write to.
		c.store(s.draftBase, out, s.pos+done, k)
		done += k
	}
	s.pos += n
	return nil
}

// Draft runs the smallest block that has n drafts; a longer block gives other
// numbers than a shorter one.
func (s *dsparkSession) Draft(next int32, n int) (drafter.Draft, error) {
	var d drafter.Draft
	if err := s.wanted(next, n); err != nil {
		return d, err
	}
	first := 0
	if s.c.Reading == models.ReadMasks {
		first = 1
	}
	f := s.c.Find(models.DraftOnce, 0, n+first)
	if f == nil || f.T < n+first {
		return d, fmt.Errorf("engine: the drafter has no block of %d slots", n+first)
	}
	// RoPE rows of the block may lie beyond the context; its keys are not kept.
	c := s.call(f)
	ids := slices.Repeat([]int32{int32(s.c.MaskToken)}, f.T)
	ids[0] = next
	if err := c.embed(s.draftBase, ids...); err != nil {
		return d, err
	}
	c.byRole[models.Anchor].I[0] = next
	c.place(s.draftBase, s.pos, f.T, func(dst []float32, a chunking.Attn) {
		width := a.Slots + f.T
		for i := range dst {
			dst[i] = 0 // slots see the context and each other
			if col := i % width; col >= s.pos && col < a.Slots {
				dst[i] = float32(s.c.Mask.Blocked)
			}
		}
	})
	out, err := c.run(s.draftBase, models.DraftIDs, models.Logits, models.Confidence)
	if err != nil {
		return d, err
	}
	d.Tokens = slices.Clone(out[models.DraftIDs].I[:n])
	for j := range n {
		d.Logits = append(d.Logits, slices.Clone(out[models.Logits].F[j*s.c.Vocab:(j+1)*s.c.Vocab]))
	}
	if t := out[models.Confidence]; t != nil {
		d.Confidence = slices.Clone(t.F[:n])
	}
	return d, nil
}
