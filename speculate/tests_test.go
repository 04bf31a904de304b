package speculate

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestMcNemar(t *testing.T) {
	for _, c := range []struct {
		b, c int
		want float64
	}{
		{0, 0, 1}, {5, 5, 1}, {0, 5, 2.0 / 32}, {1, 5, 2 * 7.0 / 64}, {10, 2, 2 * 79.0 / 4096},
	} {
		if got := McNemar(c.b, c.c); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%d against %d: p = %g, want %g", c.b, c.c, got, c.want)
		}
	}
}

func TestSignTest(t *testing.T) {
	got := SignTest([]float64{1, 1, 1, 1, 1, 1}, []float64{2, 2, 2, 2, 2, 1})
	if want := 2.0 / 32; math.Abs(got-want) > 1e-12 {
		t.Errorf("p = %g, want %g", got, want)
	}
}

func TestHolm(t *testing.T) {
	got := Holm([]float64{0.01, 0.04, 0.03, 0.005})
	want := []float64{0.03, 0.06, 0.06, 0.02}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12 {
			t.Errorf("adjusted %v, want %v", got, want)
			break
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SliceOf(rapid.Float64Range(0, 1)).Draw(t, "p")
		a := Holm(p)
		for i := range p {
			if a[i] < p[i] || a[i] > min(1, float64(len(p))*p[i])+1e-15 && a[i] > slices.Max(a[:i+1])+1e-15 {
				t.Fatalf("%v became %v", p, a)
			}
			for j := range p {
				if p[i] < p[j] && a[i] > a[j] {
					t.Fatalf("%v became %v: another order", p, a)
				}
			}
		}
	})
}

// TestCosts checks the formulas against cases that can be worked out by hand.
func TestCosts(t *testing.T) {
	flat := Costs{Decode: 2, Draft: 0.5, Verify: []float64{0, 2, 2}}
	// v = 1, γ = 1: speculation pays above α = c.
	if got := flat.BreakEven(1); math.Abs(got-flat.C()) > 1e-9 {
		t.Errorf("break-even acceptance %g, want c = %g", got, flat.C())
	}
	c := Costs{Decode: 1, Draft: 0.1, Verify: []float64{0, 1, 0, 0, 1.6}}
	if got, want := c.V(3), 1.4; math.Abs(got-want) > 1e-12 {
		t.Errorf("v(3) = %g between v(1) = 1 and v(4) = 1.6, want %g", got, want)
	}
	if got, want := c.Speedup(2.2, 3), 2.2/1.9; math.Abs(got-want) > 1e-12 {
		t.Errorf("speedup %g, want %g", got, want)
	}
	records := []Record{{Rounds: []Round{{3, 2}, {3, 0}, {0, 0}}}}
	if got, want := c.Predict(records), 5/(1.9+1.9+1); math.Abs(got-want) > 1e-12 {
		t.Errorf("predicted %g, want %g", got, want)
	}
	if got, want := TauAt(0.5, 3), 1.875; got != want {
		t.Errorf("τ = %g, want %g", got, want)
	}
	dear := Costs{Decode: 1, Draft: 1, Verify: []float64{0, 1, 2, 3}}
	if got := dear.BreakEven(2); !math.IsInf(got, 1) {
		t.Errorf("break-even at %g where nothing pays", got)
	}
	for _, alpha := range []float64{0.1, 0.5, 0.9} {
		for gamma := 1; gamma <= 7; gamma++ {
			want := (1 - math.Pow(alpha, float64(gamma+1))) / (1 - alpha)
			if got := TauAt(alpha, gamma); math.Abs(got-want) > 1e-12 {
				t.Errorf("τ(%g, %d) = %g, want %g", alpha, gamma, got, want)
			}
		}
	}
}

func TestExpectedAcceptance(t *testing.T) {
	p := []float32{float32(math.Log(0.5)), float32(math.Log(0.3)), float32(math.Log(0.2))}
	q := []float32{float32(math.Log(0.2)) + 7, float32(math.Log(0.3)) + 7, float32(math.Log(0.5)) + 7}
	if got := ExpectedAcceptance(p, q); math.Abs(got-0.7) > 1e-6 {
		t.Errorf("1 − TV = %g, want 0.7", got)
	}
	if got := ExpectedAcceptance(p, p); math.Abs(got-1) > 1e-12 {
		t.Errorf("1 − TV of equal distributions = %g", got)
	}
}
