package allocate

import (
	"fmt"
	"math"
	"slices"
)

// Candidate is a way to store an item.
type Candidate struct {
	Name   string  // of the format, such as "affine 4-bit g64 rtn"
	Bits   int     // nominal width, which constraints look at
	Cost   int64   // what the cap counts
	Damage float64 // ≥ 0
}

// Item is a tensor, or several that have to be stored alike.
type Item struct {
	Name       string
	Block      int // layer, or −1 outside of layers
	Candidates []Candidate
}

// Constraints restrict choices beyond the cap. The zero value restricts
// nothing.
type Constraints struct {
	// Low is the width that counts as low: that of candidates with at most so
	// many bits.
	Low int
	// MinPerBlock is the number of items of every block, of all of them if there
	// are fewer, that are not low.
	MinPerBlock int
	// MaxRun is the number of consecutive blocks that may be low, which is to
	// say that more than half of their items are; 0: any number.
	MaxRun int
}

func (c Constraints) none() bool { return c.MinPerBlock <= 0 && c.MaxRun <= 0 }

// Problem asks for one candidate an item.
type Problem struct {
	Items []Item
	Fixed int64 // cost of everything that is not decided here
	Cap   int64 // on all costs together, Fixed included
	Constraints
}

// Check refuses problems that make no sense: no items, items without
// candidates, damages that are negative or not finite.
func (p *Problem) Check() error {
	if len(p.Items) == 0 {
		return fmt.Errorf("allocate: there is nothing to decide about")
	}
	if p.Fixed < 0 {
		return fmt.Errorf("allocate: the fixed cost is %d", p.Fixed)
	}
	total := float64(p.Fixed)
	for i, it := range p.Items {
		if len(it.Candidates) == 0 {
			return fmt.Errorf("allocate: %s: no candidate is left (allow more formats)", it.Name)
		}
		if len(it.Candidates) > math.MaxInt16 {
			return fmt.Errorf("allocate: %s: %d candidates are too many", it.Name, len(it.Candidates))
		}
		most := int64(0)
		for _, c := range it.Candidates {
			switch {
			case math.IsNaN(c.Damage) || math.IsInf(c.Damage, 0):
				return fmt.Errorf("allocate: %s: %s: damage is %v (measure it again)", it.Name, c.Name, c.Damage)
			case c.Damage < 0:
				return fmt.Errorf("allocate: %s: %s: damage %v is negative (damages are divergences, never below 0)", it.Name, c.Name, c.Damage)
			case c.Cost < 0:
				return fmt.Errorf("allocate: %s: %s: cost %d is negative", it.Name, c.Name, c.Cost)
			}
			most = max(most, c.Cost)
		}
		total += float64(most)
		if total > 1<<60 {
			return fmt.Errorf("allocate: item %d, %s: costs add up to more than %d", i, it.Name, int64(1)<<60)
		}
	}
	return nil
}

// Range is the smallest cap that the problem has a solution for, and the
// smallest one that allows the least damage of all.
func (p *Problem) Range() (low, high int64, err error) {
	if err := p.Check(); err != nil {
		return 0, 0, err
	}
	m := newMachine(p)
	cheapest := m.path(math.Inf(1))
	if cheapest == nil {
		return 0, 0, fmt.Errorf("allocate: no choice of candidates meets the constraints (lower the minimum per block, or allow wider formats)")
	}
	return m.cost(cheapest), m.cost(m.path(0)), nil
}

// Tie merges items that have to be stored alike, such as the parts of a fused
// matrix. Candidates with the same name are added up; those that one of the
// items lacks are dropped. The order is that of the first item.
func Tie(name string, items ...Item) (Item, error) {
	if len(items) == 0 {
		return Item{}, fmt.Errorf("allocate: %s ties nothing", name)
	}
	out := Item{Name: name, Block: items[0].Block}
	for _, c := range items[0].Candidates {
		all := true
		for _, it := range items[1:] {
			i := slices.IndexFunc(it.Candidates, func(d Candidate) bool { return d.Name == c.Name })
			if all = i >= 0; !all {
				break
			}
			c.Cost += it.Candidates[i].Cost
			c.Damage += it.Candidates[i].Damage
		}
		if all {
			out.Candidates = append(out.Candidates, c)
		}
	}
	if len(out.Candidates) == 0 {
		return Item{}, fmt.Errorf("allocate: %s: the tied tensors have no format in common", name)
	}
	return out, nil
}

// Solution is a choice of candidates.
type Solution struct {
	Choice []int // index of the candidate, of every item
	Damage float64
	Cost   int64 // Fixed included

	// LowerBound is proven: no solution within the cap does less damage.
	LowerBound float64
	// Price is the damage that a unit of the cap is worth: the multiplier that
	// the bound is best with. 0 if the cap does not bind.
	Price float64
}

// Gap is how much better, relatively, a solution could be at most.
func (s *Solution) Gap() float64 {
	if s.Damage <= s.LowerBound {
		return 0
	}
	return (s.Damage - s.LowerBound) / s.Damage
}
