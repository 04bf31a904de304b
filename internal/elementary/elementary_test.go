package elementary

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// ulps is the distance of got from want, which package math gives to within 1.
func ulps(got, want float64) float64 {
	if got == want || got != got && want != want {
		return 0
	}
	if math.IsInf(want, 0) || math.IsInf(got, 0) || got != got {
		return math.Inf(1)
	}
	unit := math.Nextafter(math.Abs(want), math.Inf(1)) - math.Abs(want)
	return math.Abs(got-want) / unit
}

var functions = []struct {
	name      string
	f, oracle func(float64) float64
	low, high float64
	limit     float64 // ulps
}{
	{"exp", Exp, math.Exp, -708, 709, 2},
	{"exp small", Exp, math.Exp, -1, 1, 2},
	{"log", Log, math.Log, 1e-300, 1e300, 2},
	{"log near 1", Log, math.Log, 0.5, 2, 2},
	{"sin", Sin, math.Sin, -1e6, 1e6, 2},
	{"sin small", Sin, math.Sin, -1, 1, 2},
	{"cos", Cos, math.Cos, -1e6, 1e6, 2},
	{"cos small", Cos, math.Cos, -1, 1, 2},
	{"tanh", Tanh, math.Tanh, -25, 25, 64},
	{"tanh small", Tanh, math.Tanh, -0.03, 0.03, 4},
	{"erf", Erf, math.Erf, -6.5, 6.5, 32},
}

func TestAccuracy(t *testing.T) {
	for _, c := range functions {
		t.Run(c.name, func(t *testing.T) {
			var worst, at float64
			const n = 200_000
			for i := range n {
				x := c.low + (c.high-c.low)*(float64(i)+0.37)/n
				if d := ulps(c.f(x), c.oracle(x)); d > worst {
					worst, at = d, x
				}
			}
			t.Logf("worst %.1f ulps at %v", worst, at)
			if worst > c.limit+1 {
				t.Errorf("%.1f ulps at %v: got %v, want %v", worst, at, c.f(at), c.oracle(at))
			}
		})
	}
}

func TestLimits(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"exp 0", Exp(0), 1}, {"exp inf", Exp(inf), inf}, {"exp -inf", Exp(-inf), 0}, {"exp nan", Exp(nan), nan},
		{"exp least", Exp(-745), 0x1p-1074}, {"exp 710", Exp(710), inf}, {"exp -746", Exp(-746), 0},
		{"log 1", Log(1), 0}, {"log 0", Log(0), -inf}, {"log -1", Log(-1), nan}, {"log inf", Log(inf), inf},
		{"log least", Log(0x1p-1074), -1074 * math.Ln2},
		{"pow 0", Pow(7, 0), 1}, {"pow 1/2", Pow(2, 0.5), math.Sqrt2},
		{"sin 0", Sin(0), 0}, {"cos 0", Cos(0), 1}, {"sin inf", Sin(inf), nan}, {"cos nan", Cos(nan), nan},
		{"tanh inf", Tanh(inf), 1}, {"tanh -inf", Tanh(-inf), -1}, {"tanh nan", Tanh(nan), nan}, {"tanh 0", Tanh(0), 0},
		{"erf inf", Erf(inf), 1}, {"erf -inf", Erf(-inf), -1}, {"erf nan", Erf(nan), nan}, {"erf 0", Erf(0), 0},
	} {
		if d := ulps(c.got, c.want); d > 1 {
			t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
		}
	}
}

// TestPow compares with an exact square root chain.
func TestPow(t *testing.T) {
	for _, theta := range []float64{1e4, 5e5, 1e6, 1e7} {
		for k := 1; k <= 8; k++ {
			want := new(big.Float).SetPrec(200).SetFloat64(theta)
			for range k {
				want.Sqrt(want)
			}
			w, _ := want.Float64()
			got := Pow(theta, math.Ldexp(1, -k))
			if math.Abs(got-w)/w > 4e-15 {
				t.Errorf("%v^2^-%d: got %v, want %v", theta, k, got, w)
			}
		}
	}
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(-300, 300).Draw(t, "x")
		if d := math.Abs(float64(Exp(x)*Exp(-x)) - 1); d > 2e-15 {
			t.Errorf("e^x·e^-x is off by %g", d)
		}
		if d := math.Abs(Log(Exp(x)) - x); d > 1e-15*max(1, math.Abs(x)) {
			t.Errorf("ln e^x is off by %g", d)
		}
		if s, c := Sin(x), Cos(x); math.Abs(float64(s*s)+float64(c*c)-1) > 1e-15 {
			t.Errorf("sin²+cos² is %v", s*s+c*c)
		}
		if Tanh(-x) != -Tanh(x) || Erf(-x) != -Erf(x) || Sin(-x) != -Sin(x) {
			t.Error("not an odd function")
		}
	})
}

// TestBits pins the bits of results: every processor must give these.
func TestBits(t *testing.T) {
	h := fnv.New64a()
	for _, c := range functions {
		const n = 20_000
		for i := range n {
			x := c.low + float64((c.high-c.low)*((float64(i)+0.61)/n))
			fmt.Fprintf(h, "%x,", math.Float64bits(c.f(x)))
		}
	}
	if got, want := h.Sum64(), uint64(0xe381c58792ab6221); got != want {
		t.Errorf("hash of all results is %#x, want %#x", got, want)
	}
}
