package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/sensitivity"
)

// Front is a solution for one of several budgets.
type Front struct {
	Budget     float64 `json:"budget_bits_per_weight"`
	BPW        float64 `json:"bits_per_weight"`
	Bytes      int64   `json:"bytes"`
	Damage     float64 `json:"damage"`
	LowerBound float64 `json:"lower_bound"`
	Gap        float64 `json:"gap"`
	PricePerMB float64 `json:"price_per_mb"`
	// Widths are bits × tensors, such as "3×20 4×107".
	Widths string `json:"widths"`

	solution *allocate.Solution
}

// Sweep solves p for so many budgets between two, in bits a weight, evenly
// spaced. Budgets below the least size, and those above what all candidates can
// use, are left out.
func Sweep(p *sensitivity.Problem, from, to float64, steps int) ([]Front, error) {
	m := p.Map
	low, high, err := p.Range()
	if err != nil {
		return nil, err
	}
	var caps []int64
	var budgets []float64
	for i := range steps {
		b := from + (to-from)*float64(i)/float64(steps-1)
		c := m.Cap(b)
		if c < low {
			continue
		}
		caps, budgets = append(caps, c), append(budgets, b)
		if c >= high {
			break
		}
	}
	if len(caps) == 0 {
		return nil, fmt.Errorf("report: no budget between %g and %g bits is possible: the least is %.4f", from, to, m.BPW(low))
	}
	all, err := allocate.Sweep(p.Problem, caps)
	if err != nil {
		return nil, err
	}
	var out []Front
	for i, s := range all {
		out = append(out, Front{Budget: budgets[i], BPW: m.BPW(s.Cost), Bytes: s.Cost, Damage: s.Damage, LowerBound: s.LowerBound, Gap: s.Gap(),
			PricePerMB: s.Price * 1e6, Widths: widths(p, s), solution: s})
	}
	return out, nil
}

// Compare is what another rule (see sensitivity.Problem.Compare) makes of about so
// many budgets between the least size and the largest. Budgets that it finds
// nothing for are left out, as are those that it makes nothing new of.
func Compare(p *sensitivity.Problem, strategy string, steps int) []Front {
	low, high, err := p.Range()
	if err != nil {
		return nil
	}
	q := *p
	var out []Front
	for i := range steps {
		q.Cap = low + int64(float64(high-low)*float64(i+1)/float64(steps))
		s, err := q.Compare(strategy)
		if err != nil || len(out) > 0 && out[len(out)-1].Bytes >= s.Cost {
			continue
		}
		out = append(out, Front{Budget: p.Map.BPW(q.Cap), BPW: p.Map.BPW(s.Cost), Bytes: s.Cost, Damage: s.Damage, Widths: widths(p, s)})
	}
	return out
}

// widths counts tensors by bits.
func widths(p *sensitivity.Problem, s *allocate.Solution) string {
	count := map[int]int{}
	var bits []int
	for i, j := range s.Choice {
		b := p.Items[i].Candidates[j].Bits
		if count[b] == 0 {
			bits = append(bits, b)
		}
		count[b]++
	}
	slices.Sort(bits)
	var parts []string
	for _, b := range bits {
		parts = append(parts, fmt.Sprintf("%d×%d", b, count[b]))
	}
	return strings.Join(parts, " ")
}

// CSV prints a front for other programs.
func CSV(front []Front) []byte {
	var b bytes.Buffer
	b.WriteString("budget_bpw,bpw,bytes,damage,lower_bound,gap,price_per_mb,widths\n")
	for _, f := range front {
		fmt.Fprintf(&b, "%g,%.6f,%d,%g,%g,%g,%g,%s\n", f.Budget, f.BPW, f.Bytes, f.Damage, f.LowerBound, f.Gap, f.PricePerMB, f.Widths)
	}
	return b.Bytes()
}
