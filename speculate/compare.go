package speculate

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Arm is one drafter of a comparison, with a target set up for it.
type Arm struct {
	Name   string
	Source Source
	Target Target
	// What is read: TargetBytes by every target call, BlockBytes by every round
	// that drafts, DraftBytes by every drafted token.
	TargetBytes, BlockBytes, DraftBytes float64
}

// bytesOf is what a round reads.
func (a *Arm) bytesOf(r Round) float64 {
	n := a.TargetBytes + float64(r.Drafted)*a.DraftBytes
	if r.Drafted > 0 {
		n += a.BlockBytes
	}
	return n
}

// Trial is what happened with one arm.
type Trial struct {
	Name string
	// Bytes are those that a draft reads, or a block of drafts.
	Bytes float64
	Chain []Record // live: drafts in the slots, accepted ones committed
	// Oracle and Argmax replay the drafter at every position of the target's
	// text: of that which its decode function makes, and of that which its
	// verify function makes with zeros in the slots of drafts.
	Oracle, Argmax []Record
	Costs          Costs
	// ZeroFlips counts prompts on which those two texts differ.
	ZeroFlips int
	Drift     []Drift
	// WriteThrough is the drift when all drafts enter the cache at once,
	// accepted or not; nil if that was not asked for.
	WriteThrough []Drift

	meter meter
}

// CompareOptions configures Compare.
type CompareOptions struct {
	Options
	// WriteThrough also measures the drift of a host that writes drafts into
	// the cache before they are accepted. It needs targets that can.
	WriteThrough bool
	// Ties forgives texts that part where serial decoding preferred its token by
	// no more than this share of the logit: functions of other lengths add in
	// another order, and what is rounded to fp16 shows it. They are reported as
	// drift. 0: none, every difference is an error.
	Ties float64
	// Progress, if not nil, is told of prompts done.
	Progress func(stage string, done, total int64)
}

// CostPrompts is the number of prompts that Compare times the parts of a round
// on, beside the rounds themselves.
const CostPrompts = 8

// Compare runs all arms over the same prompts, taking turns prompt by prompt, so
// that whatever slows the machine slows all. Unless acceptance is lossy it is an
// error if an output is not that of serial decoding.
func Compare(ctx context.Context, arms []*Arm, prompts []Prompt, o CompareOptions) ([]*Trial, error) {
	trials := make([]*Trial, len(arms))
	for i, a := range arms {
		trials[i] = &Trial{Name: a.Name, Bytes: a.BlockBytes + a.DraftBytes}
	}
	// The first calls find nothing in memory: they are not timed.
	for _, a := range arms {
		warm := o.Options
		warm.MaxTokens = min(warm.MaxTokens, 8)
		if err := o.check(a.Target, prompts[0].IDs); err != nil {
			return nil, fmt.Errorf("%w (%s, prompt 1, %s)", err, a.Name, quote(prompts[0].Text))
		}
		if _, err := Serial(ctx, a.Target, prompts[0].IDs, WalkDecode, warm); err != nil {
			return nil, err
		}
		if _, err := Run(ctx, a.Target, a.Source, prompts[0].IDs, warm); err != nil {
			return nil, err
		}
	}
	for n, p := range prompts {
		streams := make([]*Stream, len(arms))
		for k := range arms {
			// Every other prompt the other way round.
			i := k
			if n%2 == 1 {
				i = len(arms) - 1 - k
			}
			s, err := trials[i].prompt(ctx, arms[i], p, o)
			if err != nil {
				return nil, fmt.Errorf("%w (%s, prompt %d, %s)", err, arms[i].Name, n+1, quote(p.Text))
			}
			streams[i] = s
			if n < CostPrompts {
				// Here, and not at the end, so that it is as fast a machine.
				if err := trials[i].meter.add(ctx, arms[i].Target, arms[i].Source, s, o.Gamma); err != nil {
					return nil, err
				}
			}
		}
		for i := 1; i < len(arms); i++ {
			if a, b := streams[0], streams[i]; !slices.Equal(a.Output, b.Output) {
				return nil, fmt.Errorf("speculate: on prompt %d the targets of %s and %s say different things (an A/B needs one target)", n+1, arms[0].Name, arms[i].Name)
			}
		}
		if o.Progress != nil {
			o.Progress("prompts", int64(n+1), int64(len(prompts)))
		}
	}
	for i, a := range arms {
		trials[i].Costs = trials[i].meter.costs()
		if err := shifted(a.Name, trials[i].Oracle); err != nil {
			return nil, err
		}
	}
	return trials, nil
}

