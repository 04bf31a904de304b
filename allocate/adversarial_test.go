package allocate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// adversary makes instances that are hard for some method: greedy steps,
// relaxation, or dynamic programming.
type adversary struct {
	name string
	item func(rng *rand.Rand, i, m int) Item
	set  func(rng *rand.Rand, p *Problem)
}

var adversaries = []adversary{
	// Every item the same: ties without end.
	{"equal", func(_ *rand.Rand, i, m int) Item {
		return item(i, m, func(j int, bits float64) (int64, float64) { return int64(bits * 1e6), math.Exp2(2 * (4 - bits)) })
	}, nil},
	// A few distinct figures only.
	{"ties", func(rng *rand.Rand, i, m int) Item {
		return item(i, m, func(int, float64) (int64, float64) { return 1000 * (1 + rng.Int64N(4)), float64(rng.IntN(4)) })
	}, nil},
	// Costs all the same, whatever the damage; and the other way round.
	{"equal costs", func(rng *rand.Rand, i, m int) Item {
		return item(i, m, func(int, float64) (int64, float64) { return 7, rng.Float64() })
	}, nil},
	{"equal damages", func(rng *rand.Rand, i, m int) Item {
		return item(i, m, func(int, float64) (int64, float64) { return 1 + rng.Int64N(1000), 0.25 })
	}, nil},
	// One item has nearly all the bytes and nearly all the damage.
	{"giant", func(rng *rand.Rand, i, m int) Item {
		size := float64(1+rng.IntN(9)) * 1e4
		scale := math.Exp(rng.NormFloat64())
		if i == 0 {
			size, scale = 3e8, 1e4
		}
		return item(i, m, func(_ int, bits float64) (int64, float64) {
			return int64(size * bits / 8), scale * math.Exp2(2*(4-bits))
		})
	}, nil},
	// Two giants, so that fixing one is not enough.
	{"two giants", func(rng *rand.Rand, i, m int) Item {
		size := float64(1+rng.IntN(9)) * 1e4
		if i < 2 {
			size = 1.7e8 + float64(i)*1.3e7
		}
		return item(i, m, func(_ int, bits float64) (int64, float64) {
			return int64(size * bits / 8), math.Sqrt(size) * math.Exp2(2*(4-bits))
		})
	}, nil},
	// Damages above their convex hull everywhere but at the ends: the
	// relaxation sees two candidates, the optimum is among the others.
	{"concave", func(rng *rand.Rand, i, m int) Item {
		size := float64(1+rng.IntN(40)) * 16384
		return item(i, m, func(j int, bits float64) (int64, float64) {
			x := (bits - 2) / 6
			return int64(size * bits / 8), size / 1e5 * (1 - x*x*x*x)
		})
	}, nil},
	// Damage proportional to cost, nearly: every choice is about as good, and
	// what counts is to fill the cap.
	{"subset sum", func(rng *rand.Rand, i, m int) Item {
		return item(i, m, func(int, float64) (int64, float64) {
			c := 1 + rng.Int64N(10_000_000)
			return c, 1.1 - float64(c)/1e7
		})
	}, nil},
	// Costs have a common divisor that the cap lacks.
	{"even", func(rng *rand.Rand, i, m int) Item {
		return item(i, m, func(int, float64) (int64, float64) {
			c := 2 * (1 + rng.Int64N(3))
			return c * 1_000_000, float64(8-c) + rng.Float64()
		})
	}, func(_ *rand.Rand, p *Problem) { p.Cap |= 1 }},
	// Damages over many orders of magnitude, zeros among them.
	{"scales", func(rng *rand.Rand, i, m int) Item {
		scale := math.Pow(10, -12*rng.Float64())
		return item(i, m, func(int, float64) (int64, float64) {
			return 1 + rng.Int64N(1<<40), scale * max(0, rng.Float64()-.1)
		})
	}, nil},
	// Measured noise: no order between width and damage.
	{"noise", func(rng *rand.Rand, i, m int) Item {
		return item(i, m, func(int, float64) (int64, float64) { return rng.Int64N(1_000_000), rng.ExpFloat64() })
	}, nil},
	// Fused tensors: three of a kind, tied.
	{"tied", func(rng *rand.Rand, i, m int) Item {
		parts := make([]Item, 3)
		for k := range parts {
			size, scale := float64(1+rng.IntN(40))*16384, math.Exp(rng.NormFloat64())
			parts[k] = item(i, m, func(_ int, bits float64) (int64, float64) {
				return int64(size * bits / 8), scale * math.Exp2(2*(4-bits)) * math.Exp(.3*rng.NormFloat64())
			})
		}
		out, err := Tie(fmt.Sprint(i), parts...)
		if err != nil {
			panic(err)
		}
		return out
	}, nil},
	{"minimum of a block", wide, func(_ *rand.Rand, p *Problem) { p.Constraints = Constraints{Low: 4, MinPerBlock: 3} }},
	{"runs", wide, func(_ *rand.Rand, p *Problem) { p.Constraints = Constraints{Low: 5, MaxRun: 1} }},
	{"both", wide, func(rng *rand.Rand, p *Problem) {
		p.Constraints = Constraints{Low: 3 + rng.IntN(3), MinPerBlock: 1 + rng.IntN(3), MaxRun: 1 + rng.IntN(3)}
	}},
}

func wide(rng *rand.Rand, i, m int) Item {
	size, scale := float64(1+rng.IntN(40))*16384, math.Exp(1.5*rng.NormFloat64())
	return item(i, m, func(_ int, bits float64) (int64, float64) {
		return int64(size * bits / 8), scale * math.Exp2(2*(4-bits)) * math.Exp(.2*rng.NormFloat64())
	})
}

