package parity

import (
	"context"
	"fmt"
	"math"

	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/parity/reference"
	"github.com/smelt-go/smelt/runtime"
)

// positionsGate looks where caches begin, fill, wrap and end.
func positionsGate() Gate {
	return Gate{
		ID:     "positions",
		Proves: "at positions 0, 1, W-1, W, W+1, 2W … C-1 the logits are the reference's, also past the end of the recording",
		Skip: func(s *Subject) string {
			if !hasLogits(s.Contract) {
				return "the bundle returns no logits"
			}
			return ""
		},
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			mode, rec := s.sharp(), s.longest()
			sweep := s.sweep(1)
			walk, err := s.straight(ctx, mode)
			if err != nil {
				return nil, err
			}
			ids := walk.ids
			var beyond []int
			for _, p := range sweep {
				if p >= len(rec.IDs) && p < len(walk.rows) && walk.rows[p].Row != nil {
					beyond = append(beyond, p)
				}
			}
			want := map[int][]float32{}
			for _, p := range sweep {
				if p < len(rec.IDs) && rec.Positions[p].Row != nil {
					want[p] = rec.Positions[p].Row
				}
			}
			if s.Reference != nil && !s.large && len(beyond) > 0 {
				r, err := s.Reference.Forward(ctx, ids, reference.Options{Head: true, Positions: beyond, Product: product})
				if err != nil {
					return nil, err
				}
				for i, p := range beyond {
					want[p] = r.Logits.Row(i)
				}
			}
			tol := s.tolerance(rec, mode)
			worst, at, n := 0.0, -1, 0
			for _, p := range sweep {
				if want[p] == nil || p >= len(walk.rows) || walk.rows[p].Row == nil {
					continue
				}
				n++
				d := maxAbsDiff(want[p], walk.rows[p].Row)
				if !(d <= tol.MaxAbs) && at < 0 {
					at = p
				}
				if !(d <= worst) && worst == worst {
					worst = d
				}
			}
			if n == 0 {
				return &Result{Status: Skip, Reason: "no position of the sweep has logits to compare with"}, nil
			}
			res.note("positions", float64(n))
			res.note("last", float64(sweep[len(sweep)-1]))
			res.atMost("max_abs_dlogit", worst, tol.MaxAbs)
			if res.Status == Fail {
				res.Reason = fmt.Sprintf("position %d is the first of the sweep whose logits are off; %s", at, res.Reason)
				long := &Recording{Source: rec.Source, IDs: ids, Vocab: rec.Vocab, Positions: make([]Position, len(ids))}
				copy(long.Positions, rec.Positions)
				if at < len(rec.IDs) {
					long = rec
				}
				res.suspect = &suspect{rec: long, mode: mode, via: s.quickest(), position: at}
			}
			return res, nil
		},
	}
}

// straightWalk is the whole sweep's length of tokens through the quickest kind
// of function.
type straightWalk struct {
	ids     []int32
	rows    []Position
	size    float64 // largest |logit|
	problem string
}

// straight walks once a mode.
func (s *Subject) straight(ctx context.Context, mode runtime.Mode) (*straightWalk, error) {
	if w := s.walks[mode]; w != nil {
		return w, nil
	}
	sweep := s.sweep(1)
	last := sweep[len(sweep)-1]
	w := &straightWalk{ids: s.extended(last + 1)}
	keep := len(w.ids)*s.Contract.Model.Vocab <= rowBudget
	few := map[int]bool{}
	for _, p := range sweep {
		few[p] = true
	}
	h, err := s.Host(mode)
	if err != nil {
		return nil, err
	}
	var m Metrics
	err = feed(ctx, h, s.Contract, s.quickest(), w.ids, func(row engine.Row) error {
		s.progress(fmt.Sprintf("sweep, %s", mode), row.Position+1, len(w.ids))
		w.rows = append(w.rows, m.reduce(row, keep || few[row.Position]))
		w.size = math.Max(w.size, math.Max(math.Abs(float64(row.TokenLogit)), maxAbs(row.Logits)))
		return nil
	})
	if err != nil {
		return nil, err
	}
	w.problem = m.Problem
	s.walks[mode] = w
	return w, nil
}
