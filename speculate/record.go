package speculate

import (
	"fmt"
	"slices"
)

// Round is one turn of drafting and verifying.
type Round struct {
	Drafted  int `json:"drafted"`
	Accepted int `json:"accepted"`
}

// Record is what happened on one prompt with one drafter.
type Record struct {
	Prompt      string  `json:"prompt"`
	Generated   int     `json:"generatedTokens"`
	Drafted     int     `json:"drafted"`
	Accepted    int     `json:"accepted"`
	TargetCalls int     `json:"targetCalls"`
	WallMs      float64 `json:"wallMs"`
	// Of the drafts in slot i, counted from 0, so many were made and accepted.
	DraftedByPos  []int `json:"draftedByPos"`
	AcceptedByPos []int `json:"acceptedByPos"`

	// The rest only records of this package have.
	Rounds    []Round `json:"rounds,omitempty"`
	DraftMs   float64 `json:"draftMs,omitempty"`
	VerifyMs  float64 `json:"verifyMs,omitempty"`
	SerialMs  float64 `json:"serialMs,omitempty"` // the same tokens without drafts
	ByteCost  float64 `json:"bytesRead,omitempty"`
	PromptIDs []int32 `json:"promptIds,omitempty"`
	Output    []int32 `json:"output,omitempty"`
	// FirstHits says for every position of the target's own text whether the
	// first draft made there, from the text so far, is the token that follows.
	FirstHits []bool `json:"firstHits,omitempty"`
	// Expected sums, by slot, the probability that a draft drawn from the
	// drafter's distribution survives; Counted is how many were summed.
	Expected []float64 `json:"expectedByPos,omitempty"`
	Counted  []int     `json:"expectedCountByPos,omitempty"`

	firsts []int32 // the first draft at every position of a replay, -1 for none
}

// add counts a round.
func (r *Record) add(x Round) {
	r.Rounds = append(r.Rounds, x)
	r.TargetCalls++
	r.Drafted += x.Drafted
	r.Accepted += x.Accepted
	for len(r.DraftedByPos) < x.Drafted {
		r.DraftedByPos, r.AcceptedByPos = append(r.DraftedByPos, 0), append(r.AcceptedByPos, 0)
	}
	for i := range x.Drafted {
		r.DraftedByPos[i]++
		if i < x.Accepted {
			r.AcceptedByPos[i]++
		}
	}
}

// check looks for contradictions.
func (r *Record) check() error {
	sum := func(x []int) (n int) {
		for _, v := range x {
			n += v
		}
		return n
	}
	switch {
	case r.TargetCalls < 1:
		return fmt.Errorf("targetCalls is %d, want at least 1", r.TargetCalls)
	case r.Drafted < 0 || r.Accepted < 0 || r.Accepted > r.Drafted:
		return fmt.Errorf("%d of %d drafts accepted", r.Accepted, r.Drafted)
	case len(r.DraftedByPos) != len(r.AcceptedByPos):
		return fmt.Errorf("draftedByPos has %d positions, acceptedByPos %d", len(r.DraftedByPos), len(r.AcceptedByPos))
	case sum(r.DraftedByPos) != r.Drafted:
		return fmt.Errorf("draftedByPos sums to %d, drafted is %d", sum(r.DraftedByPos), r.Drafted)
	case sum(r.AcceptedByPos) != r.Accepted:
		return fmt.Errorf("acceptedByPos sums to %d, accepted is %d", sum(r.AcceptedByPos), r.Accepted)
	case !(r.WallMs >= 0):
		return fmt.Errorf("wallMs is %v", r.WallMs)
	}
	for i := range r.DraftedByPos {
		if r.AcceptedByPos[i] < 0 || r.AcceptedByPos[i] > r.DraftedByPos[i] {
			return fmt.Errorf("position %d: %d of %d drafts accepted", i, r.AcceptedByPos[i], r.DraftedByPos[i])
		}
		if i > 0 && (r.AcceptedByPos[i] > r.AcceptedByPos[i-1] || r.DraftedByPos[i] > r.DraftedByPos[i-1]) {
			return fmt.Errorf("position %d: more drafts than at the position before, but a prefix is accepted", i)
		}
	}
	return nil
}

// column collects a number of every record.
func column(records []Record, f func(*Record) float64) []float64 {
	out := make([]float64, len(records))
	for i := range records {
		out[i] = f(&records[i])
	}
	return out
}

func drafted(r *Record) float64  { return float64(r.Drafted) }
func accepted(r *Record) float64 { return float64(r.Accepted) }
func calls(r *Record) float64    { return float64(r.TargetCalls) }
func emitted(r *Record) float64  { return float64(r.TargetCalls + r.Accepted) }

