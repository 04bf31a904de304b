package allocate

import "math"

// Sweep solves the problem for several caps. Caps without a solution give nil.
// A larger cap never gives more damage: a solution for a smaller one holds for
// it, too.
func Sweep(p Problem, caps []int64) ([]*Solution, error) {
	low, _, err := p.Range()
	if err != nil {
		return nil, err
	}
	out := make([]*Solution, len(caps))
	for i, c := range caps {
		if c < low {
			continue
		}
		p.Cap = c
		if out[i], err = Solve(p); err != nil {
			return nil, err
		}
		for j := range i {
			if o := out[j]; o != nil && o.Cost <= c && o.Damage < out[i].Damage {
				same := *o
				same.LowerBound, same.Price = min(out[i].LowerBound, o.Damage), out[i].Price
				out[i] = &same
			}
		}
	}
	return out, nil
}

// Hull returns the corners of the lower convex hull of all solutions in order of
// rising cost: those that are best for some price of the cost, as a walk of the
// multiplier finds them. The cap plays no part.
func Hull(p Problem) ([]*Solution, error) {
	if _, _, err := p.Range(); err != nil {
		return nil, err
	}
	m := newMachine(&p)
	point := func(lambda float64) *Solution {
		c := m.path(lambda)
		d := m.damage(c)
		return &Solution{Choice: c, Damage: d, Cost: m.cost(c), LowerBound: d, Price: lambda}
	}
	first, last := point(math.Inf(1)), point(0)
	first.Price = 0
	out := []*Solution{first}
	var between func(a, b *Solution, depth int)
	between = func(a, b *Solution, depth int) {
		if a.Cost >= b.Cost || depth == 0 {
			return
		}
		x := point((a.Damage - b.Damage) / float64(b.Cost-a.Cost))
		if x.Cost <= a.Cost || x.Cost >= b.Cost {
			return
		}
		between(a, x, depth-1)
		out = append(out, x)
		between(x, b, depth-1)
	}
	between(first, last, 60)
	if last.Cost > first.Cost {
		out = append(out, last)
	}
	return out, nil
}
