package sensitivity

import (
	"cmp"
	"math"
	"slices"

	"github.com/smelt-go/smelt/quant"
)

// ClassDamage sums up the tensors of a class in one format.
type ClassDamage struct {
	Class   quant.Class
	Format  string
	Tensors int
	Bytes   int64
	Damage  float64 // summed
	Largest float64
	At      string // the tensor of the largest
}

// Summary sums up by class and format, in the order of classes and then of size.
func (m *Map) Summary() []ClassDamage {
	var out []ClassDamage
	for _, t := range m.Tensors {
		for _, c := range t.Candidates {
			n := Name(c.Format)
			i := slices.IndexFunc(out, func(r ClassDamage) bool { return r.Class == t.Class && r.Format == n })
			if i < 0 {
				i = len(out)
				out = append(out, ClassDamage{Class: t.Class, Format: n, Largest: -1})
			}
			r := &out[i]
			r.Tensors++
			r.Bytes += c.Bytes
			r.Damage += c.Damage
			if c.Damage > r.Largest {
				r.Largest, r.At = c.Damage, t.Path
			}
		}
	}
	slices.SortStableFunc(out, func(a, b ClassDamage) int {
		return cmp.Or(cmp.Compare(slices.Index(quant.Classes, a.Class), slices.Index(quant.Classes, b.Class)), cmp.Compare(a.Bytes, b.Bytes))
	})
	return out
}

// Correlation is Spearman's rank correlation of measured damage with an estimate
// that costs less, over all candidates of all tensors that have both.
type Correlation struct {
	Of  string
	Rho float64
	N   int
}

// Correlations compares measured damage with estimates; nil if nothing was
// measured.
func (m *Map) Correlations() []Correlation {
	if m.Estimator != KL {
		return nil
	}
	estimates := []struct {
		of string
		f  func(t *Tensor, c *Measurement) (float64, bool)
	}{
		{"the weights' relative error", func(_ *Tensor, c *Measurement) (float64, bool) { return c.WeightError, true }},
		{"the outputs' relative error", func(_ *Tensor, c *Measurement) (float64, bool) {
			if c.OutputError == nil {
				return 0, false
			}
			return *c.OutputError, true
		}},
		{"noise × the weights' error", func(t *Tensor, c *Measurement) (float64, bool) {
			if t.Probe == nil || t.Probe.WeightError == 0 {
				return 0, false
			}
			return t.Probe.Damage * c.WeightError / t.Probe.WeightError, true
		}},
		{"noise × the outputs' error", func(t *Tensor, c *Measurement) (float64, bool) {
			if t.Probe == nil || c.OutputError == nil {
				return 0, false
			}
			return t.estimate(c, t.Probe.Damage), true
		}},
	}
	var out []Correlation
	for _, e := range estimates {
		var x, y []float64
		for i := range m.Tensors {
			t := &m.Tensors[i]
			for j := range t.Candidates {
				if v, ok := e.f(t, &t.Candidates[j]); ok {
					x, y = append(x, v), append(y, t.Candidates[j].Damage)
				}
			}
		}
		if len(x) > 2 {
			out = append(out, Correlation{e.of, spearman(x, y), len(x)})
		}
	}
	return out
}

// spearman is the correlation of ranks, equal values sharing their mean rank.
func spearman(x, y []float64) float64 {
	a, b := ranks(x), ranks(y)
	var ma, mb float64
	for i := range a {
		ma += a[i]
		mb += b[i]
	}
	n := float64(len(a))
	ma, mb = ma/n, mb/n
	var saa, sbb, sab float64
	for i := range a {
		saa += float64((a[i] - ma) * (a[i] - ma))
		sbb += float64((b[i] - mb) * (b[i] - mb))
		sab += float64((a[i] - ma) * (b[i] - mb))
	}
	if saa == 0 || sbb == 0 {
		return 0
	}
	return sab / math.Sqrt(float64(saa*sbb))
}

func ranks(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(x[a], x[b]) })
	out := make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			out[order[k]] = float64(i+j-1) / 2
		}
		i = j
	}
	return out
}
