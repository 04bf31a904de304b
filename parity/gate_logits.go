package parity

import (
	"context"
	"fmt"
	"math"

	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// logitsGate compares logits (or tokens, where there are no logits) of one
// kind of function with every recording.
func logitsGate(mode runtime.Mode, via Via) Gate {
	what := "as the fp16 package rounds them"
	if mode == runtime.FP32 {
		what = "without rounding, so that structural mistakes stand out"
	}
	return Gate{
		ID:     fmt.Sprintf("logits.%s.%s", mode, via),
		Proves: fmt.Sprintf("%s gives the reference's logits at every position, %s", via, what),
		Skip: func(s *Subject) string {
			switch {
			case !s.wants(mode) && s.Contract.Compute == "fp32":
				return "the bundle computes in fp32, which the typed gate measures"
			case !s.wants(mode):
				return "the mode was not asked for"
			case !s.has(via):
				return fmt.Sprintf("the bundle has no %s function", via)
			case s.large && mode == runtime.FP32 && via != s.quickest():
				return fmt.Sprintf("a large bundle: fp32 mode is measured via %s alone", s.quickest())
			}
			return ""
		},
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			for i, rec := range s.Recordings {
				r, err := s.run(ctx, runKey{rec, mode, via})
				if err != nil {
					return nil, err
				}
				prefix := ""
				if len(s.Recordings) > 1 {
					prefix = fmt.Sprintf("prompt %d: ", i+1)
				}
				r.judge(res, prefix)
				if res.Status == Fail && r.off > 2 && r.late == r.off && res.Finding == nil {
					res.symptom("rows of the token before")
					res.Finding = &Finding{Chunk: s.Contract.Chunks[len(s.Contract.Chunks)-1].Name, Function: string(via), Layer: s.Contract.Model.Layers,
						Site: "logits", Mode: mode.String(), Position: r.worst, Change: "row of the token before", Hint: "look at which row the host takes for which token"}
				}
				if res.Status == Fail && res.suspect == nil {
					res.suspect = &suspect{rec, mode, via, r.worst}
				}
			}
			return res, nil
		},
	}
}

// quickest is the kind of function that feeds tokens fastest.
func (s *Subject) quickest() Via {
	if s.has(ViaPrefill) {
		return ViaPrefill
	}
	return ViaDecode
}

// judge holds a run against its tolerance.
func (r *run) judge(res *Result, prefix string) {
	if r.Problem != "" {
		res.fail("%s%s", prefix, r.Problem)
	}
	res.note(prefix+"positions", float64(r.Positions))
	res.note(prefix+"argmax_agreement", r.Agree)
	bad := r.counted()
	res.Flips = append(res.Flips, bad[:min(len(bad), 10)]...)
	res.atMost(prefix+"flips_beyond_noise", float64(len(bad)), 0)
	if len(bad) > 0 {
		f := bad[0]
		res.Reason = fmt.Sprintf("%sposition %d: token %d instead of %d, which leads by %s where noise explains %s (%d such flips)",
			prefix, f.Position, f.Got, f.Want, short(float64(f.Margin)), short(r.tol.Margin), len(bad))
	}
	if r.TokenHeads == 0 {
		return // a token head alone: there is nothing else to compare
	}
	res.atMost(prefix+"max_abs_dlogit", r.MaxAbs, r.tol.MaxAbs)
	res.note(prefix+"top3_overlap", r.Top3)
	res.note(prefix+"top5_overlap", r.Top5)
	if r.Rows > 0 {
		res.atMost(prefix+"kl_mean", r.KLMean, r.tol.KL)
		res.note(prefix+"kl_max", r.KLMax)
		res.note(prefix+"min_cosine", r.Cosine)
	}
	if r.Ppl > 0 && !math.IsInf(r.Ppl, 0) {
		res.note(prefix+"perplexity", r.Ppl)
		res.note(prefix+"reference_perplexity", r.Ref)
	}
}

// hiddenGate compares the residual stream after every layer.
func hiddenGate() Gate {
	return Gate{
		ID:     "layers",
		Proves: "the residual stream after every layer, and what enters beside it, is the reference's, so no two mistakes cancel",
		Skip: func(s *Subject) string {
			if s.Reference == nil && len(s.longest().Hidden) == 0 {
				return "the recording has no hidden states and no checkpoint was given"
			}
			return ""
		},
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			rec, mode, via := s.longest(), s.sharp(), s.quickest()
			to := min(len(rec.IDs), s.Contract.Context)
			from := 0
			if s.large {
				from = max(0, to-16)
			}
			want, err := s.referenceSites(ctx, rec, from, to)
			if err != nil {
				return nil, err
			}
			got, where, err := s.graphSites(ctx, rec, mode, via, from, to)
			if err != nil {
				return nil, err
			}
			limit := s.siteLimit(mode)
			compared := 0
			for _, site := range sites(s.Contract.Model.Layers) {
				if k := siteKind(site.Name); k != "out" && k != "embed" && k != "final_norm" && k != "per_layer_inputs" {
					continue
				}
				d, ok := deviation(site.Name, want[site.Name], got[site.Name])
				if !ok {
					continue
				}
				compared++
				res.atMost(site.Name+" relative_l2", float64(d.Relative), limit)
				res.note(site.Name+" max_abs", float64(d.MaxAbs))
				res.note(site.Name+" min_cosine", float64(d.Cosine))
			}
			if compared == 0 {
				return &Result{Status: Skip, Reason: "the graph has no values of the expected names"}, nil
			}
			if res.Status == Fail {
				res.Finding = s.first(want, got, where, mode)
			}
			return res, nil
		},
	}
}

// tokenGate compares the token head with the logits.
func tokenGate() Gate {
	return Gate{
		ID:     "token",
		Proves: "token_id is the first of the largest logits and token_logit its value",
		Skip: func(s *Subject) string {
			if !hasToken(s.Contract) || !hasLogits(s.Contract) && !returns(s.Contract, models.TopIDs) {
				return "the bundle has only one of logits and token head"
			}
			return ""
		},
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			rows := 0
			for _, via := range []Via{ViaDecode, ViaPrefill, ViaVerify} {
				if !s.has(via) {
					continue
				}
				mode := s.modes()[len(s.modes())-1]
				r, err := s.run(ctx, runKey{s.longest(), mode, via})
				if err != nil {
					return nil, err
				}
				rows += r.TokenHeads
				if r.TokenHead != "" {
					res.symptom("not the largest")
					res.fail("%s: %s", via, r.TokenHead)
					if res.Finding == nil {
						res.Finding = &Finding{Chunk: s.Contract.Chunks[len(s.Contract.Chunks)-1].Name, Function: string(via),
							Layer: s.Contract.Model.Layers, Site: "token_id", Position: r.tokenHeadAt, Mode: mode.String()}
					}
				}
			}
			res.note("rows", float64(rows))
			res.note("vocabulary", float64(s.Contract.Model.Vocab))
			return res, nil
		},
	}
}
