package speculate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// beta draws from a beta distribution with whole parameters: the a-th smallest
// of a+b−1 uniform numbers.
func beta(rng *rand.Rand, a, b int) float64 {
	// A ratio of sums of exponentials.
	x, y := 0.0, 0.0
	for range a {
		x += rng.ExpFloat64()
	}
	for range b {
		y += rng.ExpFloat64()
	}
	return x / (x + y)
}

// moment is E[p^k] of the beta distribution.
func moment(a, b, k int) float64 {
	m := 1.0
	for j := range k {
		m *= float64(a+j) / float64(a+b+j)
	}
	return m
}

// stream simulates a prompt: every draft is right with probability p while all
// before it are. The number of rounds and their length vary.
func stream(rng *rand.Rand, p float64, rounds, gamma int, seconds float64) Record {
	r := Record{Prompt: "synthetic"}
	for range rounds {
		n := 0
		for n < gamma && rng.Float64() < p {
			n++
		}
		r.add(Round{gamma, n})
	}
	r.Generated = r.TargetCalls + r.Accepted
	r.WallMs = 1000 * seconds * float64(rounds) * (1 + 0.05*rng.NormFloat64())
	return r
}

const (
	synthRuns    = 1000
	synthPrompts = 40
	synthA       = 6 // prompts differ: acceptance is beta distributed
	synthB       = 4
	synthGamma   = 4
)

// shape is the truth of the synthetic prompts: rounds of 10 to 39, all gamma
// long, independent of acceptance. scale lowers every prompt's p.
func trueAcceptance(scale float64) float64 {
	sum := 0.0
	for k := 1; k <= synthGamma; k++ {
		sum += math.Pow(scale, float64(k)) * moment(synthA, synthB, k)
	}
	return sum / synthGamma
}

// TestIntervalsCover: 95 % intervals hold the truth in 93 to 97 % of 1,000
// synthetic A/Bs with known acceptance.
func TestIntervalsCover(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const scale = 0.93
	truth := trueAcceptance(1)
	tau := 1 + synthGamma*truth
	drop := truth - trueAcceptance(scale)
	hits := map[string]int{}
	for run := range synthRuns {
		var a, b []Record
		for range synthPrompts {
			p, rounds := beta(rng, synthA, synthB), 10+rng.IntN(30)
			a = append(a, stream(rng, p, rounds, synthGamma, 1))
			b = append(b, stream(rng, p*scale, rounds, synthGamma, 0.9))
		}
		boot := Bootstrap{Resamples: 1000, Seed: uint64(run)}
		acc := Pairs{column(a, accepted), column(a, drafted)}
		for name, c := range map[string]struct {
			truth float64
			i     func() (Interval, error)
		}{
			"acceptance": {truth, func() (Interval, error) { return boot.Ratio(acc) }},
			"tau":        {tau, func() (Interval, error) { return boot.Ratio(Pairs{column(a, emitted), column(a, calls)}) }},
			"drop": {drop, func() (Interval, error) {
				return boot.Difference(Pairs{column(b, accepted), column(b, drafted)}, acc)
			}},
			"speed": {1 / 0.9, func() (Interval, error) {
				return boot.Quotient(Pairs{column(b, WallSeconds), column(b, calls)}, Pairs{column(a, WallSeconds), column(a, calls)})
			}},
		} {
			i, err := c.i()
			if err != nil {
				t.Fatal(err)
			}
			if i.Low <= c.truth && c.truth <= i.High {
				hits[name]++
			}
			if i.Low > i.Value || i.Value > i.High {
				t.Fatalf("%s: %v is no interval around its estimate", name, i)
			}
		}
	}
	for name, n := range hits {
		share := 100 * float64(n) / synthRuns
		t.Logf("%s: %.1f %% of intervals hold the truth", name, share)
		if share < 93 || share > 97 {
			t.Errorf("%s: %.1f %% of 95 %% intervals hold the truth, want 93 to 97", name, share)
		}
	}
	if len(hits) != 4 {
		t.Errorf("%d statistics seen, want 4", len(hits))
	}
}

// TestFalsePasses: where the acceptance truly drops by 3 points, a gate that
// tolerates 3 lets at most 5 % pass, however fast the round is; and where B is
// as good as A and faster, most pass.
func TestFalsePasses(t *testing.T) {
	lo, hi := 0.5, 1.0
	for range 60 {
		if mid := (lo + hi) / 2; trueAcceptance(1)-trueAcceptance(mid) > 0.03 {
			lo = mid
		} else {
			hi = mid
		}
	}
	for _, c := range []struct {
		name     string
		scale    float64
		low, top float64
	}{
		{"3 points", lo, 0, 5},
		{"6 points", 2*lo - 1, 0, 0.2},
		{"no drop", 1, 60, 100},
	} {
		rng := rand.New(rand.NewPCG(3, 4))
		passes := 0
		for run := range synthRuns {
			var a, b []Record
			for range synthPrompts {
				p, rounds := beta(rng, synthA, synthB), 30+rng.IntN(40)
				a = append(a, stream(rng, p, rounds, synthGamma, 1))
				b = append(b, stream(rng, p*c.scale, rounds, synthGamma, 0.7))
			}
			v, err := Gate{MaxDrop: 3, Bootstrap: Bootstrap{Resamples: 1000, Seed: uint64(run)}}.Judge(a, b)
			if err != nil {
				t.Fatal(err)
			}
			if v.Pass {
				passes++
			}
			if v.Pass != (len(v.Reasons) == 0) {
				t.Fatalf("pass %v with reasons %q", v.Pass, v.Reasons)
			}
		}
		share := 100 * float64(passes) / synthRuns
		t.Logf("%s: %.1f %% pass", c.name, share)
		if share < c.low || share > c.top {
			t.Errorf("%s: %.1f %% pass, want %g to %g", c.name, share, c.low, c.top)
		}
	}
}

// TestFasterIsAsked: acceptance alone is not enough.
func TestFasterIsAsked(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var a, b []Record
	for range 64 {
		p := beta(rng, synthA, synthB)
		a = append(a, stream(rng, p, 60, synthGamma, 1))
		slower := a[len(a)-1]
		slower.WallMs *= 1.1
		b = append(b, slower)
	}
	g := Gate{MaxDrop: 3}
	v, err := g.Judge(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if v.Pass || len(v.Reasons) != 1 || v.Drop.Value != 0 {
		t.Errorf("same acceptance, slower round: %+v", v)
	}
	if v, err = g.Judge(b, a); err != nil || !v.Pass {
		t.Errorf("same acceptance, faster round: %+v, %v", v, err)
	}
	again, _ := g.Judge(b, a)
	if again.Faster != v.Faster {
		t.Errorf("the same records judged twice: %v and %v", v.Faster, again.Faster)
	}
}

// TestFewPrompts: no interval is made up.
func TestFewPrompts(t *testing.T) {
	p := Pairs{make([]float64, 3), []float64{1, 1, 1}}
	if _, err := (Bootstrap{}).Ratio(p); err == nil {
		t.Error("an interval over 3 prompts")
	}
	p = Pairs{make([]float64, 10), make([]float64, 10)}
	if _, err := (Bootstrap{}).Ratio(p); err == nil {
		t.Error("an interval over nothing")
	}
}
