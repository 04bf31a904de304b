package allocate

import (
	"cmp"
	"math"
	"slices"
)

// label is a choice for the first items.
type label struct {
	cost   int64
	damage float64
	bound  float64
	parent int32
	state  int16
	choice int16
}

// exact is dynamic programming over positions. A label stays if no other one of
// its state costs and damages less, and if what it can lead to at best, by the
// multiplier of g, is better than the solution known. Where there are too many
// labels for the budget, those with the worst bounds go. The result is the least bound of
// whatever was left out: no solution of m is below it but those offered.
func (s *search) exact(m *machine, g *toGo, budget int) float64 {
	n := len(m.order)
	share := max(budget/n, 200) // of every position
	width := share
	least := m.relax(math.Inf(1)).rest // costs to go
	capacity := s.p.Cap - s.p.Fixed
	left := math.Inf(1)
	stages := make([][]label, n+1)
	stages[0] = []label{{parent: -1}}
	var next []label
	for at, i := range m.order {
		next = next[:0]
		enough := s.enough()
		for parent, l := range stages[at] {
			for j, c := range s.p.Items[i].Candidates {
				if !m.open[i][j] {
					continue
				}
				t := m.step(at, int(l.state), m.low[i][j])
				if t < 0 {
					continue
				}
				x := label{cost: l.cost + c.Cost, damage: l.damage + c.Damage, parent: int32(parent), state: int16(t), choice: int16(j)}
				if float64(x.cost)+least[at+1][t].first > float64(capacity) {
					continue
				}
				x.bound = x.damage + g.rest[at+1][t].first + float64(g.lambda*float64(x.cost-capacity))
				if x.bound >= enough {
					left = min(left, x.bound)
					continue
				}
				next = append(next, x)
			}
		}
		slices.SortFunc(next, func(a, b label) int {
			return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.cost, b.cost), cmp.Compare(a.damage, b.damage))
		})
		if len(next) > 0 {
			width = max(share*len(stages[at])/len(next), 50)
		}
		kept := next[:0]
		for _, x := range next {
			if k := len(kept); k > 0 && kept[k-1].state == x.state && kept[k-1].damage <= x.damage {
				continue
			}
			kept = append(kept, x)
		}
		if len(kept) > width {
			slices.SortStableFunc(kept, func(a, b label) int { return cmp.Compare(a.bound, b.bound) })
			left = min(left, kept[width].bound)
			kept = kept[:width]
			slices.SortFunc(kept, func(a, b label) int { return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.cost, b.cost)) })
		}
		stages[at+1] = slices.Clone(kept)
		if len(kept) > 0 && at%16 == 15 {
			s.dive(m, g, stages, at+1)
		}
	}
	for end := range stages[n] {
		s.offer(m, s.back(m, stages, n, end))
	}
	return left
}

// dive completes the most promising label by the relaxation's choices, which
// may tighten what is worth following.
func (s *search) dive(m *machine, g *toGo, stages [][]label, at int) {
	best := 0
	for i, l := range stages[at] {
		if l.bound < stages[at][best].bound {
			best = i
		}
	}
	choice := s.back(m, stages, at, best)
	state := int(stages[at][best].state)
	if m.follow(g, choice, at, state) && m.cost(choice) <= s.p.Cap {
		s.offerFilled(m, choice)
	}
}

// back reads the choices that lead to a label; later items have 0.
func (s *search) back(m *machine, stages [][]label, at, index int) []int {
	choice := make([]int, len(m.order))
	for ; at > 0; at-- {
		l := stages[at][index]
		choice[m.order[at-1]] = int(l.choice)
		index = int(l.parent)
	}
	return choice
}