// item has m candidates from 2 to 8 bits.
func item(i, m int, f func(j int, bits float64) (int64, float64)) Item {
	it := Item{Name: fmt.Sprint(i), Block: i/7 - 1} // the first ones are in no block
	for j := range m {
		bits := 2 + 6*float64(j)/float64(max(1, m-1))
		c := Candidate{Name: fmt.Sprint(j), Bits: int(bits)}
		c.Cost, c.Damage = f(j, bits)
		it.Candidates = append(it.Candidates, c)
	}
	return it
}

// problem is an instance with a cap at a part of its range, from 0 to 1.
func (a adversary) problem(t interface{ Fatal(...any) }, n, m int, part float64, seed uint64) Problem {
	rng := rand.New(rand.NewPCG(seed, 7))
	p := Problem{Fixed: rng.Int64N(1_000_000)}
	for i := range n {
		p.Items = append(p.Items, a.item(rng, i, m))
	}
	p.Cap = 0
	if a.set != nil {
		a.set(rng, &p)
	}
	odd := p.Cap & 1
	low, high, err := p.Range()
	if err != nil {
		t.Fatal(err)
	}
	p.Cap = low + int64(part*float64(high-low))
	if odd == 1 && p.Cap < high {
		p.Cap |= 1
	}
	return p
}

// held is an error unless s is a solution with a certificate within a
// thousandth.
func held(p *Problem, s *Solution) error {
	cost, damage := p.Fixed, 0.0
	for i, j := range s.Choice {
		cost += p.Items[i].Candidates[j].Cost
		damage += p.Items[i].Candidates[j].Damage
	}
	switch {
	case cost != s.Cost || damage != s.Damage:
		return fmt.Errorf("cost %d and damage %v are reported, the choice has %d and %v", s.Cost, s.Damage, cost, damage)
	case cost > p.Cap:
		return fmt.Errorf("cost %d of %d", cost, p.Cap)
	case !meets(*p, s.Choice):
		return fmt.Errorf("the constraints are not met")
	case s.Gap() > 1e-3:
		return fmt.Errorf("gap %.2e: %v, bound %v", s.Gap(), s.Damage, s.LowerBound)
	}
	return nil
}

// Certificates are tight on instances up to 1,000 tensors with 30 candidates.
func TestAdversaries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SampledFrom(adversaries).Draw(t, "kind")
		sizes := []int{1, 2, 3, 5, 10, 20, 50}
		if !testing.Short() {
			sizes = append(sizes, 127, 300, 1000)
		}
		n, m := rapid.SampledFrom(sizes).Draw(t, "items"), rapid.IntRange(1, 30).Draw(t, "candidates")
		part := rapid.SampledFrom([]float64{0, 1e-6, .01, .1, .25, .4, .5, .6, .75, .9, .99, 1}).Draw(t, "part")
		seed := rapid.Uint64Range(0, 1000).Draw(t, "seed")
		if a.set != nil {
			m = max(m, 2) // a width is not enough for constraints
		}
		p := a.problem(t, n, m, part, seed)
		start := time.Now()
		s, err := Solve(p)
		took := time.Since(start)
		if err == nil {
			err = held(&p, s)
		}
		if err != nil {
			t.Fatalf("%s, %d × %d at %v, seed %d: %v", a.name, n, m, part, seed, err)
		}
		t.Logf("%s, %d × %d at %v, seed %d: gap %.1e, %v", a.name, n, m, part, seed, s.Gap(), took)
	})
}

// On small instances of every kind the solution is the optimum.
func TestAdversariesBruteForce(t *testing.T) {
	for _, a := range adversaries {
		for seed := range uint64(3) {
			for _, part := range []float64{0, .1, .3, .5, .8, 1} {
				p := a.problem(t, 6, 5, part, seed)
				s, err := Solve(p)
				if err == nil {
					err = held(&p, s)
				}
				if err != nil {
					t.Fatalf("%s at %v, seed %d: %v", a.name, part, seed, err)
				}
				want := brute(p)
				if s.Damage > want+1e-5*want || s.LowerBound > want+1e-9*want {
					t.Errorf("%s at %v, seed %d: damage %v, bound %v, the least is %v", a.name, part, seed, s.Damage, s.LowerBound, want)
				}
			}
		}
	}
}

// The largest instances of every kind, for time.
func BenchmarkAdversaries(b *testing.B) {
	for _, a := range adversaries {
		b.Run(a.name, func(b *testing.B) {
			var gap float64
			var slowest time.Duration
			for b.Loop() {
				for _, part := range []float64{.1, .5, .9} {
					p := a.problem(b, 1000, 30, part, 11)
					start := time.Now()
					s, err := Solve(p)
					if err != nil {
						b.Fatal(err)
					}
					gap, slowest = max(gap, s.Gap()), max(slowest, time.Since(start))
				}
			}
			b.ReportMetric(slowest.Seconds()*1e3, "ms/slowest")
			b.ReportMetric(gap, "gap/largest")
		})
	}
}

// The order of items changes nothing but which of equal choices is taken.
func TestOrder(t *testing.T) {
	for _, a := range adversaries[:12] { // without blocks
		p := a.problem(t, 40, 6, .4, 3)
		s, err := Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(p.Items)
		r, err := Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(s.Damage-r.Damage) > 2e-6*s.Damage {
			t.Errorf("%s: %v, and %v in the other order", a.name, s.Damage, r.Damage)
		}
	}
}
