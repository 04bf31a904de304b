package parity

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity/reference"
	"github.com/smelt-go/smelt/runtime"
)

// DrafterOptions of VerifyDrafter. At least one of Golden and Checkpoint must
// be given.
type DrafterOptions struct {
	// Golden is a recording of rounds: inputs and drafts.
	Golden string
	// Checkpoint is the drafter's Hugging Face directory, for the reference.
	Checkpoint string
	// Target is the checkpoint of its target, for drafters that take their
	// target's embeddings.
	Target string
	// Modes are the arithmetics to run in; nil means fp32, then typed.
	Modes []runtime.Mode
	// Progress, if not nil, is told what is being done.
	Progress func(stage string, done, total int)
}

// DrafterGates says, by ID, what the gates of VerifyDrafter prove.
func DrafterGates() []Gate {
	return []Gate{
		{ID: "codes", Proves: codesGate().Proves},
		{ID: "needs", Proves: "the contract asks the target for the states that the checkpoint asks for: taps, norm, keys, widths"},
		{ID: "golden", Proves: "from recorded states of a target the converted drafter guesses what was recorded"},
		{ID: "drafts", Proves: "from arbitrary states, over rounds of any length, it guesses what the reference does"},
		{ID: "rejected", Proves: "guesses that were not accepted leave nothing behind"},
	}
}

// draftRound is what a drafter is given and what it should answer.
type draftRound struct {
	rows    drafter.Rows
	next    int32
	want    drafter.Draft
	columns []int32 // of the recorded logits; nil: the whole vocabulary
}

// VerifyDrafter reads the drafter's bundle in dir back and holds what it guesses
// against a recording and against the reference. As with Verify, an error means
// that there is no verdict.
func VerifyDrafter(ctx context.Context, dir string, o DrafterOptions) (*Report, error) {
	if o.Golden == "" && o.Checkpoint == "" {
		return nil, fmt.Errorf("parity: give something to compare with: a recording or the drafter's checkpoint")
	}
	c, err := chunking.ReadDrafter(dir)
	if err != nil {
		return nil, err
	}
	v := &drafterCheck{c: c, o: o, rep: &Report{Bundle: dir, Architecture: c.Drafter + " drafter", Compute: c.Compute, KV: chunking.KVTensor, Pass: true, Noise: Num(math.NaN())}}
	if v.o.Modes == nil {
		v.o.Modes = []runtime.Mode{runtime.FP32, runtime.Typed}
	}
	var target *reference.Model
	if o.Target != "" {
		if target, err = reference.Open(o.Target); err != nil {
			return nil, err
		}
		defer target.Close()
		v.embed = target.Embedder()
	}
	defer v.close()
	if err := v.expect(ctx, target); err != nil {
		return nil, err
	}
	total := len(v.o.Modes)
	for i, mode := range v.o.Modes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress("drafting in "+mode.String(), i, total)
		}
		if err := v.run(dir, mode); err != nil {
			return nil, err
		}
	}
	if o.Progress != nil {
		o.Progress("drafting", total, total)
	}
	for _, g := range v.rep.Gates {
		v.rep.Pass = v.rep.Pass && g.Status != Fail
	}
	return v.rep, nil
}

// drafterCheck is one run of VerifyDrafter.
type drafterCheck struct {
	c              *chunking.DrafterContract
	o              DrafterOptions
	rep            *Report
	embed          drafter.Embedder
	golden, drafts []draftRound
	closers        []func() error
	// Of a compressed drafter: recorded drafts, and those among them that it
	// would not make.
	compressed        bool
	recorded, changed int
}

func (v *drafterCheck) close() {
	for _, c := range v.closers {
		_ = c()
	}
}

// result adds a gate's result to the report.
func (v *drafterCheck) result(id, suffix string) *Result {
	for _, g := range DrafterGates() {
		if g.ID == id {
			r := &Result{ID: id + suffix, Proves: g.Proves, Status: Pass}
			v.rep.Gates = append(v.rep.Gates, r)
			return r
		}
	}
	return &Result{}
}

