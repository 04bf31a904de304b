package kernel

import (
	"math"
	"testing"
)

// The assembly forms of error feedback agree with the Go form but for fused
// sums, and with each other in every bit.
func TestFeedback(t *testing.T) {
	defer func(l *level) { cur = l }(cur)
	for _, n := range []int{1, 2, 3, 32, 63, 64, 128} {
		const ldt = FeedbackRows + 16
		ldf := n + 5
		x, fb, d := noise(n*ldt, 1), noise(n*ldf, 2), noise(n, 3)
		for i := range fb {
			fb[i] *= 0.2
		}
		for i := range d {
			d[i] = d[i]*d[i] + 0.1
		}
		var p FeedbackParams
		var lp LaneParams
		for r := range FeedbackRows {
			s := 0.1 + 0.01*float32(r)
			if r == 9 {
				s = -s
			}
			p.Scale[r], p.Inverse[r], p.Bias[r] = s, 1/s, -0.5+0.02*float32(r)
			lp.Inverse[r], lp.Bias[r], lp.Center[r] = 1/s, p.Bias[r], 0.1
		}
		p.Scale[5], p.Inverse[5] = 0, 0
		type result struct {
			codes, errs []float32
			loss        [FeedbackRows]float32
			sums        LaneSums
		}
		var all []result
		for _, l := range levels {
			cur = l
			r := result{codes: make([]float32, n*FeedbackRows), errs: make([]float32, (n+1)&^1*FeedbackRows)}
			FeedbackRound(r.codes, r.errs, &r.loss, x, ldt, n, fb, ldf, d, &p, 15)
			LaneMoments(&r.sums, x, ldt, n, d, &lp, 15)
			all = append(all, r)
		}
		spec := all[len(all)-1] // generic
		for i, r := range all[:len(all)-1] {
			if i > 0 && !sameBits(r.codes, all[0].codes) {
				t.Errorf("n=%d: %s and %s differ", n, levels[i].name, levels[0].name)
			}
			different := 0
			for k := range spec.codes {
				if spec.codes[k] != r.codes[k] {
					different++
				}
			}
			if different > len(spec.codes)/50 {
				t.Errorf("n=%d: %s: %d of %d codes differ from the Go form", n, levels[i].name, different, len(spec.codes))
			}
			for k := range FeedbackRows {
				if a, b := float64(r.sums.QQ[k]), float64(spec.sums.QQ[k]); math.Abs(a-b) > 1e-4*(1+math.Abs(b)) {
					t.Errorf("n=%d: %s: Σdq² of row %d is %g, want %g", n, levels[i].name, k, a, b)
				}
				if a, b := float64(r.sums.QW[k]), float64(spec.sums.QW[k]); math.Abs(a-b) > 1e-3*(1+math.Abs(b)) {
					t.Errorf("n=%d: %s: Σdqw of row %d is %g, want %g", n, levels[i].name, k, a, b)
				}
				if a, b := float64(r.loss[k]), float64(spec.loss[k]); math.Abs(a-b) > 0.2*(0.1+math.Abs(b)) {
					t.Errorf("n=%d: %s: loss of row %d is %g, want %g", n, levels[i].name, k, a, b)
				}
			}
		}
	}
}

func noise(n int, seed uint32) []float32 {
	out := make([]float32, n)
	for i := range out {
		seed = seed*1664525 + 1013904223
		out[i] = float32(int32(seed)) / (1 << 31)
	}
	return out
}

func sameBits(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}
