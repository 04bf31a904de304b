package sensitivity

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/quant"
)

// Classes sums a solution up by class and format.
func (p *Problem) Classes(s *allocate.Solution) []ClassDamage {
	formats := p.Formats(s)
	var out []ClassDamage
	for i := range p.Map.Tensors {
		t := &p.Map.Tensors[i]
		name, bytes, damage := "kept", t.Bytes, 0.0
		if f, ok := formats[t.Path]; ok {
			k := slices.IndexFunc(t.Candidates, func(c Measurement) bool { return c.Format == f })
			name, bytes, damage = Name(f), t.Candidates[k].Bytes, t.Candidates[k].Damage
		}
		k := slices.IndexFunc(out, func(r ClassDamage) bool { return r.Class == t.Class && r.Format == name })
		if k < 0 {
			k = len(out)
			out = append(out, ClassDamage{Class: t.Class, Format: name, Largest: -1})
		}
		r := &out[k]
		r.Tensors++
		r.Bytes += bytes
		r.Damage += damage
		if damage > r.Largest {
			r.Largest, r.At = damage, t.Path
		}
	}
	slices.SortStableFunc(out, func(a, b ClassDamage) int {
		return cmp.Or(cmp.Compare(slices.Index(quant.Classes, a.Class), slices.Index(quant.Classes, b.Class)), cmp.Compare(a.Format, b.Format))
	})
	return out
}

// Difference says what a solution with a larger budget does otherwise.
func (p *Problem) Difference(a, b *allocate.Solution) string {
	var moves []string
	for i := range p.Items {
		if x, y := p.Items[i].Candidates[a.Choice[i]], p.Items[i].Candidates[b.Choice[i]]; x.Name != y.Name {
			moves = append(moves, fmt.Sprintf("%s from %s to %s", p.Items[i].Name, x.Name, y.Name))
		}
	}
	if len(moves) == 0 {
		return "buys nothing"
	}
	text := fmt.Sprintf("%+.6f", b.Damage-a.Damage)
	const show = 3
	if len(moves) <= show {
		return text + ": " + strings.Join(moves, ", ")
	}
	return fmt.Sprintf("%s: %s, and %d more", text, strings.Join(moves[:show], ", "), len(moves)-show)
}

// Compare solves the problem as another tool would, within the same cap:
//
//   - uniform: one format for all, the best that fits
//   - static: exact, but with mlx-optiq's prior in place of what was measured
//   - greedy: mlx-optiq's allocator, with the largest target that fits
//   - threshold: mlx-lm's rule between two neighbouring widths, with the largest
//     target that fits
//
// Damages are those measured. There is no bound.
func (p *Problem) Compare(strategy string) (*allocate.Solution, error) {
	switch strategy {
	case "uniform":
		return allocate.Uniform(p.Problem)
	case "static":
		q := p.Problem
		q.Items = slices.Clone(p.Items)
		for i, it := range q.Items {
			it.Candidates = slices.Clone(it.Candidates)
			prior := allocate.StaticPrior(it.Name+".", p.Map.Source.Layers)
			for j := range it.Candidates {
				// Halving the step quarters the squared error.
				it.Candidates[j].Damage = prior * math.Exp2(-2*float64(it.Candidates[j].Bits))
			}
			q.Items[i] = it
		}
		s, err := allocate.Solve(q)
		if err != nil {
			return nil, err
		}
		return p.with(s.Choice), nil
	case "greedy":
		return p.largest(p.greedy)
	case "threshold":
		return p.largest(p.threshold)
	}
	return nil, fmt.Errorf("sensitivity: strategy %q is unknown (want exact, greedy, threshold, static or uniform)", strategy)
}

func (p *Problem) with(choice []int) *allocate.Solution {
	s := &allocate.Solution{Choice: choice, Cost: p.Fixed}
	for i, j := range choice {
		s.Cost += p.Items[i].Candidates[j].Cost
		s.Damage += p.Items[i].Candidates[j].Damage
	}
	return s
}

