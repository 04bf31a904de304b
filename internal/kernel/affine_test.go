package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// All levels give the bits of the Go form.
func TestAffineLevels(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	eachLevel(t, func(t *testing.T) {
		for range 300 {
			x := make([]float32, 16*(1+rng.IntN(8)))
			for i := range x {
				x[i] = float32(rng.NormFloat64()) * float32(math.Ldexp(1, rng.IntN(8)-10))
			}
			n := len(x)
			lo, hi := AffineRange(x)
			if lo != slices.Min(x) || hi != slices.Max(x) {
				t.Fatalf("range [%g, %g], want [%g, %g]", lo, hi, slices.Min(x), slices.Max(x))
			}
			top := 1<<(2+rng.IntN(7)) - 1
			scale, bias := (hi-lo)/float32(top), lo
			if rng.IntN(2) == 0 {
				scale, bias = -scale, hi
			}
			// Halves are rounded to even.
			x[0], x[1] = bias+float32(2.5*scale), bias+float32(3.5*scale)
			got, want := make([]byte, n), make([]byte, n)
			AffineCode(got, x, scale, bias, top)
			genericAffine.code(ptr(want), ptr(x), scale, bias, int32(top), n)
			if !slices.Equal(got, want) {
				t.Fatalf("codes %v, want %v", got, want)
			}
			for i, q := range got {
				if v := math.RoundToEven(float64((x[i] - bias) / scale)); float64(q) != min(max(v, 0), float64(top)) {
					t.Fatalf("code %d of %g is %d, want %g", i, x[i], q, v)
				}
			}
			inv, center := 1/scale, lo/2+hi/2
			a, b, c := AffineMoments(x, bias+scale, inv, top, center)
			d, e, f := genericAffine.moments(ptr(x), bias+scale, inv, float32(top), center, n)
			if a != d || b != e || c != f {
				t.Fatalf("moments %g %g %g, want %g %g %g", a, b, c, d, e, f)
			}
			if g, w := AffineError(got, x, scale, bias), genericAffine.errors(ptr(want), ptr(x), scale, bias, n); g != w {
				t.Fatalf("error %g, want %g", g, w)
			}
		}
	})
}

// The moments are those of the codes, the error that of decoding.
func TestAffineMeaning(t *testing.T) {
	x := make([]float32, 32)
	for i := range x {
		x[i] = float32(i%11) - 5
	}
	codes := make([]byte, 32)
	AffineCode(codes, x, 0.75, -5, 15)
	q, qq, qw := AffineMoments(x, -5, 1/float32(0.75), 15, 1)
	var want [3]float64
	var e float64
	for i, c := range codes {
		v := float64(c)
		want[0] += v
		want[1] += v * v
		want[2] += v * (float64(x[i]) - 1)
		d := 0.75*v - 5 - float64(x[i])
		e += d * d
	}
	if float64(q) != want[0] || float64(qq) != want[1] || math.Abs(float64(qw)-want[2]) > 1e-4 {
		t.Errorf("moments %g %g %g, want %v", q, qq, qw, want)
	}
	if g := AffineError(codes, x, 0.75, -5); math.Abs(float64(g)-e) > 1e-5 {
		t.Errorf("error %g, want %g", g, e)
	}
}