// Slot sums up one draft position.
type Slot struct {
	Drafted  int `json:"drafted"`
	Accepted int `json:"accepted"`
	// Rate is Accepted of Drafted: all drafts up to this one were right.
	Rate float64 `json:"rate"`
	// Conditional is the rate among rounds whose earlier drafts were right.
	Conditional float64 `json:"conditional"`
	// Expected is the mean of 1 − TV between the distributions of target and
	// drafter, where all earlier drafts were right; nil where none is known.
	Expected *float64 `json:"expected,omitempty"`
}

// Summary describes one drafter over all prompts.
type Summary struct {
	Name       string   `json:"name"`
	Prompts    int      `json:"prompts"`
	Generated  int      `json:"generated_tokens"`
	Drafted    int      `json:"drafted"`
	Accepted   int      `json:"accepted"`
	Calls      int      `json:"target_calls"`
	Acceptance Interval `json:"acceptance"` // accepted of drafted
	Tau        Interval `json:"tau"`        // tokens a target call emits
	Slots      []Slot   `json:"by_position"`
	// CallsSaved is the share of target calls that serial decoding of the same
	// tokens would have made beyond these.
	CallsSaved float64 `json:"calls_saved"`
	// RoundCost is seconds, or bytes, a round.
	RoundCost Interval `json:"round_cost"`
	Rate      float64  `json:"tokens_per_second"`
}

// Summarize adds up records. cost is that of a prompt.
func Summarize(name string, records []Record, cost func(*Record) float64, b Bootstrap) (*Summary, error) {
	s := &Summary{Name: name, Prompts: len(records)}
	var wall float64
	var expected []float64
	var counted []int
	for i := range records {
		r := &records[i]
		s.Generated += r.Generated
		s.Drafted += r.Drafted
		s.Accepted += r.Accepted
		s.Calls += r.TargetCalls
		wall += r.WallMs / 1000
		for k := range r.DraftedByPos {
			if k == len(s.Slots) {
				s.Slots = append(s.Slots, Slot{})
			}
			s.Slots[k].Drafted += r.DraftedByPos[k]
			s.Slots[k].Accepted += r.AcceptedByPos[k]
		}
		for k := range r.Expected {
			if k == len(expected) {
				expected, counted = append(expected, 0), append(counted, 0)
			}
			expected[k] += r.Expected[k]
			counted[k] += r.Counted[k]
		}
	}
	for k := range s.Slots {
		p := &s.Slots[k]
		if p.Drafted > 0 {
			p.Rate = float64(p.Accepted) / float64(p.Drafted)
		}
		p.Conditional = p.Rate
		if k > 0 && s.Slots[k-1].Accepted > 0 {
			p.Conditional = float64(p.Accepted) / float64(s.Slots[k-1].Accepted)
		}
		if k < len(expected) && counted[k] > 0 {
			e := expected[k] / float64(counted[k])
			p.Expected = &e
		}
	}
	var err error
	if s.Drafted == 0 {
		return nil, fmt.Errorf("speculate: %s drafted nothing on any prompt", name)
	}
	if s.Acceptance, err = b.Ratio(Pairs{column(records, accepted), column(records, drafted)}); err != nil {
		return nil, err
	}
	if s.Tau, err = b.Ratio(Pairs{column(records, emitted), column(records, calls)}); err != nil {
		return nil, err
	}
	if s.RoundCost, err = b.Ratio(Pairs{column(records, cost), column(records, calls)}); err != nil {
		return nil, err
	}
	s.CallsSaved = float64(s.Accepted) / float64(s.Calls+s.Accepted)
	if wall > 0 {
		s.Rate = float64(s.Generated) / wall
	}
	return s, nil
}

// samePrompts checks that two sets of records can be paired.
func samePrompts(a, b []Record) error {
	if len(a) != len(b) {
		return fmt.Errorf("speculate: A has %d prompts, B has %d (an A/B needs the same ones)", len(a), len(b))
	}
	for i := range a {
		if a[i].Prompt != b[i].Prompt || !slices.Equal(a[i].PromptIDs, b[i].PromptIDs) {
			return fmt.Errorf("speculate: prompt %d of A and B differ: %s and %s (an A/B needs the same ones in the same order)", i+1, quote(a[i].Prompt), quote(b[i].Prompt))
		}
	}
	return nil
}

func quote(s string) string {
	r := []rune(s)
	if len(r) > 40 {
		s = string(r[:40]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
