package quant

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/half"
)

// gaussian is a bfloat16 matrix of normal weights.
func gaussian(rows, cols int) checkpoint.Tensor {
	rng := rand.New(rand.NewPCG(1, 2))
	w := make([]float32, rows*cols)
	for i := range w {
		w[i] = float32(rng.NormFloat64() * 0.04)
	}
	b := make([]byte, 2*len(w))
	for i, x := range w {
		putElement(b, i, x, checkpoint.BF16)
	}
	t, err := checkpoint.NewRaw("w", checkpoint.BF16, []int{rows, cols}, b)
	if err != nil {
		panic(err)
	}
	return t
}

func benchmark(b *testing.B, c Codec, m Method, rows int) {
	w := gaussian(rows, 4096)
	b.SetBytes(checkpoint.NumBytes(w))
	for b.Loop() {
		e, err := Encode(c, w, "w", Options{Method: m})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.Parts[0].WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAffine4(b *testing.B)      { benchmark(b, Affine{4, 64, RoundCPU}, RTN, 4096) }
func BenchmarkAffine3(b *testing.B)      { benchmark(b, Affine{3, 64, RoundCPU}, RTN, 4096) }
func BenchmarkAffine8(b *testing.B)      { benchmark(b, Affine{8, 64, RoundCPU}, RTN, 4096) }
func BenchmarkAffine4Refit(b *testing.B) { benchmark(b, Affine{4, 64, RoundCPU}, Refit, 64) }

// gaussianHalves are n bfloat16 weights as fp16.
func gaussianHalves(n int) ([]uint16, error) {
	f, err := checkpoint.ReadAll(gaussian(1, n))
	out := make([]uint16, n)
	half.F32ToF16(out, f)
	return out, err
}

// BenchmarkAffine4Weighted is Refit with an importance.
func BenchmarkAffine4Weighted(b *testing.B) {
	w := gaussian(256, 4096)
	imp := make([]float32, 4096)
	for i := range imp {
		imp[i] = float32(1 + i%7)
	}
	b.SetBytes(checkpoint.NumBytes(w))
	for b.Loop() {
		e, err := Encode(Affine{4, 64, RoundCPU}, w, "w", Options{Method: Refit, Importance: imp})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.Parts[0].WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
