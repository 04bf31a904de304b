package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/smelt-go/smelt/internal/half"
)

// onGeneric runs f at the Go level.
func onGeneric(f func()) {
	defer func(old *level) { cur = old }(cur)
	cur = &genericLevel
	f()
}

// Every bfloat16, at awkward lengths and several scales, gives the bits of
// the scalar arithmetic.
func TestBF16ToF16(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	eachLevel(t, func(t *testing.T) {
		for _, scale := range []float32{1, 0x1p-3, 0x1p-20, 4} {
			dst := make([]uint16, len(all))
			if peak := BF16ToF16(dst, all, scale); peak <= 0x7f800000 {
				t.Errorf("scale %v: peak %#x misses the NaN", scale, peak)
			}
			for i, h := range dst {
				if want := half.FromF32(half.FromBF16(uint16(i)) * scale); h != want {
					t.Fatalf("%#04x·%v = %#04x, want %#04x", i, scale, h, want)
				}
			}
			for _, n := range awkward {
				src := all[0x4000-n/2:][:n]
				peak, want := BF16ToF16(dst[:n], src, scale), uint32(0)
				for i, b := range src {
					x := half.FromBF16(b) * scale
					want = max(want, math.Float32bits(x)&absMask)
					if dst[i] != half.FromF32(x) {
						t.Fatalf("n=%d: element %d is %#04x", n, i, dst[i])
					}
				}
				if peak != want {
					t.Errorf("n=%d, scale %v: peak %#x, want %#x", n, scale, peak, want)
				}
			}
		}
	})
}

func TestBF16ToF32(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		src := make([]uint16, 1<<16)
		for i := range src {
			src[i] = uint16(i)
		}
		for _, n := range append(awkward, len(src)) {
			dst := make([]float32, n)
			BF16ToF32(dst, src[:n])
			for i, x := range dst {
				if math.Float32bits(x) != uint32(i)<<16 {
					t.Fatalf("n=%d: %#04x widens to %#08x", n, i, math.Float32bits(x))
				}
			}
		}
	})
}

func TestMaxBits(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, n := range awkward {
			x := numbers(uint64(n), n)
			for at := range n {
				for _, v := range []float32{-77, float32(math.Inf(-1)), float32(math.NaN())} {
					y := slices.Clone(x)
					y[at] = v
					if got := MaxBits(y); got != math.Float32bits(v)&absMask {
						t.Fatalf("n=%d: %v at %d gives %v", n, v, at, math.Float32frombits(got))
					}
				}
			}
		}
		if MaxBits(nil) != 0 {
			t.Error("the peak of nothing is not 0")
		}
	})
}

func TestMaxBits16(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, n := range awkward {
			x := halves(numbers(uint64(n), n))
			for at := range n {
				for _, v := range []uint16{0xd555, 0xfc00, 0x7e01} {
					y := slices.Clone(x)
					y[at] = v
					if got := MaxBits16(y); got != v&0x7fff {
						t.Fatalf("n=%d: %#04x at %d gives %#04x", n, v, at, got)
					}
				}
			}
		}
		if MaxBits16(nil) != 0 {
			t.Error("the peak of nothing is not 0")
		}
	})
}

// The exact product has the bits of the Go form at every level, for any
// number of rows and columns.
func TestMulExactBits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, k := range awkward {
		for _, s := range [][2]int{{1, 1}, {1, 9}, {2, 7}, {3, 4}, {4, 5}, {5, 8}, {16, 23}, {17, 3}} {
			rows, n := s[0], s[1]
			x, w := numbers(r.Uint64(), rows*k), numbers(r.Uint64(), n*k)
			want := make([]float32, rows*n)
			onGeneric(func() { MulExact(want, n, x, k, rows, w, k, n, k) })
			for i := range want {
				if want[i] != dot(x[i/n*k:][:k], w[i%n*k:][:k]) {
					t.Fatalf("k=%d %v: the Go form is not the dot product", k, s)
				}
			}
			eachLevel(t, func(t *testing.T) {
				got := make([]float32, rows*n)
				MulExact(got, n, x, k, rows, w, k, n, k)
				if !slices.Equal(got, want) {
					t.Errorf("k=%d %v: other bits than the Go form", k, s)
				}
			})
		}
	}
}

func BenchmarkBF16ToF16(b *testing.B) {
	src, dst := make([]uint16, 1<<17), make([]uint16, 1<<17)
	b.SetBytes(2 << 17)
	for b.Loop() {
		BF16ToF16(dst, src, 1)
	}
}

func BenchmarkMulExact(b *testing.B) {
	const t, n, k = 16, 32, 640
	x, w, dst := numbers(1, t*k), numbers(2, n*k), make([]float32, t*n)
	for b.Loop() {
		MulExact(dst, n, x, k, t, w, k, n, k)
	}
	b.ReportMetric(float64(b.N)*t*n*k/1e9/b.Elapsed().Seconds(), "GMAC/s")
}
