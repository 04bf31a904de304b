package speculate

import (
	"fmt"
)

// DefaultMaxDrop is the drop of acceptance in points that a Gate tolerates.
const DefaultMaxDrop = 3

// Gate is the rule of an A/B. B passes if, with confidence, its acceptance is
// not more than MaxDrop points below A's, and its round is faster: the whole
// 95 % interval must be on the right side. And the text must not come more
// slowly than with A.
type Gate struct {
	MaxDrop   float64 // points; 0 means no drop at all
	Bootstrap Bootstrap
	// Cost of a prompt's rounds, in seconds or bytes; nil means wall time.
	Cost func(*Record) float64
	// Unit of Cost, for texts: "s" or "bytes".
	Unit string
}

// Verdict compares B with A.
type Verdict struct {
	Pass bool `json:"pass"`
	// Drop is A's acceptance less B's in points.
	Drop Interval `json:"acceptance_drop_points"`
	// Faster is the cost of A's round divided by that of B's.
	Faster Interval `json:"round_speed_ratio"`
	// Text is the same for the cost of a token that comes out.
	Text Interval `json:"text_speed_ratio"`
	// McNemar is over first drafts at every position of the target's text: B
	// lost Lost of those that A had right, and won Won.
	Lost    int     `json:"first_drafts_lost"`
	Won     int     `json:"first_drafts_won"`
	McNemar float64 `json:"mcnemar_p"`
	Sign    float64 `json:"sign_test_tau_p"`
	// Adjusted is McNemar, or Sign where no first drafts are known, adjusted
	// for several variants by Holm's method.
	Adjusted float64  `json:"holm_p"`
	Reasons  []string `json:"reasons"`
}

// Judge compares the records of B with those of A over the same prompts.
func (g Gate) Judge(a, b []Record) (*Verdict, error) {
	if !(g.MaxDrop >= 0) {
		return nil, fmt.Errorf("speculate: a drop of %v points cannot be tolerated (want 0 or more)", g.MaxDrop)
	}
	if err := samePrompts(a, b); err != nil {
		return nil, err
	}
	cost, unit := g.Cost, g.Unit
	if cost == nil {
		cost, unit = WallSeconds, "s"
	}
	v := &Verdict{McNemar: 1}
	boot := g.Bootstrap
	drop, err := boot.Difference(
		Pairs{column(b, accepted), column(b, drafted)},
		Pairs{column(a, accepted), column(a, drafted)})
	if err != nil {
		return nil, err
	}
	v.Drop = Interval{100 * drop.Value, 100 * drop.Low, 100 * drop.High}
	if v.Faster, err = boot.Quotient(
		Pairs{column(b, cost), column(b, calls)},
		Pairs{column(a, cost), column(a, calls)}); err != nil {
		return nil, fmt.Errorf("%w: the speed of a round is unknown", err)
	}
	if v.Text, err = boot.Quotient(
		Pairs{column(b, cost), column(b, emitted)},
		Pairs{column(a, cost), column(a, emitted)}); err != nil {
		return nil, err
	}
	tau := func(r *Record) float64 { return emitted(r) / calls(r) }
	v.Sign = SignTest(column(a, tau), column(b, tau))
	known := true
	for i := range a {
		if len(a[i].FirstHits) != len(b[i].FirstHits) || len(a[i].FirstHits) == 0 {
			known = false
			break
		}
		for k, hit := range a[i].FirstHits {
			switch {
			case hit && !b[i].FirstHits[k]:
				v.Lost++
			case !hit && b[i].FirstHits[k]:
				v.Won++
			}
		}
	}
	if known {
		v.McNemar = McNemar(v.Lost, v.Won)
		v.Adjusted = v.McNemar
	} else {
		v.Lost, v.Won = 0, 0
		v.Adjusted = v.Sign
	}

	switch {
	case v.Drop.High <= g.MaxDrop:
	case v.Drop.Low > g.MaxDrop:
		v.say("acceptance drops by %.1f points (%.1f to %.1f), more than %.1f", v.Drop.Value, v.Drop.Low, v.Drop.High, g.MaxDrop)
	case v.Drop.Value > g.MaxDrop:
		v.say("acceptance drops by %.1f points (%.1f to %.1f), more than %.1f, though not for certain", v.Drop.Value, v.Drop.Low, v.Drop.High, g.MaxDrop)
	default:
		v.say("a drop of acceptance of %.1f points cannot be excluded, more than %.1f (measured %.1f; give more prompts)", v.Drop.High, g.MaxDrop, v.Drop.Value)
	}
	what := "takes"
	if unit == "bytes" {
		what = "reads"
	}
	switch {
	case v.Faster.Low > 1:
	case v.Faster.High <= 1:
		v.say("the round does not get faster: A's %s ×%.3f of what B's does (%.3f to %.3f)", what, v.Faster.Value, v.Faster.Low, v.Faster.High)
	default:
		v.say("that the round gets faster is not certain: A's %s ×%.3f of what B's does (%.3f to %.3f; give more prompts)", what, v.Faster.Value, v.Faster.Low, v.Faster.High)
	}
	if v.Faster.Low > 1 && v.Text.Value < 1 {
		v.say("the round gets faster, but text comes more slowly, ×%.3f", v.Text.Value)
	}
	v.Pass = len(v.Reasons) == 0
	return v, nil
}

func (v *Verdict) say(format string, args ...any) {
	v.Reasons = append(v.Reasons, fmt.Sprintf(format, args...))
}

// WallSeconds is the measured time of a prompt.
func WallSeconds(r *Record) float64 { return r.WallMs / 1000 }

// BytesRead is what the rounds of a prompt read.
func BytesRead(r *Record) float64 { return r.ByteCost }

// Adjust sets the p-values of several variants that were compared with the
// same A.
func Adjust(verdicts []*Verdict) {
	p := make([]float64, len(verdicts))
	for i, v := range verdicts {
		p[i] = v.Adjusted
	}
	for i, x := range Holm(p) {
		verdicts[i].Adjusted = x
	}
}
