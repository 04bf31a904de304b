package sensitivity

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/quant"
)

// Count says what a cap is on.
type Count string

// What caps count.
const (
	Bytes Count = "bytes" // of all tensors, those that are kept included
	Reads Count = "reads" // bytes that a step reads
	Time  Count = "time"  // picoseconds that reading takes
)

// ProblemOptions turn a map into a knapsack.
type ProblemOptions struct {
	Count Count
	// Reads says how often a step reads a tensor: 0 for a table of which it takes
	// single rows, more than once for a head that runs for every draft. Nil:
	// DefaultReads.
	Reads func(t *Tensor) float64
	// Speed is how many bytes a second a format is read at, 0 for none: an error.
	Speed func(f quant.Format) float64
	// Allow, if not nil, leaves out formats.
	Allow func(f quant.Format) bool
	// Keep lists tensors that stay as they are, by path.
	Keep []string
	// Ties are tensors that must have one format, by path.
	Ties [][]string
	// Denoise fits damages that do not rise with bits.
	Denoise     bool
	Constraints allocate.Constraints
}

// DefaultReads is what a drafter's map says; else 0 for an embedding beside a head of
// its own, and 1 for the rest.
func (m *Map) DefaultReads(t *Tensor) float64 {
	if t.Reads != nil {
		return *t.Reads
	}
	head := slices.ContainsFunc(m.Tensors, func(t Tensor) bool { return t.Class == quant.Head })
	if t.Class == quant.Embedding && head || strings.HasSuffix(t.Path, "embed_tokens_per_layer") {
		return 0
	}
	return 1
}

// Problem is a knapsack with what is needed to read its solution.
type Problem struct {
	allocate.Problem
	Map   *Map
	Kept  []string
	Count Count
	items [][]int // tensors of every item
}

// Problem makes a knapsack of the map, without a cap.
func (m *Map) Problem(o ProblemOptions) (*Problem, error) {
	if err := m.Whole(); err != nil {
		return nil, err
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	if o.Count == "" {
		o.Count = Bytes
	}
	if o.Reads == nil {
		o.Reads = m.DefaultReads
	}
	p := &Problem{Map: m, Count: o.Count, Problem: allocate.Problem{Constraints: o.Constraints}}
	cost := func(t *Tensor, f quant.Format, bytes int64) (int64, error) {
		if o.Count == Bytes {
			return bytes, nil
		}
		read := o.Reads(t) * float64(bytes)
		if o.Count == Reads {
			return int64(math.Round(read)), nil
		}
		v := 0.0
		if o.Speed != nil {
			v = o.Speed(f)
		}
		if !(v > 0) {
			return 0, fmt.Errorf("sensitivity: no speed is known for %s", Name(f))
		}
		return int64(math.Round(read / v * 1e12)), nil
	}
	kept := quant.Format{Codec: "kept"}
	fixed, err := cost(&Tensor{Class: quant.Norm}, kept, m.KeptBytes)
	if err != nil {
		return nil, err
	}
	p.Fixed = fixed
	byPath := map[string]int{}
	for i, t := range m.Tensors {
		byPath[t.Path] = i
	}
	for _, k := range o.Keep {
		if _, ok := byPath[k]; !ok {
			return nil, fmt.Errorf("sensitivity: the map has no tensor %s to keep", k)
		}
	}
	tied := map[int]int{}
	for n, tie := range o.Ties {
		for _, path := range tie {
			i, ok := byPath[path]
			if !ok {
				return nil, fmt.Errorf("sensitivity: the map has no tensor %s to tie", path)
			}
			tied[i] = n
		}
	}
	single := make([]allocate.Item, len(m.Tensors))
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if slices.Contains(o.Keep, t.Path) {
			c, err := cost(t, kept, t.Bytes)
			if err != nil {
				return nil, err
			}
			p.Fixed += c
			p.Kept = append(p.Kept, t.Path)
			continue
		}
		damage := t.damages(o.Denoise)
		it := allocate.Item{Name: t.Path, Block: t.Layer}
		for j, c := range t.Candidates {
			if o.Allow != nil && !o.Allow(c.Format) {
				continue
			}
			n, err := cost(t, c.Format, c.Bytes)
			if err != nil {
				return nil, err
			}
			it.Candidates = append(it.Candidates, allocate.Candidate{Name: Name(c.Format), Bits: bitsOf(c.Format), Cost: n, Damage: damage[j]})
		}
		if len(it.Candidates) == 0 {
			return nil, fmt.Errorf("sensitivity: %s: none of the formats that the runtime loads was measured", t.Path)
		}
		single[i] = it
	}
	for i := range m.Tensors {
		n, isTied := tied[i]
		switch {
		case single[i].Name == "":
		case !isTied:
			p.Items = append(p.Items, single[i])
			p.items = append(p.items, []int{i})
		case byPath[o.Ties[n][0]] == i:
			var group []allocate.Item
			var members []int
			for _, path := range o.Ties[n] {
				k := byPath[path]
				if single[k].Name == "" {
					return nil, fmt.Errorf("sensitivity: %s is tied and kept at once", path)
				}
				group, members = append(group, single[k]), append(members, k)
			}
			it, err := allocate.Tie(strings.Join(o.Ties[n], " + "), group...)
			if err != nil {
				return nil, err
			}
			p.Items = append(p.Items, it)
			p.items = append(p.items, members)
		}
	}
	return p, p.Check()
}

