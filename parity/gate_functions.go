package parity

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/runtime"
)

// functionsGate walks the context twice: straight through prefill, and in odd
// steps that mix verify, decode and prefill, so that padding, offsets and the
// wrap of the ring are met.
func functionsGate() Gate {
	return Gate{
		ID:     "functions",
		Proves: "decode, prefill at any offset and verify agree at positions 0, 1, W-1, W, W+1, 2W … C-1",
		Skip:   func(*Subject) string { return "" },
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			for _, mode := range s.modes() {
				if s.large && mode != s.sharp() {
					continue
				}
				if err := s.agree(ctx, res, mode); err != nil {
					return nil, err
				}
			}
			return res, nil
		},
	}
}

// agreement compares rows of two walks in one mode.
type agreement struct {
	want    []Position
	tol     Tolerance
	maxAbs  float64
	rows    int
	worst   string
	flips   int
	flipped string
	first   *step // the first row that is wrong
}

// step is one row of the mixed walk.
type step struct {
	via      string
	position int
}

// row compares one row of the mixed walk.
func (a *agreement) row(what string, row engine.Row) error {
	p := row.Position
	if p >= len(a.want) {
		return nil
	}
	want := &a.want[p]
	a.rows++
	if row.Token != want.Argmax {
		m := want.Margin()
		if math.IsNaN(m) {
			// A token head says nothing of the second best. Where noise
			// decides between two tokens, both lead with the same logit.
			m = math.Abs(float64(row.TokenLogit) - float64(want.Top[0].Logit))
		}
		if !(m <= a.tol.Margin) {
			a.suspect(what, p)
			if a.flips++; a.flipped == "" {
				a.flipped = fmt.Sprintf("%s at position %d chose token %d, prefill %d by a margin of %s", what, p, row.Token, want.Argmax, short(m))
			}
		}
	}
	worst := 0.0
	switch {
	case row.Logits == nil:
		if row.Token == want.Argmax {
			worst = math.Abs(float64(row.TokenLogit) - float64(want.Top[0].Logit))
		}
	case want.Row != nil:
		worst = maxAbsDiff(want.Row, row.Logits)
	default:
		for _, t := range want.Top {
			worst = math.Max(worst, math.Abs(float64(t.Logit)-float64(row.Logits[t.ID])))
		}
	}
	if !(worst <= a.tol.MaxAbs) {
		a.suspect(what, p)
	}
	if !(worst <= a.maxAbs) && a.maxAbs == a.maxAbs {
		a.maxAbs, a.worst = worst, fmt.Sprintf("%s at position %d", what, p)
	}
	return nil
}

func (a *agreement) suspect(via string, position int) {
	if a.first == nil {
		a.first = &step{via, position}
	}
}

// agree runs both walks in one mode.
func (s *Subject) agree(ctx context.Context, res *Result, mode runtime.Mode) error {
	K := max(1, largest(s.Contract, ViaVerify))
	sweep := s.sweep(1)
	last := sweep[len(sweep)-1]
	walk, err := s.straight(ctx, mode)
	if err != nil {
		return err
	}
	ids := walk.ids
	a := &agreement{want: slices.Clone(walk.rows), tol: s.between(walk.size, mode)}
	for p, rec := 0, s.longest(); p < min(len(a.want), len(rec.IDs)); p++ {
		if w := &a.want[p]; len(w.Top) < 2 {
			w.margin = rec.Positions[p].Margin()
		}
	}
	h, err := s.Host(mode)
	if err != nil {
		return err
	}
	if err := s.mixed(h, ids, sweep, K, a.row); err != nil {
		return err
	}
	prefix := mode.String() + " "
	res.note(prefix+"rows", float64(a.rows))
	res.note(prefix+"last_position", float64(last))
	if walk.problem != "" {
		res.fail("%s", walk.problem)
	}
	res.atMost(prefix+"flips_beyond_noise", float64(a.flips), 0)
	if a.flips > 0 {
		res.Reason = a.flipped
	}
	res.atMost(prefix+"max_abs_dlogit", a.maxAbs, a.tol.MaxAbs)
	if !(a.maxAbs <= a.tol.MaxAbs) {
		res.Reason = fmt.Sprintf("%s differs from straight prefill by %s, at most %s allowed", a.worst, short(a.maxAbs), short(a.tol.MaxAbs))
	}
	if f := a.first; f != nil && res.Finding == nil {
		res.symptom(f.via)
		res.Finding, err = s.bisectStep(ctx, mode, ids, sweep, f)
	}
	return err
}

// mixed walks the sweep in odd steps: prefill to the next position, then
// verify and decode, which take turns in being the first.
func (s *Subject) mixed(h Host, ids []int32, sweep []int, K int, row func(what string, r engine.Row) error) error {
	for i, p := range sweep {
		s.progress("functions: sweep", i+1, len(sweep))
		each := func(r engine.Row) error { return row("prefill", r) }
		if p > h.Pos() {
			if _, err := h.Prefill(ids[h.Pos():p], each); err != nil {
				return err
			}
		}
		if p < h.Pos() {
			continue
		}
		steps := []func() error{
			func() error {
				if !s.has(ViaVerify) {
					return nil
				}
				at := h.Pos()
				b, err := h.Verify(ids[at:min(at+K, len(ids))])
				if err != nil {
					return err
				}
				for _, r := range b.Rows() {
					if err := row("verify", r); err != nil {
						return err
					}
				}
				return nil
			},
			func() error {
				r, err := h.Decode(ids[h.Pos()])
				if err != nil {
					return err
				}
				return row("decode", r)
			},
		}
		for j := range steps {
			if h.Pos() == len(ids) {
				break
			}
			if err := steps[(i+j)%2](); err != nil {
				return err
			}
		}
	}
	return nil
}

// between bounds what two runs of the bundle may differ by: sums in another
// order, rounded to fp16 in typed mode.
func (s *Subject) between(size float64, mode runtime.Mode) Tolerance {
	size = math.Max(1, size)
	if mode == runtime.FP32 || s.Contract.Compute == "fp32" {
		return Tolerance{MaxAbs: ExactRelative * size, Margin: ExactRelative / 10 * size}
	}
	rec := *s.longest()
	rec.MaxAbs, rec.Resolution = size, 0
	return rec.tolerance(s.Contract.Compute, mode)
}
