package allocate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// brute is the least damage of all choices within the cap, by looking at each.
func brute(p Problem) float64 {
	best := math.Inf(1)
	choice := make([]int, len(p.Items))
	var try func(i int, cost int64)
	try = func(i int, cost int64) {
		if i < len(p.Items) {
			for j, c := range p.Items[i].Candidates {
				choice[i] = j
				try(i+1, cost+c.Cost)
			}
			return
		}
		if cost > p.Cap || !meets(p, choice) {
			return
		}
		var d float64
		for i, j := range choice {
			d += p.Items[i].Candidates[j].Damage
		}
		best = min(best, d)
	}
	try(0, p.Fixed)
	return best
}

// meets spells the constraints out.
func meets(p Problem, choice []int) bool {
	size, low := map[int]int{}, map[int]int{}
	var blocks []int
	for i, it := range p.Items {
		if it.Block < 0 {
			continue
		}
		if size[it.Block] == 0 {
			blocks = append(blocks, it.Block)
		}
		size[it.Block]++
		if it.Candidates[choice[i]].Bits <= p.Low {
			low[it.Block]++
		}
	}
	slices.Sort(blocks)
	run := 0
	for _, b := range blocks {
		if size[b]-low[b] < min(p.MinPerBlock, size[b]) {
			return false
		}
		if 2*low[b] > size[b] {
			run++
		} else {
			run = 0
		}
		if p.MaxRun > 0 && run > p.MaxRun {
			return false
		}
	}
	return true
}

// problems draws small ones, some with one large item, some with damages that
// follow no rule.
func problems(t *rapid.T) Problem {
	p := Problem{Fixed: int64(rapid.IntRange(0, 50).Draw(t, "fixed"))}
	n := rapid.IntRange(1, 7).Draw(t, "items")
	most := 0
	for i := range n {
		it := Item{Name: fmt.Sprint("t", i), Block: rapid.IntRange(-1, 2).Draw(t, "block")}
		scale := rapid.SampledFrom([]int{1, 1, 1, 7, 60}).Draw(t, "scale")
		largest := 0
		for range rapid.IntRange(1, 5).Draw(t, "candidates") {
			c := Candidate{Bits: rapid.IntRange(2, 8).Draw(t, "bits")}
			c.Cost = int64(scale * rapid.IntRange(0, 12).Draw(t, "cost"))
			c.Damage = float64(rapid.IntRange(0, 40).Draw(t, "damage")) / 8
			c.Name = fmt.Sprint(c.Bits)
			largest = max(largest, int(c.Cost))
			it.Candidates = append(it.Candidates, c)
		}
		most += largest
		p.Items = append(p.Items, it)
	}
	p.Cap = p.Fixed + int64(rapid.IntRange(0, most).Draw(t, "cap"))
	if rapid.Bool().Draw(t, "constrained") {
		p.Constraints = Constraints{Low: rapid.IntRange(2, 5).Draw(t, "low"), MinPerBlock: rapid.IntRange(0, 2).Draw(t, "minimum"), MaxRun: rapid.IntRange(0, 2).Draw(t, "run")}
	}
	return p
}

// Solutions are optimal, within the cap, and the bound is one.
func TestSolveBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		want := brute(p)
		s, err := Solve(p)
		if math.IsInf(want, 1) {
			if err == nil {
				t.Fatalf("no solution exists, got %+v", s)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var cost, damage = p.Fixed, 0.0
		for i, j := range s.Choice {
			cost += p.Items[i].Candidates[j].Cost
			damage += p.Items[i].Candidates[j].Damage
		}
		if cost != s.Cost || damage != s.Damage {
			t.Fatalf("reported cost %d damage %v, of the choice %d and %v", s.Cost, s.Damage, cost, damage)
		}
		if cost > p.Cap || !meets(p, s.Choice) {
			t.Fatalf("cost %d of %d, choice %v", cost, p.Cap, s.Choice)
		}
		if s.Damage > want+1e-5*want {
			t.Fatalf("damage %v, the least is %v", s.Damage, want)
		}
		if s.LowerBound > want+1e-9*want {
			t.Fatalf("lower bound %v, the least is %v", s.LowerBound, want)
		}
		if s.Gap() > 1e-5 {
			t.Fatalf("gap %v", s.Gap())
		}
	})
}