// expect collects the rounds to be run.
func (v *drafterCheck) expect(ctx context.Context, target *reference.Model) error {
	d, err := v.openReference(ctx, target)
	if err != nil {
		return err
	}
	if v.o.Golden != "" {
		if err := v.expectGolden(d); err != nil {
			return err
		}
	}
	if d == nil {
		return nil
	}
	v.rep.Reference = append(v.rep.Reference, "reference, from "+v.o.Checkpoint)
	want, got := d.Needs(), v.c.Needs()
	if want.Layers == 0 || got.Layers == 0 {
		want.Layers, got.Layers = 0, 0
	}
	if r := v.result("needs", ""); !reflect.DeepEqual(want, got) {
		r.fail("the contract asks for %s, the checkpoint for %s", describeNeeds(got), describeNeeds(want))
		return nil // rows for one are not rows for the other
	}
	s, err := v.session(d)
	if err != nil {
		return err
	}
	v.drafts, err = inventedRounds(s, v.c)
	return err
}

func (v *drafterCheck) session(d *reference.DraftSource) (drafter.Session, error) {
	s, err := d.NewSession(v.embed)
	if err != nil {
		return nil, fmt.Errorf("%w (name its checkpoint as the target)", err)
	}
	return s, nil
}

func describeNeeds(n drafter.Needs) string {
	return fmt.Sprintf("taps %v, %q-norm states of width %d, keys %v", n.Taps, n.Norm, n.Hidden, n.Keys)
}

// inventedRounds lets the reference answer to random states.
func inventedRounds(s drafter.Session, c *chunking.DrafterContract) ([]draftRound, error) {
	rng := rand.New(rand.NewPCG(1, 2))
	floats := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	needs, limit := s.Needs(), min(s.MaxDraft(), c.MaxDraft)
	var out []draftRound
	for i, n := range []int{9, 1, 3, 2, 12, 1, 5} {
		if s.Position()+n+limit > c.Context {
			break
		}
		r := drafter.Rows{Position: s.Position(), Norm: needs.Norm}
		for range n {
			r.Tokens = append(r.Tokens, int32(rng.IntN(needs.Vocab)))
		}
		if len(needs.Taps) > 0 {
			r.Taps = floats(n * len(needs.Taps) * needs.Hidden)
		}
		if needs.Norm != "" {
			r.Hidden = floats(n * needs.Hidden)
		}
		for _, kind := range []string{string(models.Full), string(models.Sliding)} {
			if shape, ok := needs.Keys[kind]; ok {
				if r.Keys == nil {
					r.Keys, r.Values = map[string][]float32{}, map[string][]float32{}
				}
				r.Keys[kind], r.Values[kind] = floats(n*shape.Heads*shape.HeadDim), floats(n*shape.Heads*shape.HeadDim)
			}
		}
		if err := s.Commit(r); err != nil {
			return nil, err
		}
		next := int32(rng.IntN(needs.Vocab))
		want, err := s.Draft(next, 1+(i+limit-1)%limit)
		if err != nil {
			return nil, err
		}
		for j := range want.Logits {
			want.Logits[j] = slices.Clone(want.Logits[j])
		}
		out = append(out, draftRound{rows: r, next: next, want: want})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("parity: a context of %d is too short to draft in", c.Context)
	}
	return out, nil
}

// run asks the converted drafter in one arithmetic.
func (v *drafterCheck) run(dir string, mode runtime.Mode) error {
	d, err := engine.OpenDrafter(dir, engine.Options{Mode: mode})
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := d.NewSession(v.embed)
	if err != nil {
		return fmt.Errorf("%w (name its checkpoint as the target)", err)
	}
	for _, x := range []struct {
		id     string
		rounds []draftRound
	}{{"golden", v.golden}, {"drafts", v.drafts}} {
		if x.rounds == nil {
			continue
		}
		s.Reset()
		r := v.result(x.id, "."+mode.String())
		rejected := v.result("rejected", "."+x.id+"."+mode.String())
		if err := v.compare(s, x.rounds, mode, r, rejected); err != nil {
			return fmt.Errorf("parity: %s: %w", x.id, err)
		}
	}
	return nil
}

