package speculate

import (
	"fmt"
)

// Modes are the ways of measuring how many drafts are accepted.
const (
	Chain  = "chain"
	Argmax = "argmax"
	Oracle = "oracle"
)

// Modes compares what each way of measuring says about one drafter.
type Modes struct {
	Oracle float64 `json:"oracle"`
	Argmax float64 `json:"argmax"`
	Chain  float64 `json:"chain"`
	// AtRounds is the oracle's acceptance at the positions where live rounds
	// began, LiveAtRounds that of those rounds. Equal means that nothing but
	// the choice of positions parts oracle and chain.
	AtRounds     float64 `json:"oracle_at_live_rounds"`
	LiveAtRounds float64 `json:"chain_at_live_rounds"`
	// Differing counts live rounds that accepted another number of drafts than
	// their replay, of Compared.
	Differing int `json:"rounds_that_differ"`
	Compared  int `json:"rounds_compared"`
	ZeroFlips int `json:"prompts_where_verify_with_zeros_differs"`
	// Gap says where the difference between oracle and chain comes from: see
	// GapText.
	Gap []string `json:"gap"`
}

// GapText explains why oracle figures claim too much.
const GapText = "oracle drafts at every position of a text that is known already. Live rounds begin only where the last one ended, " +
	"mostly right after a miss, where the next draft misses more often: oracle figures claim too much"

// DriftReport sums up how texts differ from serial decoding's.
type DriftReport struct {
	Prompts int     `json:"prompts"`
	Drifted int     `json:"prompts_that_drift"`
	Tokens  int     `json:"tokens"`
	Flips   int     `json:"flips"`
	Rate    float64 `json:"flip_rate"`
	// First is the mean index of the first flip, over prompts that drift.
	First float64 `json:"mean_first_flip"`
	Each  []Drift `json:"by_prompt"`
}

func newDriftReport(each []Drift) *DriftReport {
	if each == nil {
		return nil
	}
	r := &DriftReport{Prompts: len(each), Each: each}
	for _, d := range each {
		r.Tokens += d.Tokens
		r.Flips += d.Flips
		if d.First >= 0 {
			r.Drifted++
			r.First += float64(d.First)
		}
	}
	r.Rate = float64(r.Flips) / float64(max(1, r.Tokens))
	r.First /= float64(max(1, r.Drifted))
	return r
}

// Economy says what speculation is worth.
type Economy struct {
	Costs Costs `json:"seconds"`
	// C is a drafted token, V a full verify call, in decode steps.
	C float64 `json:"c"`
	V float64 `json:"v"`
	// BreakEvenTau and BreakEven are the τ and the acceptance, the same for
	// every draft, at which speculation begins to pay; nil where it cannot.
	BreakEvenTau float64  `json:"break_even_tau"`
	BreakEven    *float64 `json:"break_even_acceptance"`
	// Predicted is the speedup that the costs foresee for the rounds as they
	// went, Measured is serial time over speculative time.
	Predicted float64 `json:"predicted_speedup"`
	Measured  float64 `json:"measured_speedup"`
}

// ArmResult is what was found about one arm.
type ArmResult struct {
	Name         string       `json:"name"`
	Bytes        float64      `json:"bytes_a_draft_reads,omitempty"`
	Summary      *Summary     `json:"summary"`
	Modes        *Modes       `json:"modes,omitempty"`
	Economy      *Economy     `json:"economy,omitempty"`
	Drift        *DriftReport `json:"drift,omitempty"`
	WriteThrough *DriftReport `json:"write_through_drift,omitempty"`
	Verdict      *Verdict     `json:"verdict,omitempty"` // against the first arm
	Records      []Record     `json:"records"`
}

// Result is the outcome of an A/B. The first arm is A.
type Result struct {
	Version   int     `json:"version"`
	Target    string  `json:"target"`
	Gamma     int     `json:"gamma,omitempty"`
	MaxTokens int     `json:"max_tokens,omitempty"`
	Mode      string  `json:"mode"`
	Speed     string  `json:"speed"` // what a round's speed is: "wall" or "bytes"
	MaxDrop   float64 `json:"max_drop_points"`
	// Margin of lossy acceptance; 0: exact.
	Margin float64 `json:"margin"`
	// Judged is the number of arms that were held against the first. Pass says
	// that none of them failed.
	Judged int         `json:"judged"`
	Pass   bool        `json:"pass"`
	Arms   []ArmResult `json:"arms"`
}