// prompt runs one prompt in all modes.
func (tr *Trial) prompt(ctx context.Context, a *Arm, p Prompt, o CompareOptions) (*Stream, error) {
	if err := o.check(a.Target, p.IDs); err != nil {
		return nil, err
	}
	if err := Pair(a.Target, a.Source); err != nil {
		return nil, err
	}
	serial, err := Serial(ctx, a.Target, p.IDs, WalkDecode, o.Options)
	if err != nil {
		return nil, err
	}
	chain, err := Run(ctx, a.Target, a.Source, p.IDs, o.Options)
	if err != nil {
		return nil, err
	}
	d := NewDrift(serial, chain.Output)
	if !o.Lossy() && d.First >= 0 && !d.Tie(serial, o.Ties) {
		margin := ""
		if d.Margin != nil {
			margin = fmt.Sprintf("; serial decoding preferred its token by %.4g", *d.Margin)
		}
		return nil, fmt.Errorf("speculate: the output differs from serial decoding's from token %d on: verify and decode disagree%s (see smelt parity)", d.First, margin)
	}
	tr.Drift = append(tr.Drift, d)
	oracle, err := Replay(ctx, a.Source, serial, o.Gamma)
	if err != nil {
		return nil, err
	}
	zeros, err := Serial(ctx, a.Target, p.IDs, WalkZeros, o.Options)
	if err != nil {
		return nil, err
	}
	argmax := oracle
	if same := slices.Equal(zeros.Output, serial.Output); !same || !needsNothing(a.Source.Needs()) {
		if !same {
			tr.ZeroFlips++
		}
		if argmax, err = Replay(ctx, a.Source, zeros, o.Gamma); err != nil {
			return nil, err
		}
	}
	if o.WriteThrough {
		w, ok := a.Target.(interface{ SetWriteThrough(bool) })
		if !ok {
			return nil, fmt.Errorf("speculate: the target of %s has no cache that could be written through", a.Name)
		}
		w.SetWriteThrough(true)
		legacy, err := Run(ctx, a.Target, a.Source, p.IDs, o.Options)
		w.SetWriteThrough(false)
		if err != nil {
			return nil, err
		}
		tr.WriteThrough = append(tr.WriteThrough, NewDrift(serial, legacy.Output))
	}
	for _, r := range []*Record{chain, oracle, argmax} {
		r.Prompt, r.SerialMs, r.ByteCost = p.Text, serial.WallMs, 0
		for _, x := range r.Rounds {
			r.ByteCost += a.bytesOf(x)
		}
	}
	chain.FirstHits, chain.Expected, chain.Counted = oracle.FirstHits, oracle.Expected, oracle.Counted
	tr.Chain = append(tr.Chain, *chain)
	tr.Oracle = append(tr.Oracle, *oracle)
	tr.Argmax = append(tr.Argmax, *argmax)
	return serial, nil
}

// shifted recognises a drafter whose labels were shifted: it says the token
// that it was given, which is the target's job, or the one after the next.
func shifted(name string, oracle []Record) error {
	var right, given, later, all int
	for i := range oracle {
		r := &oracle[i]
		for k, first := range r.firsts {
			all++
			at := func(j int) bool {
				switch {
				case j < 0:
					return first == r.PromptIDs[len(r.PromptIDs)-1]
				case j < len(r.Output):
					return first == r.Output[j]
				}
				return false
			}
			if at(k) {
				right++
			} else if at(k - 1) {
				given++
			} else if at(k + 1) {
				later++
			}
		}
	}
	if all < 100 {
		return nil
	}
	share := func(n int) float64 { return float64(n) / float64(all) }
	n, what := given, "the token it was given"
	if later > given {
		n, what = later, "the token after the next"
	}
	if share(n) > 0.2 && share(n) > 4*share(right) {
		return fmt.Errorf("speculate: the labels of %s are shifted: its first draft is %s at %.0f %% of positions, and the right one at %.0f %% (trained one position off, or read one slot off)", name, what, 100*share(n), 100*share(right))
	}
	return nil
}

// meter times the parts of a round on texts that are known.
type meter struct {
	decode, draft  float64 // seconds
	tokens, drafts int
	sum            []float64 // of verify calls, by tokens
	count          []int
}

// MeasureCosts times the parts of a round on texts that are known: decode steps
// as the streams were made, verify calls of 1 to gamma+1 tokens, and drafting
// with the commits that live rounds would make.
func MeasureCosts(ctx context.Context, t Target, s Source, streams []*Stream, gamma int) (Costs, error) {
	if err := Pair(t, s); err != nil {
		return Costs{}, err
	}
	var m meter
	for _, x := range streams {
		if err := m.add(ctx, t, s, x, gamma); err != nil {
			return Costs{}, err
		}
	}
	return m.costs(), nil
}

// add times the parts on one text.
func (m *meter) add(ctx context.Context, t Target, s Source, x *Stream, gamma int) error {
	if m.sum == nil {
		m.sum, m.count = make([]float64, gamma+2), make([]int, gamma+2)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.decode += x.WallMs / 1000
	m.tokens += len(x.Output)
	text := x.text()
	last := len(x.Prompt) - 1
	if err := begin(t, s, text[:last]); err != nil {
		return err
	}
	for i := last; i < len(text); i++ {
		k := 1 + (i-last)%(gamma+1)
		if i+k > len(text) || i+k > t.Context() {
			break
		}
		start := time.Now()
		if _, err := t.Verify(text[i : i+k]); err != nil {
			return err
		}
		if _, err := t.Commit(1); err != nil {
			return err
		}
		m.sum[k] += time.Since(start).Seconds()
		m.count[k]++
	}
	for i := 0; i < len(x.Output); {
		start := time.Now()
		d, err := draftOf(s, text[last+i], min(gamma, t.Context()-last-i-1))
		if err != nil {
			return err
		}
		m.draft += time.Since(start).Seconds()
		m.drafts += len(d.Tokens)
		n := 0
		for n < len(d.Tokens) && i+n < len(x.Output) && d.Tokens[n] == x.Output[i+n] {
			n++
		}
		start = time.Now()
		for range n + 1 {
			if i < len(x.Rows) {
				if err := s.Commit(x.Rows[i]); err != nil {
					return err
				}
			}
			i++
		}
		m.draft += time.Since(start).Seconds()
	}
	return nil
}

func (m *meter) costs() Costs {
	c := Costs{Decode: m.decode / float64(max(1, m.tokens)), Draft: m.draft / float64(max(1, m.drafts)), Verify: make([]float64, len(m.sum))}
	for k := range m.sum {
		if m.count[k] > 0 {
			c.Verify[k] = m.sum[k] / float64(m.count[k])
		}
	}
	return c
}
