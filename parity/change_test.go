package parity

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity/reference"
)

// TestChanges: every form of difference that has a name is called by it, and
// noise by none.
func TestChanges(t *testing.T) {
	const D, T = 16, 10
	cfg := &reference.Config{Layers: 2, Hidden: 64, HeadDim: D, FullHeadDim: D, Heads: 1, KVHeads: 1, Window: 4, FinalSoftcap: 30,
		Kinds:    []reference.LayerKind{reference.SlidingAttention, reference.FullAttention},
		FullRope: reference.Rope{Type: "proportional", Theta: 1e6, Factor: 1, Partial: 0.5}, SlidingRope: reference.Rope{Type: "default", Theta: 1e4}}
	s := &Subject{Config: cfg, Contract: &chunking.Contract{ResidualScale: 1, Model: chunking.ModelInfo{Layers: 2, Kinds: []models.Kind{models.Sliding, models.Full}}}}
	rng := rand.New(rand.NewPCG(3, 4))
	base := Rows{}
	for p := range T {
		base[p] = make([]float32, D)
		for i := range base[p] {
			base[p][i] = float32(rng.NormFloat64()) + 0.3
		}
	}
	own, alien := cfg.FullRope.Frequencies(D), cfg.SlidingRope.Frequencies(D)
	turned := func(angle func(p, i int) float64) Rows {
		out := Rows{}
		for p, x := range base {
			y := make([]float32, D)
			for i := range D / 2 {
				c, sn := math.Cos(angle(p, i)), math.Sin(angle(p, i))
				a, b := float64(x[i]), float64(x[i+D/2])
				y[i], y[i+D/2] = float32(a*c-b*sn), float32(b*c+a*sn)
			}
			out[p] = y
		}
		return out
	}
	each := func(rows Rows, f func(p, i int, x float32) float32) Rows {
		out := Rows{}
		for p, x := range rows {
			y := make([]float32, len(x))
			for i := range x {
				y[i] = f(p, i, x[i])
			}
			out[p] = y
		}
		return out
	}
	right := turned(func(p, i int) float64 { return float64(p) * float64(own[i]) })
	q, out, logits := Site{"layers.1.q", 1, 5}, Site{"layers.1.out", 1, 9}, Site{"logits", 2, 99}
	for _, c := range []struct {
		name      string
		site      Site
		want, got Rows
		change    string
	}{
		{"noise", out, base, each(base, func(_, _ int, x float32) float32 { return x * 1.00001 }), ""},
		{"twice", out, base, each(base, func(_, _ int, x float32) float32 { return 2 * x }), "scaled by 2"},
		{"√hidden", out, base, each(base, func(_, _ int, x float32) float32 { return x / 8 }), "scaled by 1/√hidden"},
		{"zero", out, base, each(base, func(_, _ int, _ float32) float32 { return 0 }), "scaled by 0"},
		{"late", out, base, each(base, func(p, i int, _ float32) float32 { return base[max(p-1, 0)][i] }), "row of the token before"},
		{"gain", out, base, each(base, func(_, i int, x float32) float32 { return x * (1 + float32(i)/8) }), "another gain"},
		{"reversed", out, base, each(base, func(p, i int, _ float32) float32 { return base[p][D-1-i] }), "permuted"},
		{"not finite", out, base, each(base, func(_, i int, x float32) float32 { return x / float32(i) }), "not finite"},
		{"anything", out, base, each(base, func(p, i int, x float32) float32 { return x + float32((p*7+i*5)%11) }), "other values"},
		{"uncapped", logits, each(base, func(_, _ int, x float32) float32 { return float32(30 * math.Tanh(float64(20*x)/30)) }),
			each(base, func(_, _ int, x float32) float32 { return 20 * x }), "without softcap"},
		{"head", logits, base, each(base, func(p, i int, _ float32) float32 { return base[p][(i+1)%D] }), "columns moved by one"},
		{"backwards", q, right, turned(func(p, i int) float64 { return -float64(p) * float64(own[i]) }), "turned backwards"},
		{"not at all", q, right, base, "not turned"},
		{"next", q, right, turned(func(p, i int) float64 { return float64(p+1) * float64(own[i]) }), "turned for the next position"},
		{"other kind", q, right, turned(func(p, i int) float64 { return float64(p) * float64(alien[i]) }), "turned as layers of the other kind are"},
		{"tail", q, right, turned(func(p, i int) float64 { return float64(p) * math.Pow(1e6, -2*float64(i)/D) }), "the tail turns"},
		{"frequencies", q, right, turned(func(p, i int) float64 { return 1.5 * float64(p) * float64(own[i]) }), "turned by other angles"},
		{"pairs", q, right, each(right, func(p, i int, x float32) float32 { return x + right[p][(i+1)%D] }), "pairs change their length"},
	} {
		if got := s.changeOf(c.site, c.want, c.got, 1e-3); got != c.change {
			t.Errorf("%s: %q, want %q", c.name, got, c.change)
		}
	}
}

// TestDiagnose: the nearest signature names the cause, equals are both named,
// and what is like nothing is called nothing.
func TestDiagnose(t *testing.T) {
	known := []KnownFault{
		{"a", "cause a", []Signature{{"gate": "logits.decode", "site": "layers.q", "change": "turned backwards", "start": "1"}}},
		{"b", "cause b", []Signature{{"gate": "logits.decode", "site": "layers.q", "change": "not turned", "start": "1"}}},
		{"c", "cause c", []Signature{{"gate": "logits.decode", "site": "layers.q", "change": "not turned", "start": "1"}}},
		{"d", "cause d", []Signature{{"gate": "contract", "symptom": "window"}}},
	}
	for _, c := range []struct {
		s     Signature
		fault string
		or    int
	}{
		{Signature{"gate": "logits.decode", "site": "layers.q", "change": "turned backwards", "start": "1"}, "a", 0},
		{Signature{"gate": "logits.decode", "site": "layers.q", "change": "not turned", "start": "0"}, "b", 1},
		{Signature{"gate": "contract", "symptom": "window"}, "d", 0},
		{Signature{"gate": "contract", "symptom": "epsilon"}, "", 0},
		{Signature{"gate": "kv", "site": "layers.k", "start": "past W"}, "", 0},
	} {
		got := diagnose(known, c.s)
		switch {
		case got == nil && c.fault != "":
			t.Errorf("%v: nothing, want %s", c.s, c.fault)
		case got != nil && (got.Fault != c.fault || len(got.Or) != c.or):
			t.Errorf("%v: %v, want %s and %d more", c.s, got, c.fault, c.or)
		}
	}
}
