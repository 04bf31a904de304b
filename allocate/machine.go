package allocate

import (
	"math"
	"slices"
)

// machine walks items in an order in which blocks are contiguous. Its state
// within a block is the number of low items so far and the number of low blocks
// in a row before; without constraints there is one state.
type machine struct {
	p      *Problem
	order  []int    // positions to items
	last   []bool   // the item at a position is the last of its block
	size   []int    // items of the block of a position, 0 outside of blocks
	open   [][]bool // candidates that are not dominated
	low    [][]bool
	states int
	runs   int // states a count of low items has
	maxRun int // 0: any
}

func newMachine(p *Problem) *machine {
	m := &machine{p: p, order: make([]int, len(p.Items)), states: 1, runs: 1}
	for i := range m.order {
		m.order[i] = i
	}
	n := len(p.Items)
	m.last, m.size = make([]bool, n), make([]int, n)
	if p.none() {
		// Large steps first: what is left then fills gaps finely.
		span := make([]int64, n)
		for i, it := range p.Items {
			lo, hi := int64(math.MaxInt64), int64(0)
			for _, c := range it.Candidates {
				lo, hi = min(lo, c.Cost), max(hi, c.Cost)
			}
			span[i] = hi - lo
		}
		slices.SortStableFunc(m.order, func(a, b int) int {
			switch {
			case span[a] > span[b]:
				return -1
			case span[a] < span[b]:
				return 1
			}
			return 0
		})
	} else {
		slices.SortStableFunc(m.order, func(a, b int) int { return max(-1, p.Items[a].Block) - max(-1, p.Items[b].Block) })
		most := 0
		for at := 0; at < n; {
			b := p.Items[m.order[at]].Block
			end := at
			for end < n && p.Items[m.order[end]].Block == b {
				end++
			}
			if b >= 0 {
				for i := at; i < end; i++ {
					m.size[i] = end - at
				}
				m.last[end-1] = true
				most = max(most, end-at)
			}
			at = end
		}
		if m.maxRun = max(0, p.MaxRun); m.maxRun >= n {
			m.maxRun = 0
		}
		m.runs = m.maxRun + 1
		m.states = (most + 1) * m.runs
	}
	m.open, m.low = make([][]bool, n), make([][]bool, n)
	for i, it := range p.Items {
		m.open[i], m.low[i] = make([]bool, len(it.Candidates)), make([]bool, len(it.Candidates))
		for j, c := range it.Candidates {
			m.low[i][j] = !p.none() && it.Block >= 0 && c.Bits <= p.Low
		}
		for j := range it.Candidates {
			m.open[i][j] = !m.dominated(i, j)
		}
	}
	return m
}

// dominated reports whether another candidate of item i is at least as good as
// j in everything, and better in something or listed before.
func (m *machine) dominated(i, j int) bool {
	cands := m.p.Items[i].Candidates
	c := cands[j]
	for k, d := range cands {
		if k == j || m.low[i][k] && !m.low[i][j] || d.Cost > c.Cost || d.Damage > c.Damage {
			continue
		}
		if d.Cost < c.Cost || d.Damage < c.Damage || m.low[i][k] != m.low[i][j] || k < j {
			return true
		}
	}
	return false
}

// step is the state after the item at a position, −1 if a constraint forbids it.
func (m *machine) step(at, state int, low bool) int {
	if m.size[at] == 0 {
		return state
	}
	count, run := state/m.runs, state%m.runs
	if low {
		count++
	}
	if !m.last[at] {
		return count*m.runs + run
	}
	if m.size[at]-count < min(m.p.MinPerBlock, m.size[at]) {
		return -1
	}
	if m.maxRun == 0 {
		return 0
	}
	if 2*count <= m.size[at] {
		return 0
	}
	if run+1 > m.maxRun {
		return -1
	}
	return run + 1
}

// toGo is the least Σ damage + λ·cost from every position and state on, and of
// what is equally good the least cost; +Inf where nothing leads on. With
// λ = +Inf it is the least cost, and of equal costs the least damage.
type toGo struct {
	lambda float64
	rest   [][]weight
	best   [][2]int // candidate, of every position: the best not low one, the best low one; −1 if none
}

// weight is compared by first, then by second.
type weight struct{ first, second float64 }

var never = weight{math.Inf(1), math.Inf(1)}

func (w weight) less(o weight) bool {
	return w.first < o.first || w.first == o.first && w.second < o.second
}

func (w weight) plus(o weight) weight { return weight{w.first + o.first, w.second + o.second} }

func (m *machine) weigh(c Candidate, lambda float64) weight {
	if math.IsInf(lambda, 1) {
		return weight{float64(c.Cost), c.Damage}
	}
	return weight{c.Damage + float64(lambda*float64(c.Cost)), float64(c.Cost)}
}

func (m *machine) relax(lambda float64) *toGo {
	n := len(m.order)
	g := &toGo{lambda: lambda, rest: make([][]weight, n+1), best: make([][2]int, n)}
	flat := make([]weight, (n+1)*m.states)
	for at := range g.rest {
		g.rest[at] = flat[at*m.states : (at+1)*m.states]
	}
	for at := n - 1; at >= 0; at-- {
		i := m.order[at]
		value := [2]weight{never, never}
		g.best[at] = [2]int{-1, -1}
		for j, c := range m.p.Items[i].Candidates {
			if !m.open[i][j] {
				continue
			}
			k := 0
			if m.low[i][j] {
				k = 1
			}
			if w := m.weigh(c, lambda); g.best[at][k] < 0 || w.less(value[k]) {
				value[k], g.best[at][k] = w, j
			}
		}
		for s := range g.rest[at] {
			g.rest[at][s] = never
			for k := range 2 {
				if g.best[at][k] < 0 {
					continue
				}
				if t := m.step(at, s, k == 1); t >= 0 && t < m.states {
					if w := value[k].plus(g.rest[at+1][t]); w.less(g.rest[at][s]) {
						g.rest[at][s] = w
					}
				}
			}
		}
	}
	return g
}

// path is the choice that Σ damage + λ·cost is least with; nil if there is none.
func (m *machine) path(lambda float64) []int { return m.trace(m.relax(lambda)) }

func (m *machine) trace(g *toGo) []int {
	if math.IsInf(g.rest[0][0].first, 1) {
		return nil
	}
	choice := make([]int, len(m.order))
	m.follow(g, choice, 0, 0)
	return choice
}

// follow fills in the best choices from a position and state on.
func (m *machine) follow(g *toGo, choice []int, at, state int) bool {
	for ; at < len(m.order); at++ {
		i := m.order[at]
		pick, to, value := -1, 0, never
		for k := range 2 {
			j := g.best[at][k]
			if j < 0 {
				continue
			}
			t := m.step(at, state, k == 1)
			if t < 0 || t >= m.states {
				continue
			}
			if w := m.weigh(m.p.Items[i].Candidates[j], g.lambda).plus(g.rest[at+1][t]); w.less(value) {
				pick, to, value = j, t, w
			}
		}
		if pick < 0 {
			return false
		}
		choice[i], state = pick, to
	}
	return true
}

// cost of a choice, Fixed included.
func (m *machine) cost(choice []int) int64 {
	c := m.p.Fixed
	for i, j := range choice {
		c += m.p.Items[i].Candidates[j].Cost
	}
	return c
}

func (m *machine) damage(choice []int) float64 {
	var d float64
	for i, j := range choice {
		d += m.p.Items[i].Candidates[j].Damage
	}
	return d
}
