package parity

import (
	"context"
	"fmt"
	"math"

	"github.com/smelt-go/smelt/runtime"
)

// ladderGate climbs down the precisions one rung at a time.
func ladderGate() Gate {
	return Gate{
		ID:     "ladder",
		Proves: "each step down in precision costs no more than noise; says which layer loses most, and what compression costs",
		Skip: func(s *Subject) string {
			switch {
			case s.Contract.Compute == "fp32":
				return "the bundle computes in fp32: there is one rung only"
			case !s.wants(runtime.FP32) || !s.wants(runtime.Typed):
				return "that takes both modes"
			}
			return ""
		},
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			if err := s.codesRung(ctx, res); err != nil {
				return nil, err
			}
			exact, err := s.straight(ctx, runtime.FP32)
			if err != nil {
				return nil, err
			}
			typed, err := s.straight(ctx, runtime.Typed)
			if err != nil {
				return nil, err
			}
			tol := s.between(exact.size, runtime.Typed)
			var kl, worst float64
			rows, flips := 0, 0
			for p := range exact.rows {
				a, b := &exact.rows[p], &typed.rows[p]
				if a.Argmax != b.Argmax && a.Margin() > tol.Margin {
					flips++
				}
				if a.Row == nil || b.Row == nil {
					continue
				}
				rows++
				kl += klDivergence(a.Row, b.Row, a.LSE, b.LSE)
				if d := maxAbsDiff(a.Row, b.Row); !(d <= worst) && worst == worst {
					worst = d
				}
			}
			res.note("rows", float64(rows))
			res.atMost("typed flips_beyond_noise", float64(flips), 0)
			if rows > 0 {
				res.atMost("typed kl_mean", kl/float64(rows), MeanKL)
				res.atMost("typed max_abs_dlogit", worst, tol.MaxAbs)
			}
			return res, s.layerRung(ctx, res)
		},
	}
}

// codesRung notes what compression costs, if there is any.
func (s *Subject) codesRung(ctx context.Context, res *Result) error {
	if s.codes == nil {
		return nil
	}
	rec, before := s.longest(), s.golden
	if before == nil {
		var err error
		if before, err = Record(ctx, s.Original, rec.IDs, "reference decoder"); err != nil {
			return err
		}
	}
	var kl float64
	rows, same, n := 0, 0, min(len(rec.IDs), len(before.IDs))
	for p := range n {
		a, b := &before.Positions[p], &rec.Positions[p]
		if a.Argmax == b.Argmax {
			same++
		}
		if a.Row != nil && b.Row != nil {
			kl += klDivergence(a.Row, b.Row, logSumExp(a.Row), logSumExp(b.Row))
			rows++
		}
	}
	res.note("codes argmax_agreement", float64(same)/float64(max(n, 1)))
	if rows > 0 {
		res.note("codes kl_mean", kl/float64(rows))
	}
	return nil
}

// layerRung finds the layer at which typed arithmetic leaves fp32 fastest.
func (s *Subject) layerRung(ctx context.Context, res *Result) error {
	rec := s.longest()
	to := min(len(rec.IDs), s.Contract.Context, 48)
	from := max(0, to-16)
	exact, where, err := s.graphSites(ctx, rec, runtime.FP32, s.quickest(), from, to)
	if err != nil {
		return err
	}
	typed, _, err := s.graphSites(ctx, rec, runtime.Typed, s.quickest(), from, to)
	if err != nil {
		return err
	}
	before, steepest, name, end := 0.0, 0.0, "", 0.0
	for _, site := range sites(s.Contract.Model.Layers) {
		if siteKind(site.Name) != "out" {
			continue
		}
		d, ok := deviation(site.Name, exact[site.Name], typed[site.Name])
		if !ok {
			continue
		}
		end = float64(d.Relative)
		if growth := end - before; growth > steepest {
			steepest, name = growth, site.Name
		}
		before = end
	}
	if name == "" {
		return nil
	}
	if limit := s.siteLimit(runtime.Typed); !(end <= limit) || math.IsNaN(end) {
		res.atMost("typed relative_l2 of the last layer", end, limit)
		at := where[name]
		res.Finding = &Finding{Chunk: at.chunk, Function: at.function, Layer: layerOf(tensorName(name)), Site: name, Mode: "typed", Position: -1,
			Relative: Num(steepest), Limit: Num(limit)}
	} else {
		res.note("typed relative_l2 of the last layer", end)
	}
	if res.Status == Pass {
		res.Reason = fmt.Sprintf("fp16 costs most at %s of %s: its stream's error grows by %s, to %s after the last layer", name, where[name].chunk, short(steepest), short(end))
	}
	return nil
}
