package allocate

import (
	"cmp"
	"fmt"
	"slices"
)

// Uniform gives every item the same format: of those within the cap the one that
// does the least damage. Items that lack the format are an error of that
// format, not of the problem.
func Uniform(p Problem) (*Solution, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	var best *Solution
	for _, f := range p.Items[0].Candidates {
		s := &Solution{Choice: make([]int, len(p.Items)), Cost: p.Fixed}
		ok := true
		for i, it := range p.Items {
			j := slices.IndexFunc(it.Candidates, func(c Candidate) bool { return c.Name == f.Name })
			if ok = j >= 0; !ok {
				break
			}
			s.Choice[i] = j
			s.Cost += it.Candidates[j].Cost
			s.Damage += it.Candidates[j].Damage
		}
		if ok && s.Cost <= p.Cap && (best == nil || cmp.Or(cmp.Compare(s.Damage, best.Damage), cmp.Compare(s.Cost, best.Cost)) < 0) {
			best = s
		}
	}
	if best == nil {
		return nil, fmt.Errorf("allocate: no format that all items have is within the cap of %d", p.Cap)
	}
	return best, nil
}