// The smallest cap is solved, the next smaller is an error that says so.
func TestRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		low, high, err := p.Range()
		if err != nil {
			return
		}
		p.Cap = low
		if s, err := Solve(p); err != nil || s.Cost != low {
			t.Fatalf("at %d: %+v, %v", low, s, err)
		}
		p.Cap = low - 1
		if _, err := Solve(p); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the least that the candidates allow is %d", low)) {
			t.Fatalf("below the least cap: %v", err)
		}
		p.Cap = high
		a, err := Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		p.Cap = high + 1000
		b, err := Solve(p)
		if err != nil || a.Damage != b.Damage || b.Price != 0 {
			t.Fatalf("more than the most: %+v %+v %v", a, b, err)
		}
	})
}

// instance draws a large problem of a kind.
func instance(kind string, n, m int, seed uint64) Problem {
	rng := rand.New(rand.NewPCG(seed, 1))
	var p Problem
	var low, high int64
	for i := range n {
		size := int64(1+rng.IntN(40)) * 16384
		s := math.Exp(rng.NormFloat64()*1.2 - 6)
		if kind == "embedding" && i == 0 {
			size = 170_000_000
		}
		it := Item{Name: fmt.Sprint(i), Block: i / 7}
		lo, hi := int64(math.MaxInt64), int64(0)
		for j := range m {
			bits := 2 + 6*float64(j)/float64(max(1, m-1))
			c := Candidate{Bits: int(bits), Name: fmt.Sprint(j), Cost: int64(bits*float64(size)/8) / 64 * 64}
			switch kind {
			case "smooth", "embedding", "constrained":
				c.Damage = s * math.Exp2(2*(4-bits))
			case "noisy":
				c.Damage = s * math.Exp2(2*(4-bits)) * math.Exp(rng.NormFloat64()*.5)
			case "linear":
				c.Damage = 1 - bits/8.5
			case "correlated":
				c.Damage = float64(size)*(8-bits)/1e6 + 1e-3*rng.Float64()
			case "random":
				c.Cost, c.Damage = rng.Int64N(1_000_000), rng.Float64()
			case "equal":
				c.Cost, c.Damage = int64(bits*1e6), math.Exp2(2*(4-bits))
			}
			lo, hi = min(lo, c.Cost), max(hi, c.Cost)
			it.Candidates = append(it.Candidates, c)
		}
		low, high = low+lo, high+hi
		p.Items = append(p.Items, it)
	}
	if kind == "constrained" {
		p.Constraints = Constraints{Low: 3, MinPerBlock: 2, MaxRun: 3}
	}
	if l, h, err := p.Range(); err == nil {
		low, high = l, h
	}
	p.Cap = low + (high-low)*int64(20+rng.IntN(50))/100
	return p
}

// The certificate is tight on all kinds of instances.
func TestSolveLarge(t *testing.T) {
	for _, kind := range []string{"smooth", "noisy", "embedding", "linear", "correlated", "random", "equal", "constrained"} {
		for _, size := range [][2]int{{2, 30}, {10, 30}, {50, 30}, {127, 10}, {300, 30}, {1000, 30}} {
			if testing.Short() && size[0] > 300 {
				continue
			}
			p := instance(kind, size[0], size[1], 3)
			start := time.Now()
			s, err := Solve(p)
			if err != nil {
				t.Fatalf("%s %v: %v", kind, size, err)
			}
			took := time.Since(start)
			t.Logf("%-12s %4d × %d: damage %.6g, gap %.1e, price %.3g, slack %d, %v", kind, size[0], size[1], s.Damage, s.Gap(), s.Price, p.Cap-s.Cost, took)
			if s.Gap() > 1e-3 || s.Cost > p.Cap || !meets(p, s.Choice) {
				t.Errorf("%s %v: gap %.2e, cost %d of %d", kind, size, s.Gap(), s.Cost, p.Cap)
			}
		}
	}
}

