package parity

import (
	"context"
	"fmt"
	"math"

	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/parity/reference"
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
	size    float64 // largest |logit|
	rows    int
	worst   string
	flips   int
	flipped string
}

func (a *agreement) row(what string, row engine.Row) {
	p := row.Position
	if p >= len(a.want) {
		return
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
	if !(worst <= a.maxAbs) && a.maxAbs == a.maxAbs {
		a.maxAbs, a.worst = worst, fmt.Sprintf("%s at position %d", what, p)
	}
}

// verify compares a block without committing it.
func (a *agreement) verify(h Host, s *Subject, ids []int32, K int) error {
	p := h.Pos()
	if !s.has(ViaVerify) {
		return nil
	}
	b, err := h.Verify(ids[p:min(p+K, len(ids))])
	if err != nil {
		return err
	}
	for _, row := range b.Rows() {
		a.row("verify", row)
	}
	return nil
}

// agree runs both walks in one mode.
func (s *Subject) agree(ctx context.Context, res *Result, mode runtime.Mode) error {
	K := max(1, largest(s.Contract, ViaVerify))
	sweep := s.sweep(1)
	last := sweep[len(sweep)-1]
	ids := s.extended(last + 1)
	rowsFit := len(ids)*s.Contract.Model.Vocab <= rowBudget

	straight, err := s.Host(mode)
	if err != nil {
		return err
	}
	a := &agreement{}
	var m Metrics
	err = feed(ctx, straight, s.Contract, s.quickest(), ids, func(row engine.Row) error {
		s.progress(fmt.Sprintf("functions, %s: straight", mode), row.Position+1, len(ids))
		a.want = append(a.want, m.reduce(row, rowsFit))
		a.size = math.Max(a.size, math.Max(math.Abs(float64(row.TokenLogit)), maxAbs(row.Logits)))
		return nil
	})
	if err != nil {
		return err
	}
	a.tol = s.between(a.size, mode)
	for p, rec := 0, s.longest(); p < min(len(a.want), len(rec.IDs)); p++ {
		if w := &a.want[p]; len(w.Top) < 2 {
			w.margin = rec.Positions[p].Margin()
		}
	}

	if mode == s.sharp() {
		if err := s.beyond(ctx, res, a, ids, sweep, mode); err != nil {
			return err
		}
	}

	h, err := s.Host(mode)
	if err != nil {
		return err
	}
	for i, p := range sweep {
		s.progress(fmt.Sprintf("functions, %s: sweep", mode), i+1, len(sweep))
		each := func(row engine.Row) error { a.row("prefill from an odd offset", row); return nil }
		if p > h.Pos() {
			if _, err := h.Prefill(ids[h.Pos():p], each); err != nil {
				return err
			}
		}
		if p < h.Pos() {
			continue
		}
		// Verify and decode take turns in being the first after prefill.
		steps := []func() error{
			func() error { return a.verify(h, s, ids, K) },
			func() error {
				row, err := h.Decode(ids[h.Pos()])
				if err == nil {
					a.row("decode", row)
				}
				return err
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
	prefix := mode.String() + " "
	res.note(prefix+"rows", float64(a.rows))
	res.note(prefix+"last_position", float64(last))
	if m.Problem != "" {
		res.fail("%s", m.Problem)
	}
	res.atMost(prefix+"flips_beyond_noise", float64(a.flips), 0)
	if a.flips > 0 {
		res.Reason = a.flipped
	}
	res.atMost(prefix+"max_abs_dlogit", a.maxAbs, a.tol.MaxAbs)
	if !(a.maxAbs <= a.tol.MaxAbs) {
		res.Reason = fmt.Sprintf("%s differs from straight prefill by %s, at most %s allowed", a.worst, short(a.maxAbs), short(a.tol.MaxAbs))
	}
	return nil
}

// beyond compares the positions of the sweep that lie past the recording with
// the reference decoder. Large bundles leave it out: their recordings are
// long.
func (s *Subject) beyond(ctx context.Context, res *Result, a *agreement, ids []int32, sweep []int, mode runtime.Mode) error {
	rec := s.longest()
	var positions []int
	for _, p := range sweep {
		if p >= len(rec.IDs) && p < len(a.want) && a.want[p].Row != nil {
			positions = append(positions, p)
		}
	}
	if s.Reference == nil || s.large || len(positions) == 0 {
		return nil
	}
	want, err := s.Reference.Forward(ctx, ids, reference.Options{Head: true, Positions: positions})
	if err != nil {
		return err
	}
	worst := 0.0
	for i, p := range positions {
		if d := maxAbsDiff(want.Logits.Row(i), a.want[p].Row); !(d <= worst) && worst == worst {
			worst = d
		}
	}
	res.note("positions_beyond_the_recording", float64(len(positions)))
	res.atMost("max_abs_dlogit beyond the recording", worst, s.tolerance(rec, mode).MaxAbs)
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
