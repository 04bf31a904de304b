package speculate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/smelt-go/smelt/drafter"
)

// Options configures Run.
type Options struct {
	Gamma     int // drafts a round, at most
	MaxTokens int // of output
	IgnoreEOS bool
	Acceptance
	// MinConfidence stops a round's drafts before the first whose confidence is
	// lower, of drafters that have one. 0 takes all.
	MinConfidence float64
}

func (o Options) check(t Target, prompt []int32) error {
	switch {
	case o.Gamma < 0:
		return fmt.Errorf("speculate: γ is %d, want 0 or more", o.Gamma)
	case o.MaxTokens < 1:
		return fmt.Errorf("speculate: %d tokens of output, want at least 1", o.MaxTokens)
	case o.Gamma+1 > t.MaxVerify():
		return fmt.Errorf("speculate: γ = %d needs a verify function of %d tokens, the target's largest has %d (convert with --functions …,verify:%d, or draft fewer)", o.Gamma, o.Gamma+1, t.MaxVerify(), o.Gamma+1)
	case len(prompt) == 0:
		return fmt.Errorf("speculate: the prompt is empty")
	case len(prompt) < o.Gamma:
		return fmt.Errorf("speculate: the prompt has %d tokens, fewer than γ = %d (give a longer one, or draft fewer)", len(prompt), o.Gamma)
	case len(prompt) > t.Context():
		return fmt.Errorf("speculate: the prompt has %d tokens, the target's context %d", len(prompt), t.Context())
	}
	for _, id := range prompt {
		if v := t.Describe().Vocab; id < 0 || int(id) >= v {
			return fmt.Errorf("speculate: token %d of the prompt is outside the target's vocabulary of %d", id, v)
		}
	}
	return nil
}

// Run generates text after a prompt speculatively. The record has the output
// and what became of every draft.
//
// The last round may overshoot MaxTokens: its surplus is cut from the output,
// its drafts count.
func Run(ctx context.Context, t Target, s Source, prompt []int32, o Options) (*Record, error) {
	if err := o.check(t, prompt); err != nil {
		return nil, err
	}
	if err := Pair(t, s); err != nil {
		return nil, err
	}
	rec := &Record{PromptIDs: slices.Clone(prompt)}
	last := len(prompt) - 1
	if err := begin(t, s, prompt[:last]); err != nil {
		return nil, err
	}
	pending := prompt[last]
	start := time.Now()
	for len(rec.Output) < o.MaxTokens && t.Pos() < t.Context() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		before := time.Now()
		drafts, err := propose(s, pending, min(o.Gamma, t.Context()-t.Pos()-1), o.MinConfidence)
		if err != nil {
			return nil, err
		}
		between := time.Now()
		choices, err := t.Verify(append([]int32{pending}, drafts...))
		if err != nil {
			return nil, err
		}
		n, err := o.Accept(drafts, choices)
		if err != nil {
			return nil, err
		}
		fresh := append(slices.Clone(drafts[:n]), choices[n].Token)
		ended := false
		if !o.IgnoreEOS {
			if at := slices.IndexFunc(fresh, func(id int32) bool { return slices.Contains(t.EOS(), id) }); at >= 0 {
				ended = true
				fresh, n = fresh[:at+1], min(n, at+1)
			}
		}
		rows, err := t.Commit(n + 1)
		if err != nil {
			return nil, err
		}
		after := time.Now()
		if err := s.Commit(rows); err != nil {
			return nil, fmt.Errorf("speculate: %s: %w", s.Name(), err)
		}
		rec.add(Round{len(drafts), n})
		rec.DraftMs += ms(between.Sub(before)) + ms(time.Since(after))
		rec.VerifyMs += ms(after.Sub(between))
		rec.Output = append(rec.Output, fresh...)
		pending = fresh[len(fresh)-1]
		if ended {
			break
		}
	}
	rec.WallMs = ms(time.Since(start))
	rec.Output = rec.Output[:min(len(rec.Output), o.MaxTokens)]
	rec.Generated = len(rec.Output)
	return rec, nil
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// begin starts a text with all tokens of the prompt but the last.
func begin(t Target, s Source, head []int32) error {
	t.Reset()
	if s != nil {
		s.Reset()
	}
	if len(head) == 0 {
		return nil
	}
	rows, err := t.Prefill(head)
	if err != nil {
		return err
	}
	if s == nil {
		return nil
	}
	if err := s.Commit(rows); err != nil {
		return fmt.Errorf("speculate: %s: %w", s.Name(), err)
	}
	return nil
}

// propose asks for n drafts.
func propose(s Source, pending int32, n int, confidence float64) ([]int32, error) {
	d, err := draftOf(s, pending, n)
	if err != nil {
		return nil, err
	}
	drafts := d.Tokens
	for i, c := range d.Confidence {
		if i < len(drafts) && float64(c) < confidence {
			drafts = drafts[:i]
			break
		}
	}
	return drafts, nil
}

// draftOf is Draft with the limits of the source. A source that reads the
// target's states cannot draft before there are any.
func draftOf(s Source, pending int32, n int) (drafter.Draft, error) {
	n = min(n, s.MaxDraft())
	if n <= 0 || s.Position() == 0 && !needsNothing(s.Needs()) {
		return drafter.Draft{}, nil
	}
	d, err := s.Draft(pending, n)
	if err != nil {
		return d, fmt.Errorf("speculate: %s: %w", s.Name(), err)
	}
	if len(d.Tokens) > n {
		return d, fmt.Errorf("speculate: %s drafted %d tokens, was asked for %d", s.Name(), len(d.Tokens), n)
	}
	return d, nil
}