func BenchmarkSolve(b *testing.B) {
	for _, kind := range []string{"smooth", "noisy", "embedding", "constrained"} {
		p := instance(kind, 1000, 30, 5)
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				if _, err := Solve(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestCheck(t *testing.T) {
	one := func(c Candidate) Problem {
		return Problem{Items: []Item{{Name: "q_proj", Candidates: []Candidate{c}}}, Cap: 100}
	}
	for _, tt := range []struct {
		p    Problem
		want string
	}{
		{Problem{}, "allocate: there is nothing to decide about"},
		{Problem{Items: []Item{{Name: "q_proj"}}}, "allocate: q_proj: no candidate is left"},
		{one(Candidate{Name: "a", Damage: math.NaN()}), "allocate: q_proj: a: damage is NaN"},
		{one(Candidate{Name: "a", Damage: -1e-9}), "allocate: q_proj: a: damage -1e-09 is negative"},
		{one(Candidate{Name: "a", Cost: -1}), "allocate: q_proj: a: cost -1 is negative"},
		{one(Candidate{Name: "a", Cost: 101}), "allocate: the cap is 100, and the least that the candidates allow is 101"},
		{Problem{Items: []Item{{Name: "x", Candidates: []Candidate{{Bits: 2}}}}, Constraints: Constraints{Low: 3, MinPerBlock: 1}}, "allocate: no choice of candidates meets the constraints"},
	} {
		if _, err := Solve(tt.p); !strings.HasPrefix(fmt.Sprint(err), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}

func TestTie(t *testing.T) {
	a := Item{Name: "a", Block: 3, Candidates: []Candidate{{"x", 3, 10, 1}, {"y", 4, 20, .5}, {"z", 8, 40, 0}}}
	b := Item{Name: "b", Block: 3, Candidates: []Candidate{{"y", 4, 2, .25}, {"x", 3, 1, 2}}}
	got, err := Tie("ab", a, b)
	if err != nil {
		t.Fatal(err)
	}
	want := Item{Name: "ab", Block: 3, Candidates: []Candidate{{"x", 3, 11, 3}, {"y", 4, 22, .75}}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := Tie("ab", a, Item{Name: "c", Candidates: []Candidate{{"w", 1, 1, 1}}}); err == nil {
		t.Error("tied without a format in common")
	}
}

// Every solution of a sweep does no more damage than those of smaller caps, and
// corners of the hull are solutions.
func TestSweep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := problems(t)
		low, high, err := p.Range()
		if err != nil {
			return
		}
		var caps []int64
		for i := range int64(8) {
			caps = append(caps, low-1+(high-low)*i/6)
		}
		all, err := Sweep(p, caps)
		if err != nil {
			t.Fatal(err)
		}
		last := math.Inf(1)
		for i, s := range all {
			if (s == nil) != (caps[i] < low) {
				t.Fatalf("cap %d of at least %d: %+v", caps[i], low, s)
			}
			if s == nil {
				continue
			}
			if s.Damage > last || s.Cost > caps[i] {
				t.Fatalf("cap %d: damage %v after %v, cost %d", caps[i], s.Damage, last, s.Cost)
			}
			last = s.Damage
		}
		hull, err := Hull(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hull {
			p.Cap = h.Cost
			if want := brute(p); math.Abs(h.Damage-want) > 1e-9*(1+want) {
				t.Fatalf("hull at cost %d has damage %v, the least is %v", h.Cost, h.Damage, want)
			}
		}
	})
}