// compare runs rounds and fills in what was measured.
func (v *drafterCheck) compare(s drafter.Session, rounds []draftRound, mode runtime.Mode, r, rejected *Result) error {
	// Every step of a chain takes in what the one before rounded. In fp32
	// arithmetic that is nothing, unless codes are decoded without rounding; in
	// fp16 only a first draft has a bound.
	chained := v.c.Compute != "fp32" && (mode == runtime.Typed || v.compressed)
	worst, later, confidence, flips, tokens := 0.0, 0.0, 0.0, 0, 0
	var limit float64
	for i := range rounds {
		round := &rounds[i]
		if err := s.Commit(round.rows); err != nil {
			return err
		}
		n := len(round.want.Tokens)
		got, err := s.Draft(round.next, n)
		if err != nil {
			return err
		}
		v.rep.Tokens += n
		size := 1.0
		for _, l := range round.want.Logits {
			for _, x := range l {
				if a := math.Abs(float64(x)); !math.IsInf(a, 0) {
					size = max(size, a)
				}
			}
		}
		margin := v.limits(size, mode, &limit)
		for j := range n {
			tokens++
			off := 0.0
			if round.want.Logits != nil {
				off = draftDeviation(got.Logits[j], round.want.Logits[j], round.columns)
			}
			if chained && j > 0 {
				later, margin = max(later, off), max(margin, 2*off)
			} else {
				worst = max(worst, off)
			}
			if round.want.Confidence != nil && j < len(got.Confidence) {
				confidence = max(confidence, math.Abs(float64(got.Confidence[j]-round.want.Confidence[j])))
			}
			if got.Tokens[j] != round.want.Tokens[j] {
				if lead := leadOf(round, j, got.Tokens[j]); lead > margin {
					flips++
					r.fail("round %d: draft %d is token %d, want %d, which leads by %s", i, j, got.Tokens[j], round.want.Tokens[j], short(lead))
				}
				break // what follows another token is another chain
			}
		}
		again, err := s.Draft((round.next+1)%int32(v.c.Vocab), n)
		if err == nil {
			again, err = s.Draft(round.next, n)
		}
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(again, got) {
			rejected.fail("round %d: the same question has another answer after a guess that was dropped", i)
		}
	}
	r.atMost("max_abs_logit", worst, limit)
	if chained {
		r.note("max_abs_logit_later_in_chains", later)
	}
	r.note("drafts", float64(tokens))
	r.note("flips", float64(flips))
	if v.recorded > 0 && r.ID == "golden."+mode.String() {
		r.note("recorded", float64(v.recorded))
		r.note("recorded_that_compression_changes", float64(v.changed))
	}
	if v.c.Confident {
		bound := ExactRelative
		if v.c.Compute != "fp32" {
			bound = 0.02
		}
		r.atMost("max_abs_confidence", confidence, bound)
	}
	return nil
}

// limits returns the margin from which a flip counts, and widens what a logit
// may be off.
func (v *drafterCheck) limits(size float64, mode runtime.Mode, limit *float64) (margin float64) {
	rec := Recording{MaxAbs: size, Noise: math.NaN()}
	t := rec.tolerance(v.c.Compute, mode)
	*limit = max(*limit, t.MaxAbs)
	return t.Margin
}

// draftDeviation is the largest difference of two rows of logits; where one has no
// number the other must have none.
func draftDeviation(got, want []float32, columns []int32) float64 {
	worst := 0.0
	for i, w := range want {
		at := i
		if columns != nil {
			at = int(columns[i])
		}
		g := got[at]
		switch {
		case math.IsInf(float64(g), -1) && math.IsInf(float64(w), -1):
		default:
			worst = max(worst, math.Abs(float64(g-w)))
		}
	}
	return worst
}

// leadOf is by how much the expected token of a draft leads another; infinite
// where the recording does not say.
func leadOf(r *draftRound, j int, other int32) float64 {
	if r.want.Logits == nil {
		return math.Inf(1)
	}
	at := func(id int32) int {
		if r.columns == nil {
			return int(id)
		}
		return slices.Index(r.columns, id)
	}
	a, b := at(r.want.Tokens[j]), at(other)
	if a < 0 || b < 0 {
		return math.Inf(1)
	}
	return float64(r.want.Logits[j][a] - r.want.Logits[j][b])
}
