package allocate

import (
	"fmt"
	"math"
	"slices"
)

// tolerance is the relative gap that is not worth closing.
const tolerance = 1e-6

// labels is about how many of them exact looks at: a second's work at most.
const labels = 2_000_000

// Solve finds a choice within the cap and proves how good it is.
//
// A cap below the smallest possible cost is an error that says which it is.
func Solve(p Problem) (*Solution, error) {
	low, _, err := p.Range()
	if err != nil {
		return nil, err
	}
	if p.Cap < low {
		return nil, fmt.Errorf("allocate: the cap is %d, and the least that the candidates allow is %d", p.Cap, low)
	}
	s := &search{p: &p, value: math.Inf(1)}
	bound, price := s.run()
	return &Solution{Choice: s.choice, Damage: s.value, Cost: s.cost, LowerBound: min(bound, s.value), Price: price}, nil
}

// search keeps the best solution found.
type search struct {
	p      *Problem
	choice []int
	value  float64
	cost   int64
}

func (s *search) offer(m *machine, choice []int) {
	cost := m.cost(choice)
	if cost > s.p.Cap {
		return
	}
	// Damages of equal solutions are added in the order of items, so that they
	// are equal.
	if v := m.damage(choice); v < s.value || v == s.value && cost < s.cost {
		s.choice, s.value, s.cost = slices.Clone(choice), v, cost
	}
}

// enough is the value that a bound must stay below to be worth following.
func (s *search) enough() float64 { return s.value - float64(tolerance*s.value) }

// branch is the problem with the candidates of large items fixed.
type branch struct {
	m     *machine
	dual  *toGo
	bound float64
}

// run returns the lower bound and the price at the root.
func (s *search) run() (bound, price float64) {
	root := newMachine(s.p)
	dual, b := s.relaxed(root)
	price = dual.lambda
	if b >= s.enough() {
		return b, price
	}
	var todo []branch
	for _, fixed := range s.large() {
		m := newMachine(s.p)
		for i, j := range fixed {
			if j >= 0 {
				for k := range m.open[i] {
					m.open[i][k] = m.open[i][k] && k == j
				}
				if !slices.Contains(m.open[i], true) {
					m = nil
					break
				}
			}
		}
		if m == nil || m.path(math.Inf(1)) == nil || m.cost(m.path(math.Inf(1))) > s.p.Cap {
			continue
		}
		d, b := s.relaxed(m)
		todo = append(todo, branch{m, d, b})
	}
	slices.SortStableFunc(todo, func(a, b branch) int {
		switch {
		case a.bound < b.bound:
			return -1
		case a.bound > b.bound:
			return 1
		}
		return 0
	})
	bound = math.Inf(1)
	for i, t := range todo {
		if t.bound < s.enough() {
			t.bound = max(t.bound, s.exact(t.m, t.dual, labels/min(len(todo)-i, 6)))
		}
		bound = min(bound, t.bound)
	}
	return max(b, bound), price
}

// large fixes items with a large part of the range of costs: lists of a
// candidate, or −1, for every item.
func (s *search) large() [][]int {
	const most = 64
	var total int64
	span := make([]int64, len(s.p.Items))
	for i, it := range s.p.Items {
		lo, hi := int64(math.MaxInt64), int64(0)
		for _, c := range it.Candidates {
			lo, hi = min(lo, c.Cost), max(hi, c.Cost)
		}
		span[i] = hi - lo
		total += span[i]
	}
	none := make([]int, len(s.p.Items))
	for i := range none {
		none[i] = -1
	}
	out := [][]int{none}
	for i, it := range s.p.Items {
		if span[i] == 0 || float64(span[i]) < 0.05*float64(total) || len(out)*len(it.Candidates) > most {
			continue
		}
		var next [][]int
		for _, f := range out {
			for j := range it.Candidates {
				g := slices.Clone(f)
				g[i] = j
				next = append(next, g)
			}
		}
		out = next
	}
	return out
}

// relaxed finds the best multiplier: a walk along the lower hull of (cost,
// damage) from both ends to where it crosses the cap. It offers what it meets
// within the cap, and returns the bound.
func (s *search) relaxed(m *machine) (*toGo, float64) {
	free := m.relax(0)
	over := m.trace(free)
	if m.cost(over) <= s.p.Cap {
		s.offer(m, over)
		return free, m.damage(over)
	}
	under := m.path(math.Inf(1))
	s.offerFilled(m, under)
	best, bound := free, free.rest[0][0].first
	for range 200 {
		co, cu := m.cost(over), m.cost(under)
		do, du := m.damage(over), m.damage(under)
		if co <= cu {
			break
		}
		lambda := (du - do) / float64(co-cu)
		g := m.relax(lambda)
		if b := g.rest[0][0].first - float64(lambda*float64(s.p.Cap-s.p.Fixed)); b > bound {
			best, bound = g, b
		}
		next := m.trace(g)
		c := m.cost(next)
		if c == co || c == cu {
			break
		}
		if c <= s.p.Cap {
			under = next
		} else {
			over = next
		}
	}
	s.offerFilled(m, under)
	return best, bound
}

// offerFilled offers a choice after spending what it leaves of the cap, always
// on the upgrade that takes away the most damage.
func (s *search) offerFilled(m *machine, choice []int) {
	choice = slices.Clone(choice)
	room := s.p.Cap - m.cost(choice)
	for room >= 0 {
		item, cand, gain := -1, 0, 0.0
		for i, j := range choice {
			now := s.p.Items[i].Candidates[j]
			for k, c := range s.p.Items[i].Candidates {
				if !m.open[i][k] || c.Cost-now.Cost > room || m.low[i][k] && !m.low[i][j] {
					continue
				}
				if g := now.Damage - c.Damage; g > gain {
					item, cand, gain = i, k, g
				}
			}
		}
		if item < 0 {
			break
		}
		cs := s.p.Items[item].Candidates
		room -= cs[cand].Cost - cs[choice[item]].Cost
		choice[item] = cand
	}
	s.offer(m, choice)
}
