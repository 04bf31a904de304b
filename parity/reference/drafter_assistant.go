package reference

import (
	"context"
	"slices"

	"github.com/smelt-go/smelt/drafter"
)

// assistantSteps bounds a round.
const assistantSteps = 64

func (d *DraftSource) openAssistant(config []byte) error {
	a, err := NewDrafter(d.src, config)
	if err != nil {
		return err
	}
	d.own = a
	c := &a.config
	d.needs = drafter.Needs{Hidden: c.TargetHidden, Vocab: c.Vocab, Norm: drafter.Post, Keys: map[string]drafter.Shape{}}
	for i, k := range c.Kinds {
		l := c.Layer(i)
		d.needs.Keys[kindName(k)] = drafter.Shape{Heads: l.KVHeads, HeadDim: l.HeadDim}
	}
	d.begin = func(e drafter.Embedder) drafter.Session {
		return &assistantSession{d: a, needs: d.needs, embed: e, kv: map[LayerKind]KV{}}
	}
	return nil
}

func kindName(k LayerKind) string {
	if k == SlidingAttention {
		return "sliding"
	}
	return "full"
}

// assistantSession runs rounds of the Gemma 4 assistant.
type assistantSession struct {
	d      *Drafter
	needs  drafter.Needs
	embed  drafter.Embedder
	n      int
	hidden []float32
	kv     map[LayerKind]KV
}

func (s *assistantSession) Needs() drafter.Needs { return s.needs }
func (s *assistantSession) Position() int        { return s.n }
func (s *assistantSession) MaxDraft() int        { return assistantSteps }
func (s *assistantSession) Reset()               { s.n, s.hidden, s.kv = 0, nil, map[LayerKind]KV{} }

func (s *assistantSession) Commit(rows drafter.Rows) error {
	if err := s.needs.Check(rows, s.n); err != nil {
		return err
	}
	k := len(rows.Tokens)
	for _, kind := range []LayerKind{FullAttention, SlidingAttention} {
		shape, ok := s.needs.Keys[kindName(kind)]
		if !ok {
			continue
		}
		old, width := s.kv[kind], shape.Heads*shape.HeadDim
		if old.K == nil {
			old = KV{&Matrix{Cols: width}, &Matrix{Cols: width}}
		}
		grow := func(m *Matrix, more []float32) *Matrix {
			return &Matrix{Rows: m.Rows + k, Cols: width, Data: slices.Concat(m.Data, more)}
		}
		s.kv[kind] = KV{grow(old.K, rows.Keys[kindName(kind)]), grow(old.V, rows.Values[kindName(kind)])}
	}
	h := s.needs.Hidden
	s.hidden = slices.Clone(rows.Hidden[(k-1)*h : k*h])
	s.n += k
	return nil
}

func (s *assistantSession) Draft(next int32, n int) (drafter.Draft, error) {
	var out drafter.Draft
	if err := checkDraft(s.n, next, s.needs.Vocab, n, assistantSteps); err != nil {
		return out, err
	}
	input := make([]float32, 2*s.needs.Hidden)
	hidden := s.hidden
	for range n {
		if err := s.embed.Embed(input[:s.needs.Hidden], next); err != nil {
			return out, err
		}
		copy(input[s.needs.Hidden:], hidden)
		step, err := s.d.Step(context.Background(), DraftRound{N: s.n, KV: s.kv}, input, nil)
		if err != nil {
			return out, err
		}
		next, hidden = step.Token, step.Projected
		out.Tokens, out.Logits = append(out.Tokens, next), append(out.Logits, step.Logits)
	}
	return out, nil
}
