package allocate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// tolerance is the relative gap that is not worth closing.
const tolerance = 1e-6

// labels is about how many of them exact looks at in all: a second's work at most.
const labels = 3_000_000

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

// near is the value that a bound must stay below to be worth another pass.
func (s *search) near() float64 { return s.value - float64(5e-4*s.value) }

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
	budget := labels
	fixings, bound := s.large(root, dual, b)
	if len(fixings) > 12 {
		// Where items are many that are large, they help less than a pass over all.
		budget -= labels / 3
		if b = max(b, s.exact(root, dual, labels/3)); b >= s.near() {
			return b, price
		}
	}
	var todo []branch
	for _, f := range fixings {
		m := newMachine(s.p)
		for i, j := range f.choice {
			if j >= 0 {
				for k := range m.open[i] {
					m.open[i][k] = m.open[i][k] && k == j
				}
			}
		}
		if f.bound >= s.enough() {
			bound = min(bound, f.bound)
			continue
		}
		if cheapest := m.path(math.Inf(1)); cheapest == nil || m.cost(cheapest) > s.p.Cap {
			continue
		}
		d, b := s.relaxed(m)
		todo = append(todo, branch{m, d, max(b, f.bound)})
	}
	slices.SortStableFunc(todo, func(a, b branch) int { return cmp.Compare(a.bound, b.bound) })
	for i, t := range todo {
		// A much better solution is worth another pass, which sees less.
		for pass := range 3 {
			if t.bound >= s.enough() || pass > 0 && t.bound >= s.near() {
				break
			}
			before, share := s.value, max(budget/min(len(todo)-i, 4), labels/400)
			t.bound = max(t.bound, s.exact(t.m, t.dual, share))
			budget = max(0, budget-share)
			if s.value > 0.98*before {
				break
			}
		}
		bound = min(bound, t.bound)
	}
	return max(b, bound), price
}

// fixing is a list of a candidate, or −1, for every item, with a bound.
type fixing struct {
	choice []int
	bound  float64
}

// large fixes items with a large part of the range of costs. g is the relaxation
// of the whole and b its bound: what a fixed candidate is worse by there than the
// item's best one, the bound rises by. rest is the least bound of lists that are
// not worth following.
func (s *search) large(m *machine, g *toGo, b float64) (out []fixing, rest float64) {
	most := 100
	if len(m.order) > 300 {
		most = 20 // each is a relaxation of its own
	}
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
	out, rest = []fixing{{none, b}}, math.Inf(1)
	for i, it := range s.p.Items {
		if span[i] == 0 || float64(span[i]) < 0.05*float64(total) {
			continue
		}
		least := math.Inf(1)
		for j, c := range it.Candidates {
			if m.open[i][j] {
				least = min(least, m.weigh(c, g.lambda).first)
			}
		}
		var next []fixing
		for _, f := range out {
			for j, c := range it.Candidates {
				if !m.open[i][j] {
					continue
				}
				choice := slices.Clone(f.choice)
				choice[i] = j
				bound := f.bound
				if m.states == 1 {
					bound += max(0, m.weigh(c, g.lambda).first-least)
				}
				next = append(next, fixing{choice, bound})
			}
		}
		slices.SortStableFunc(next, func(a, b fixing) int { return cmp.Compare(a.bound, b.bound) })
		promising := len(next)
		for promising > 0 && next[promising-1].bound >= s.enough() {
			promising--
		}
		if promising > most {
			continue
		}
		if promising < len(next) {
			rest = min(rest, next[promising].bound)
		}
		out = next[:promising]
	}
	return out, rest
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
	s.offerFilled(m, s.between(m, under, over))
	return best, bound
}

// between takes what it can of over, beginning with the largest steps, into
// under: the break between two corners of the hull.
func (s *search) between(m *machine, under, over []int) []int {
	choice := slices.Clone(under)
	room := s.p.Cap - m.cost(choice)
	step := func(i int) int64 {
		return s.p.Items[i].Candidates[over[i]].Cost - s.p.Items[i].Candidates[under[i]].Cost
	}
	order := slices.Clone(m.order)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(step(b), step(a)) })
	for _, i := range order {
		if d := step(i); d <= room && (m.low[i][under[i]] || !m.low[i][over[i]]) {
			choice[i], room = over[i], room-d
		}
	}
	return choice
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
