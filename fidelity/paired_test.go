package fidelity

import (
	"math"
	"math/rand/v2"
	"testing"
)

// 95 % intervals hold the true difference in about 95 % of cases, also where
// neighbours resemble each other.
func TestPairCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const trials, n, truth = 2000, 2044, 0.01
	covered := 0
	for range trials {
		a, b := make([]float64, n), make([]float64, n)
		noise := 0.0
		for i := range a {
			noise = 0.6*noise + 0.8*rng.NormFloat64()
			common := rng.ExpFloat64()
			a[i], b[i] = common+truth+0.1*noise, common
		}
		p, err := Pair(a, b)
		if err != nil {
			t.Fatal(err)
		}
		if p.Low <= truth && truth <= p.High {
			covered++
		}
	}
	if f := float64(covered) / trials; f < 0.925 || f > 0.965 {
		t.Errorf("%.3f of intervals hold the difference", f)
	}
}

func TestPair(t *testing.T) {
	a, b := make([]float64, 100), make([]float64, 100)
	for i := range a {
		a[i], b[i] = 3, 1
	}
	p, err := Pair(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(p.A-3) > 1e-12 || math.Abs(p.B-1) > 1e-12 || math.Abs(p.Low-2) > 1e-9 || math.Abs(p.High-2) > 1e-9 {
		t.Errorf("%+v", p)
	}
	if _, err := Pair(a, b[1:]); err == nil {
		t.Error("texts of different lengths were paired")
	}
	if _, err := Pair(a[:40], b[:40]); err == nil {
		t.Error("an interval of one run")
	}
}