// Judge makes the result of trials. mode says which records are judged, speed
// what counts as the speed of a round.
func Judge(trials []*Trial, mode, speed string, g Gate, o CompareOptions) (*Result, error) {
	r := &Result{Version: 1, Gamma: o.Gamma, MaxTokens: o.MaxTokens, Mode: mode, Speed: speed, MaxDrop: g.MaxDrop, Margin: o.Margin}
	var arms [][]Record
	var names []string
	for _, t := range trials {
		records := t.Chain
		switch mode {
		case Chain:
		case Oracle:
			records = t.Oracle
		case Argmax:
			records = t.Argmax
		default:
			return nil, fmt.Errorf("speculate: mode %q is not known (want chain, argmax or oracle)", mode)
		}
		arms, names = append(arms, records), append(names, t.Name)
	}
	if err := r.judge(names, arms, g); err != nil {
		return nil, err
	}
	for i, t := range trials {
		a := &r.Arms[i]
		a.Bytes = t.Bytes
		a.Modes = t.modes()
		a.Economy = t.economy(o.Gamma)
		a.Drift, a.WriteThrough = newDriftReport(t.Drift), newDriftReport(t.WriteThrough)
	}
	return r, nil
}

// JudgeRecorded makes the result of records that another runtime made.
func JudgeRecorded(rec *Recorded, speed string, g Gate) (*Result, error) {
	r := &Result{Version: 1, Target: rec.Target, Mode: Chain, Speed: speed, MaxDrop: g.MaxDrop}
	return r, r.judge(rec.Names, rec.Arms, g)
}

func (r *Result) judge(names []string, arms [][]Record, g Gate) error {
	g.Cost, g.Unit = WallSeconds, "s"
	switch r.Speed {
	case "wall":
	case "bytes":
		g.Cost, g.Unit = BytesRead, "bytes"
	default:
		return fmt.Errorf("speculate: speed %q is not known (want wall or bytes)", r.Speed)
	}
	var verdicts []*Verdict
	r.Pass = true
	for i, records := range arms {
		s, err := Summarize(names[i], records, g.Cost, g.Bootstrap)
		if err != nil {
			return err
		}
		a := ArmResult{Name: names[i], Summary: s, Records: records}
		if i > 0 {
			if a.Verdict, err = g.Judge(arms[0], records); err != nil {
				return err
			}
			verdicts = append(verdicts, a.Verdict)
			r.Pass = r.Pass && a.Verdict.Pass
			r.Judged++
		}
		r.Arms = append(r.Arms, a)
	}
	Adjust(verdicts)
	return nil
}

func share(records []Record) float64 {
	var a, d int
	for i := range records {
		a += records[i].Accepted
		d += records[i].Drafted
	}
	return float64(a) / float64(max(1, d))
}

func (t *Trial) economy(gamma int) *Economy {
	e := &Economy{Costs: t.Costs, C: t.Costs.C(), V: t.Costs.V(gamma + 1), BreakEvenTau: t.Costs.BreakEvenTau(gamma), Predicted: t.Costs.Predict(t.Chain)}
	if b := t.Costs.BreakEven(gamma); finite(b) {
		e.BreakEven = &b
	}
	var serial, wall, perSerial, perChain float64
	for i := range t.Chain {
		r := &t.Chain[i]
		serial += r.SerialMs
		wall += r.WallMs
		perSerial += float64(len(r.Output))
		perChain += emitted(r)
	}
	// A last round may overshoot: its tokens took their time.
	e.Measured = serial / perSerial / (wall / perChain)
	return e
}

// modes compares the ways of measuring.
func (t *Trial) modes() *Modes {
	m := &Modes{Oracle: share(t.Oracle), Argmax: share(t.Argmax), Chain: share(t.Chain), ZeroFlips: t.ZeroFlips}
	var live, replayed Record
	for i := range t.Chain {
		at := 0
		for _, x := range t.Chain[i].Rounds {
			// At the end of the text a replay has fewer drafts to compare.
			if at >= len(t.Oracle[i].Rounds) || t.Oracle[i].Rounds[at].Drafted != x.Drafted {
				break
			}
			y := t.Oracle[i].Rounds[at]
			live.add(x)
			replayed.add(y)
			m.Compared++
			if x.Accepted != y.Accepted {
				m.Differing++
			}
			at += x.Accepted + 1
		}
	}
	rate := func(r *Record) float64 { return float64(r.Accepted) / float64(max(1, r.Drafted)) }
	m.AtRounds, m.LiveAtRounds = rate(&replayed), rate(&live)
	say := func(format string, args ...any) { m.Gap = append(m.Gap, fmt.Sprintf(format, args...)) }
	same := fmt.Sprintf("of %d live rounds each accepts what its replay does: nothing but the choice of positions parts the two", m.Compared)
	if m.Differing > 0 {
		same = fmt.Sprintf("%d of %d live rounds accept another number than their replay: what stands in the slots of a verify call changes what the target says, or acceptance is lossy", m.Differing, m.Compared)
	}
	say("oracle %.1f %%, at the positions where live rounds begin %.1f %%, live there %.1f %%; %s", 100*m.Oracle, 100*m.AtRounds, 100*m.LiveAtRounds, same)
	if t.ZeroFlips > 0 {
		say("with zeros in the slots of drafts, verify says another text than decode on %d of %d prompts: the two functions disagree (see smelt parity)", t.ZeroFlips, len(t.Chain))
	}
	return m
}