// bitsOf is the width of a format's codes.
func bitsOf(f quant.Format) int {
	if f.Bits == 0 {
		if c, err := quant.NewFloat(f.Codec); err == nil {
			return c.Bits()
		}
	}
	return f.Bits
}

// damages of a tensor's candidates. Denoised, they do not rise with bits among
// candidates that differ in bits alone.
func (t *Tensor) damages(denoise bool) []float64 {
	out := make([]float64, len(t.Candidates))
	for i, c := range t.Candidates {
		out[i] = c.Damage
	}
	if !denoise {
		return out
	}
	done := make([]bool, len(out))
	for i := range t.Candidates {
		if done[i] {
			continue
		}
		var series []int
		for j, c := range t.Candidates {
			a, b := c.Format, t.Candidates[i].Format
			a.Bits, b.Bits = 0, 0
			if a == b {
				series = append(series, j)
				done[j] = true
			}
		}
		slices.SortStableFunc(series, func(a, b int) int { return t.Candidates[a].Bits - t.Candidates[b].Bits })
		y, w := make([]float64, len(series)), make([]float64, len(series))
		for k, j := range series {
			c := t.Candidates[j]
			y[k] = c.Damage
			// A floor keeps candidates without an error from ruling alone.
			w[k] = 1 / (c.StandardError*c.StandardError + 1e-6*c.Damage*c.Damage + 1e-24)
		}
		for k, v := range allocate.Isotonic(y, w) {
			out[series[k]] = v
		}
	}
	return out
}

// Cap is a budget in bits a weight of the whole model, everything counted, in
// bytes.
func (m *Map) Cap(bpw float64) int64 {
	return int64(math.Floor(bpw * float64(m.Source.Parameters) / 8))
}

// BPW is the inverse of Cap.
func (m *Map) BPW(bytes int64) float64 { return float64(bytes) * 8 / float64(m.Source.Parameters) }

// Recipe is the recipe of a solution: the commonest format is the default, other
// tensors are named.
func (p *Problem) Recipe(s *allocate.Solution) *quant.Recipe {
	formats := p.Formats(s)
	count := map[quant.Format]int{}
	var order []quant.Format
	for _, t := range p.Map.Tensors {
		if f, ok := formats[t.Path]; ok {
			if count[f] == 0 {
				order = append(order, f)
			}
			count[f]++
		}
	}
	def := order[0]
	for _, f := range order {
		if count[f] > count[def] {
			def = f
		}
	}
	r := &quant.Recipe{Target: quant.TargetMLX, Default: def, KeepIndivisible: true}
	for _, f := range order {
		if f == def {
			continue
		}
		rule := quant.Rule{Format: f}
		for _, t := range p.Map.Tensors {
			if formats[t.Path] == f {
				rule.Path = append(rule.Path, t.Path)
			}
		}
		r.Rules = append(r.Rules, rule)
	}
	if len(p.Kept) > 0 {
		r.Rules = append(r.Rules, quant.Rule{Keep: true, Path: p.Kept})
	}
	return r
}

// Formats are the chosen formats by path; tensors that are kept have none.
func (p *Problem) Formats(s *allocate.Solution) map[string]quant.Format {
	out := map[string]quant.Format{}
	for i, members := range p.items {
		name := p.Items[i].Candidates[s.Choice[i]].Name
		for _, k := range members {
			for _, c := range p.Map.Tensors[k].Candidates {
				if Name(c.Format) == name {
					out[p.Map.Tensors[k].Path] = c.Format
				}
			}
		}
	}
	return out
}

// Bytes is the size of a solution, whatever its cap counts.
func (p *Problem) Bytes(s *allocate.Solution) int64 {
	formats := p.Formats(s)
	n := p.Map.KeptBytes
	for _, t := range p.Map.Tensors {
		f, ok := formats[t.Path]
		if !ok {
			n += t.Bytes
			continue
		}
		for _, c := range t.Candidates {
			if c.Format == f {
				n += c.Bytes
			}
		}
	}
	return n
}

// Predict is the sum of single damages under a recipe. A format that the map
// lacks is an error.
func (m *Map) Predict(r *quant.Recipe) (float64, error) {
	formats, err := m.formats(r)
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, t := range m.Tensors {
		f, ok := formats[t.Path]
		if !ok {
			continue
		}
		k := slices.IndexFunc(t.Candidates, func(x Measurement) bool { return x.Format == f })
		if k < 0 {
			return 0, fmt.Errorf("sensitivity: %s: %s was not measured (measure it, or predict another recipe)", t.Path, Name(f))
		}
		sum += t.Candidates[k].Damage
	}
	return sum, nil
}

// formats are a recipe's, by path; tensors that it keeps have none.
func (m *Map) formats(r *quant.Recipe) (map[string]quant.Format, error) {
	targets := make([]quant.Target, len(m.Tensors))
	for i, t := range m.Tensors {
		targets[i] = quant.Target{Path: t.Path, Class: t.Class, Layer: t.Layer, Shape: t.Shape, Weight: true}
	}
	choices, err := r.Plan(withType(targets))
	if err != nil {
		return nil, err
	}
	out := map[string]quant.Format{}
	for i, c := range choices {
		if c.Keep {
			continue
		}
		f := c.Format
		if f.Method == "" {
			f.Method = quant.RTN
		}
		out[m.Tensors[i].Path] = f
	}
	return out, nil
}

// withType gives targets a type that all formats take: a map does not depend on
// it.
func withType(ts []quant.Target) []quant.Target {
	for i := range ts {
		ts[i].DType = checkpoint.BF16
	}
	return ts
}
