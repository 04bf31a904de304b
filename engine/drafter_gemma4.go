package engine

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/models"
)

// gemma4Session drives the Gemma 4 assistant. Its caches are copies of the
// target's keys and values: of sliding layers one row more than the target
// itself still needs.
type gemma4Session struct {
	*draftBase
	hidden []float32 // of the last committed token
}

func (s *gemma4Session) Reset() { s.reset(); s.hidden = nil }

func (s *gemma4Session) Commit(rows drafter.Rows) error {
	if err := s.needs.Check(rows, s.pos); err != nil {
		return err
	}
	n := len(rows.Tokens)
	if err := s.room(n); err != nil {
		return err
	}
	for kind, a := range s.c.Attention {
		width := a.KVHeads * a.HeadDim
		for role, from := range map[models.Role][]float32{models.KeyCache: rows.Keys[string(kind)], models.ValueCache: rows.Values[string(kind)]} {
			cached := s.kv[cacheKey{0, kind, role}]
			for i := range n {
				for h := range a.KVHeads {
					slot := a.Slot(s.pos+i, s.pos)
					copy(cached.F[(h*a.Slots+slot)*a.HeadDim:][:a.HeadDim], from[i*width+h*a.HeadDim:])
				}
			}
		}
	}
	h := s.needs.Hidden
	s.hidden = append(s.hidden[:0], rows.Hidden[(n-1)*h:n*h]...)
	s.pos += n
	return nil
}

// Draft runs one step a token. All stand at the same position, behind the last
// committed token, and see the same keys.
func (s *gemma4Session) Draft(next int32, n int) (drafter.Draft, error) {
	var d drafter.Draft
	if err := s.wanted(next, n); err != nil {
		return d, err
	}
	f := s.c.Find(models.DraftOnce, 0, 1)
	if f == nil {
		return d, fmt.Errorf("engine: the drafter has no function that drafts")
	}
	c := s.call(f)
	c.place(s.draftBase, s.pos, 1, func(dst []float32, a chunking.Attn) {
		for i := range dst {
			dst[i] = float32(s.c.Mask.Blocked)
		}
		for p := max(0, s.pos-a.Slots); p < s.pos; p++ {
			dst[a.Slot(p, s.pos)] = 0
		}
	})
	hidden := c.byRole[models.TargetHidden].F
	copy(hidden, s.hidden)
	for range n {
		if err := c.embed(s.draftBase, next); err != nil {
			return d, err
		}
		out, err := c.run(s.draftBase, models.DraftHiddenOut, models.Logits, models.CandidateIDs, models.CandidateLogits)
		if err != nil {
			return d, err
		}
		var logits []float32
		if t := out[models.Logits]; t != nil {
			logits = slices.Clone(t.F)
		} else {
			logits = candidates(out[models.CandidateIDs].I, out[models.CandidateLogits].F, s.c.Vocab)
		}
		next, _ = argmax(logits)
		d.Tokens, d.Logits = append(d.Tokens, next), append(d.Logits, logits)
		copy(hidden, out[models.DraftHiddenOut].F)
	}
	return d, nil
}

// candidates spreads the logits of some tokens over the vocabulary: all others
// get the smallest of them less one.
func candidates(ids []int32, values []float32, vocab int) []float32 {
	logits := make([]float32, vocab)
	rest := slices.Min(values) - 1
	for i := range logits {
		logits[i] = rest
	}
	for i, id := range ids {
		logits[id] = values[i]
	}
	return logits
}
