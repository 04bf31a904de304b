package sensitivity

import (
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/quant"
)

func measured(t *testing.T) *Map {
	m := openModel(t, "tiny-gemma3-target")
	o := options(m)
	o.Formats = []quant.Format{affine(3, 32), affine(4, 32), affine(6, 32), affine(8, 32)}
	o.Probe = false
	out, err := Measure(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A recipe holds what the solution says, in size and in prediction.
func TestRecipe(t *testing.T) {
	m := measured(t)
	p, err := m.Problem(ProblemOptions{})
	if err != nil {
		t.Fatal(err)
	}
	low, high, err := p.Range()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []int64{0, 30, 60, 100} {
		p.Cap = low + (high-low)*part/100
		s, err := allocate.Solve(p.Problem)
		if err != nil {
			t.Fatal(err)
		}
		if p.Bytes(s) != s.Cost || s.Cost > p.Cap {
			t.Errorf("%d bytes at a cost of %d and a cap of %d", p.Bytes(s), s.Cost, p.Cap)
		}
		r := p.Recipe(s)
		again, err := quant.ParseRecipe(r.Marshal())
		if err != nil {
			t.Fatal(err)
		}
		predicted, err := m.Predict(again)
		if err != nil || predicted != s.Damage {
			t.Errorf("the recipe predicts %v, the solution %v: %v", predicted, s.Damage, err)
		}
	}
	if m.Cap(m.BPW(12345)) != 12345 {
		t.Error("bits a weight and bytes disagree")
	}
}

func TestProblemOptions(t *testing.T) {
	m := measured(t)
	q, k, v := "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.v_proj"
	p, err := m.Problem(ProblemOptions{Keep: []string{"model.layers.1.mlp.up_proj"}, Ties: [][]string{{q, k, v}}, Denoise: true})
	if err != nil {
		t.Fatal(err)
	}
	low, high, err := p.Range()
	if err != nil {
		t.Fatal(err)
	}
	p.Cap = (low + high) / 2
	s, err := allocate.Solve(p.Problem)
	if err != nil {
		t.Fatal(err)
	}
	f := p.Formats(s)
	if f[q] != f[k] || f[q] != f[v] {
		t.Errorf("tied tensors are %v, %v, %v", f[q], f[k], f[v])
	}
	if _, ok := f["model.layers.1.mlp.up_proj"]; ok {
		t.Error("a kept tensor has a format")
	}
	if p.Bytes(s) != s.Cost {
		t.Errorf("%d bytes at a cost of %d", p.Bytes(s), s.Cost)
	}
	// A table that is read a row at a time costs nothing, a head read seven times
	// costs sevenfold.
	reads := func(t *Tensor) float64 {
		switch t.Class {
		case quant.Embedding:
			return 0
		case quant.Down:
			return 7
		}
		return 1
	}
	p, err = m.Problem(ProblemOptions{Count: Reads, Reads: reads})
	if err != nil {
		t.Fatal(err)
	}
	for i, it := range p.Items {
		c := m.Tensors[i].Candidates[0]
		if want := int64(reads(&m.Tensors[i])) * c.Bytes; it.Candidates[0].Cost != want {
			t.Errorf("%s costs %d, want %d", it.Name, it.Candidates[0].Cost, want)
		}
	}
	p, err = m.Problem(ProblemOptions{Count: Time, Speed: func(f quant.Format) float64 { return 1e9 * float64(f.Bits+1) }})
	if err != nil {
		t.Fatal(err)
	}
	if c := m.Tensors[1].Candidates[0]; p.Items[1].Candidates[0].Cost != c.Bytes*1000/4 {
		t.Errorf("%d picoseconds for %d bytes at 4 GB/s", p.Items[1].Candidates[0].Cost, c.Bytes)
	}
	for want, o := range map[string]ProblemOptions{
		"no tensor x to keep": {Keep: []string{"x"}}, "no tensor y to tie": {Ties: [][]string{{q, "y"}}},
		"none of the formats": {Allow: func(quant.Format) bool { return false }},
		"no speed is known":   {Count: Time}, "tied and kept": {Keep: []string{k}, Ties: [][]string{{q, k}}},
	} {
		if _, err := m.Problem(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Other tools' choices are within the cap, and none is better.
func TestCompare(t *testing.T) {
	m := measured(t)
	p, err := m.Problem(ProblemOptions{Denoise: true})
	if err != nil {
		t.Fatal(err)
	}
	low, high, err := p.Range()
	if err != nil {
		t.Fatal(err)
	}
	p.Cap = low + (high-low)*2/3
	best, err := allocate.Solve(p.Problem)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[float64]bool{}
	for _, name := range []string{"uniform", "static", "greedy", "threshold"} {
		s, err := p.Compare(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.Cost > p.Cap || s.Damage < best.LowerBound*(1-1e-9) {
			t.Errorf("%s: cost %d of %d, damage %g, bound %g", name, s.Cost, p.Cap, s.Damage, best.LowerBound)
		}
		seen[s.Damage] = true
	}
	if len(seen) < 3 {
		t.Errorf("strategies do the same: %v", seen)
	}
}

func TestDamages(t *testing.T) {
	x := Tensor{Candidates: []Measurement{
		{Format: affine(4, 64), Damage: 2, StandardError: .1}, {Format: affine(3, 64), Damage: 1, StandardError: .1},
		{Format: affine(3, 32), Damage: .5, StandardError: .1}, {Format: affine(8, 64), Damage: .1, StandardError: .01},
	}}
	if got := x.damages(true); got[0] != got[1] || got[0] < 1.4 || got[0] > 1.6 || got[2] != .5 || got[3] != .1 {
		t.Errorf("%v", got)
	}
	if got := x.damages(false); !slices.Equal(got, []float64{2, 1, .5, .1}) {
		t.Errorf("%v", got)
	}
}
