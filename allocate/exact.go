package allocate

import (
	"cmp"
	"math"
	"slices"
)

// merging is the relative gap that merged labels may open.
const merging = 6e-4

// label is a choice for the first items, standing for others that cost as much
// or more and do hardly less damage: none of them less than low.
type label struct {
	cost   int64
	damage float64
	low    float64
	bound  float64 // by low
	parent int32
	state  int16
	choice int16
}

// exact is dynamic programming over positions. A label stays if no other one of
// its state costs and damages less, and if what it can lead to at best, by the
// multiplier of g, is better than the solution known. Where there are too many
// labels for the budget, those that differ by next to nothing are merged; if that
// does not do, those with the worst bounds go. The result is the least bound of
// whatever was left out: no solution of m is below it but those offered.
func (s *search) exact(m *machine, g *toGo, budget int) float64 {
	n := len(m.order)
	width, most := max(budget/n, 200), max(budget/4, 40_000)
	least := m.relax(math.Inf(1)).rest // costs to go
	capacity := s.p.Cap - s.p.Fixed
	// What labels of a position may differ by to be merged.
	nothing := max(0, merging*(g.rest[0][0].first-float64(g.lambda*float64(capacity)))/float64(n))
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
				x := label{cost: l.cost + c.Cost, damage: l.damage + c.Damage, low: l.low + c.Damage, parent: int32(parent), state: int16(t), choice: int16(j)}
				if float64(x.cost)+least[at+1][t].first > float64(capacity) {
					continue
				}
				x.bound = x.low + g.rest[at+1][t].first + float64(g.lambda*float64(x.cost-capacity))
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
		// What positions before this one have not used goes to those that follow.
		budget -= len(next)
		if len(next) > 0 {
			width = max(max(budget/(n-at), 200)*len(stages[at])/len(next), 50)
		}
		if at+1 < n {
			// The next position must not make more than fit into memory.
			width = min(width, most/len(s.p.Items[m.order[at+1]].Candidates))
		}
		kept := merge(next, 0)
		for part := 1.0 / 16; len(kept) > width && part <= 1; part *= 4 {
			kept = merge(kept, part*nothing)
		}
		if len(kept) > width {
			kept = s.cut(kept, width, nothing, &left)
		}
		stages[at+1] = slices.Clone(kept)
		if len(kept) > 0 && at%16 == 15 {
			s.dive(m, g, stages, at+1)
		}
	}
	for end, l := range stages[n] {
		s.offer(m, s.back(m, stages, n, end))
		left = min(left, l.low)
	}
	return left
}

// cut leaves so many labels. Those with the worst bounds go, if they have little
// to promise; else what differs least is merged, whatever that is.
func (s *search) cut(kept []label, width int, nothing float64, left *float64) []label {
	byBound := slices.Clone(kept)
	slices.SortFunc(byBound, func(a, b label) int { return cmp.Compare(a.bound, b.bound) })
	worst := byBound[width].bound
	for part := 4.0; nothing > 0 && worst < s.value-float64(merging*s.value) && len(kept) > width; part *= 4 {
		kept = merge(kept, part*nothing)
	}
	if len(kept) <= width {
		return kept
	}
	if worst < s.value-float64(merging*s.value) {
		byBound = append(byBound[:0], kept...)
		slices.SortFunc(byBound, func(a, b label) int { return cmp.Compare(a.bound, b.bound) })
	}
	*left = min(*left, byBound[width].bound)
	kept = append(kept[:0], byBound[:width]...)
	slices.SortFunc(kept, func(a, b label) int { return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.cost, b.cost)) })
	return kept
}

// merge lets each label stand for those after it, which cost as much or more,
// that do at most so much less damage. It works in place; labels are sorted by
// state, cost and damage.
func merge(sorted []label, less float64) []label {
	kept := sorted[:0]
	for _, x := range sorted {
		if k := len(kept); k > 0 && kept[k-1].state == x.state && kept[k-1].damage-less <= x.damage {
			kept[k-1].low = min(kept[k-1].low, x.low)
			kept[k-1].bound = min(kept[k-1].bound, x.bound)
			continue
		}
		kept = append(kept, x)
	}
	return kept
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
