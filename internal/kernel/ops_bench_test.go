package kernel

import (
	"fmt"
	"testing"
)

// The sizes of operands: a hidden state of a small model, which stays in the
// first-level cache, and a row of logits, which does not.
var benchSizes = []int{640, 262144}

// BenchmarkElementwise measures what touches every element once. The rate
// counts the elements that are read and written, 4 bytes each.
func BenchmarkElementwise(b *testing.B) {
	for _, n := range benchSizes {
		x, y, d := numbers(1, n), numbers(2, n), make([]float32, n)
		h := halves(x)
		h2 := make([]uint16, n)
		for _, op := range []struct {
			name  string
			bytes int // per element
			run   func()
		}{
			{"Add", 12, func() { Add(d, x, y) }},
			{"Mul", 12, func() { Mul(d, x, y) }},
			{"MulScalar", 8, func() { MulScalar(d, x, 0.5) }},
			{"ScaleMul", 12, func() { ScaleMul(d, x, y, 0.5) }},
			{"RoundF16", 8, func() { RoundF16(d) }},
			{"IsF16", 4, func() { IsF16(d) }},
			{"F16ToF32", 6, func() { F16ToF32(d, h) }},
			{"F32ToF16", 6, func() { F32ToF16(h2, x) }},
			{"BF16ToF32", 6, func() { BF16ToF32(d, h) }},
			{"Silu", 8, func() { Silu(d, x) }},
			{"GeluTanh", 8, func() { GeluTanh(d, x) }},
			{"Softmax", 8, func() { Softmax(d, x) }},
			{"RMSNorm", 12, func() { RMSNorm(d, x, y, 1e-6) }},
			{"SumSquares", 4, func() { SumSquares(x) }},
			{"Max", 4, func() { Max(x) }},
			{"ArgMax", 4, func() { ArgMax(x) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", op.name, n), func(b *testing.B) {
				RoundF16(d) // IsF16 stops at the first element that is none
				b.SetBytes(int64(n * op.bytes))
				b.ReportAllocs()
				for b.Loop() {
					op.run()
				}
			})
		}
	}
}

// BenchmarkProduct measures dst = x·wᵀ by shape on one thread: t rows of x,
// n rows of w, k elements each.
func BenchmarkProduct(b *testing.B) {
	for _, s := range []struct{ t, n, k int }{
		{1, 8192, 4096}, {1, 2048, 640}, {1, 1536, 576},
		{64, 2048, 640}, {128, 2048, 640}, {512, 512, 512}, {128, 640, 2048},
	} {
		x, w, d := numbers(1, s.t*s.k), numbers(2, s.n*s.k), make([]float32, s.t*s.n)
		h := halves(w)
		for _, form := range []struct {
			name  string
			bytes int
			run   func()
		}{
			{"f16", 2, func() { MulF16(d, s.n, x, s.k, s.t, h, s.k, s.n, s.k) }},
			{"f32", 4, func() { MulF32(d, s.n, x, s.k, s.t, w, s.k, s.n, s.k) }},
		} {
			b.Run(fmt.Sprintf("%s/%dx%dx%d", form.name, s.t, s.n, s.k), func(b *testing.B) {
				b.SetBytes(int64(s.n * s.k * form.bytes))
				b.ReportAllocs()
				for b.Loop() {
					form.run()
				}
				b.ReportMetric(2*float64(s.t*s.n*s.k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkMulNN measures probabilities times values: t rows over c positions,
// n wide.
func BenchmarkMulNN(b *testing.B) {
	for _, s := range []struct{ t, c, n int }{{4, 512, 256}, {3, 2048, 64}, {128, 1024, 64}} {
		p, v, d := numbers(1, s.t*s.c), numbers(2, s.c*s.n), make([]float32, s.t*s.n)
		b.Run(fmt.Sprintf("%dx%dx%d", s.t, s.c, s.n), func(b *testing.B) {
			b.SetBytes(int64(4 * s.c * s.n))
			b.ReportAllocs()
			for b.Loop() {
				MulNN(d, s.n, p, s.c, s.t, v, s.n, s.c, s.n)
			}
			b.ReportMetric(2*float64(s.t*s.c*s.n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
