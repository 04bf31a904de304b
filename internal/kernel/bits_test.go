package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"testing"
)

// vectorBits is the digest of what every assembly level gives: recorded with
// AVX2, and the same for AVX-512 and NEON.
const vectorBits = "aff235eabf0c2b3d"

// exact returns numbers below 2 in magnitude that depend on no floating-point
// arithmetic.
func exact(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 2))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(int32(r.Uint32())>>8) * 0x1p-22
	}
	return x
}

// vectorResults has results of every kernel on fixed input.
func vectorResults() [][]float32 {
	var out [][]float32
	add := func(n int) []float32 {
		d := make([]float32, n)
		out = append(out, d)
		return d
	}
	for _, k := range []int{5, 16, 77, 256} {
		for _, s := range [][2]int{{1, 9}, {2, 7}, {3, 5}, {13, 21}} {
			rows, n := s[0], s[1]
			x, w := exact(1, rows*k), exact(2, n*k)
			MulF32(add(rows*n), n, x, k, rows, w, k, n, k)
			MulF16(add(rows*n), n, x, k, rows, halves(w), k, n, k)
			MulNN(add(rows*77), 77, x, k, rows, exact(3, k*77), 77, k, 77)
		}
	}
	for _, n := range []int{1, 16, 100, 640} {
		x, g := exact(4, n), exact(5, n)
		for i := range x {
			x[i] *= float32(uint(1) << (i % 8))
		}
		Softmax(add(n), x)
		Silu(add(n), x)
		GeluTanh(add(n), x)
		RMSNorm(add(n), x, g, 1e-6)
		Add(add(n), x, g)
		Sub(add(n), x, g)
		Mul(add(n), x, g)
		AddScalar(add(n), x, 0.7)
		MulScalar(add(n), x, 0.7)
		ScaleMul(add(n), x, g, 0.7)
		RoundF16(append(add(n)[:0], x...))
		out = append(out, []float32{SumSquares(x), Max(x)})
	}
	// exp from 0 over subnormals to infinity.
	x := make([]float32, 3200)
	for i := range x {
		x[i] = float32(i-1700) / 16
	}
	Silu(add(len(x)), x)
	s := cur.expShift(ptr(add(len(x))), ptr(x), 0.1, len(x))
	return append(out, []float32{s})
}

func TestVectorBits(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		if cur == &genericLevel {
			t.Skip("the Go form rounds products")
		}
		h := sha256.New()
		for _, d := range vectorResults() {
			for _, v := range d {
				b := math.Float32bits(v)
				h.Write([]byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)})
			}
		}
		if got := hex.EncodeToString(h.Sum(nil)[:8]); got != vectorBits {
			t.Errorf("digest %s, want %s", got, vectorBits)
		}
	})
}