// largest finds the target whose result is the largest within the cap.
func (p *Problem) largest(of func(target float64) ([]int, error)) (*allocate.Solution, error) {
	var best *allocate.Solution
	for k := 0; k <= 240; k++ {
		choice, err := of(2 + 14*float64(k)/240)
		if err != nil {
			return nil, err
		}
		if s := p.with(choice); s.Cost <= p.Cap && (best == nil || s.Cost > best.Cost) {
			best = s
		}
	}
	if best == nil {
		return nil, fmt.Errorf("sensitivity: this strategy finds nothing within the cap of %d", p.Cap)
	}
	return best, nil
}

// column picks an item's candidate of so many bits, with the group size that the
// first item's first candidate has, or the nearest there is.
func (p *Problem) column(i, bits int) int {
	best := -1
	for j, c := range p.Items[i].Candidates {
		if c.Bits == bits && (best < 0 || c.Cost < p.Items[i].Candidates[best].Cost) {
			best = j
		}
	}
	return best
}

func (p *Problem) widths() ([]int, error) {
	var out []int
	for _, c := range p.Items[0].Candidates {
		if !slices.Contains(out, c.Bits) {
			out = append(out, c.Bits)
		}
	}
	slices.Sort(out)
	for i, it := range p.Items {
		for _, b := range out {
			if p.column(i, b) < 0 {
				return nil, fmt.Errorf("sensitivity: %s has no candidate of %d bits, as this strategy wants", it.Name, b)
			}
		}
	}
	return out, nil
}

func (p *Problem) greedy(target float64) ([]int, error) {
	bits, err := p.widths()
	if err != nil {
		return nil, err
	}
	layers := make([]allocate.Layer, len(p.Items))
	for i, it := range p.Items {
		l := allocate.Layer{Name: it.Name, Sensitivities: map[int]float64{}}
		for _, k := range p.items[i] {
			l.Parameters += p.Map.Tensors[k].Parameters
		}
		for _, b := range bits {
			l.Sensitivities[b] = it.Candidates[p.column(i, b)].Damage
		}
		layers[i] = l
	}
	r, err := allocate.Greedy(layers, allocate.GreedyOptions{Target: target, Bits: bits, ProtectEnds: true, Protect: 1, FloorPerBlock: 2, MaxLowRun: 3})
	if err != nil {
		return nil, err
	}
	choice := make([]int, len(p.Items))
	for i, b := range r.Bits {
		choice[i] = p.column(i, b)
	}
	return choice, nil
}

// threshold chooses between the two widths that the target lies between.
func (p *Problem) threshold(target float64) ([]int, error) {
	bits, err := p.widths()
	if err != nil {
		return nil, err
	}
	k := 0
	for k < len(bits)-2 && float64(bits[k+1])+0.5 <= target {
		k++
	}
	if len(bits) < 2 {
		return nil, fmt.Errorf("sensitivity: a threshold wants two widths")
	}
	low, high := bits[k], bits[k+1]
	items := make([]allocate.Binary, len(p.Items))
	for i, it := range p.Items {
		a, b := it.Candidates[p.column(i, low)], it.Candidates[p.column(i, high)]
		var n int64
		for _, k := range p.items[i] {
			n += p.Map.Tensors[k].Parameters
		}
		items[i] = allocate.Binary{Name: it.Name, Sensitivity: (a.Damage - b.Damage) / (float64(n) / 1e6), Low: a.Cost, High: b.Cost}
	}
	up, _, err := allocate.Threshold(items, p.Fixed, p.Map.Source.Parameters, target)
	if err != nil {
		return nil, err
	}
	choice := make([]int, len(p.Items))
	for i := range choice {
		choice[i] = p.column(i, map[bool]int{false: low, true: high}[up[i]])
	}
	return choice, nil
}
