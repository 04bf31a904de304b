package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/smelt-go/smelt/internal/half"
)

// eachLevel runs a test at every level of this processor.
func eachLevel(t *testing.T, f func(t *testing.T)) {
	for _, l := range levels {
		t.Run(l.name, func(t *testing.T) {
			defer func(old *level) { cur = old }(cur)
			cur = l
			f(t)
		})
	}
}

func numbers(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func halves(x []float32) []uint16 {
	h := make([]uint16, len(x))
	half.F32ToF16(h, x)
	return h
}

// product is x·wᵀ in float64, and the sum of magnitudes for error bounds.
func product(x, w []float32) (s, mag float64) {
	for i := range x {
		p := float64(x[i]) * float64(w[i])
		s += p
		mag += math.Abs(p)
	}
	return s, mag
}

var awkward = []int{1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 100, 255, 256, 257}

func TestMulMatchesFloat64(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, k := range awkward {
			for _, tn := range [][2]int{{1, 1}, {1, 5}, {1, 8}, {1, 23}, {2, 4}, {3, 9}, {4, 3}, {5, 6}, {6, 4}, {7, 13}, {13, 2}, {64, 17}} {
				rows, n := tn[0], tn[1]
				const gap = 3
				x, w := numbers(1, rows*(k+gap)), numbers(2, n*(k+gap))
				h := halves(w)
				wide := make([]float32, len(h))
				half.F16ToF32(wide, h)
				for _, form := range []string{"f16", "f32"} {
					ldd := n + gap
					dst := make([]float32, rows*ldd)
					for i := range dst {
						dst[i] = 12345
					}
					ref := wide
					if form == "f16" {
						MulF16(dst, ldd, x, k+gap, rows, h, k+gap, n, k)
					} else {
						ref = w
						MulF32(dst, ldd, x, k+gap, rows, w, k+gap, n, k)
					}
					for i := range rows {
						for j := range ldd {
							got := dst[i*ldd+j]
							if j >= n {
								if got != 12345 {
									t.Fatalf("%s k=%d %v: wrote beyond row %d", form, k, tn, i)
								}
								continue
							}
							want, mag := product(x[i*(k+gap):][:k], ref[j*(k+gap):][:k])
							if math.Abs(float64(got)-want) > mag*float64(k+4)*0x1p-24 {
								t.Fatalf("%s k=%d %v [%d,%d]: %v, want %v", form, k, tn, i, j, got, want)
							}
						}
					}
				}
			}
		}
	})
}

// A row of a product has the same bits whatever is computed with it.
func TestMulRowsAreIndependent(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, k := range []int{5, 64, 100, 640} {
			const rows, n = 23, 37
			x, w := numbers(3, rows*k), halves(numbers(4, n*k))
			all := make([]float32, rows*n)
			MulF16(all, n, x, k, rows, w, k, n, k)
			one := make([]float32, 1)
			for i := range rows {
				for j := range n {
					MulF16(one, 1, x[i*k:], k, 1, w[j*k:], k, 1, k)
					if one[0] != all[i*n+j] {
						t.Fatalf("k=%d [%d,%d]: %v alone, %v in the product", k, i, j, one[0], all[i*n+j])
					}
				}
			}
		}
	})
}

func TestVectorLevelsAgreeBitForBit(t *testing.T) {
	if len(levels) < 3 {
		t.Skip("needs AVX-512 and AVX2")
	}
	type result struct{ mul, nn, soft, silu, gelu, norm []float32 }
	run := func(l *level) (r result) {
		defer func(old *level) { cur = old }(cur)
		cur = l
		const rows, n, k = 9, 21, 77
		x, w, v := numbers(5, rows*k), halves(numbers(6, n*k)), numbers(7, k*n)
		r.mul, r.nn = make([]float32, rows*n), make([]float32, rows*n)
		MulF16(r.mul, n, x, k, rows, w, k, n, k)
		MulNN(r.nn, n, x, k, rows, v, n, k, n)
		r.soft, r.silu, r.gelu, r.norm = make([]float32, len(x)), make([]float32, len(x)), make([]float32, len(x)), make([]float32, len(x))
		Softmax(r.soft, x)
		Silu(r.silu, x)
		GeluTanh(r.gelu, x)
		RMSNorm(r.norm, x, r.silu, 1e-6)
		return r
	}
	if a, b := fmt.Sprint(run(levels[0])), fmt.Sprint(run(levels[1])); a != b {
		t.Errorf("%s: %s\n%s: %s", levels[0].name, a, levels[1].name, b)
	}
}

func TestMulNN(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, c := range []int{0, 1, 2, 17, 64} {
			for _, n := range awkward {
				for _, rows := range []int{1, 2, 3, 4, 5, 9} {
					p, v := numbers(8, rows*(c+1)), numbers(9, (c+1)*(n+2))
					dst := make([]float32, rows*(n+1))
					for i := range dst {
						dst[i] = 12345
					}
					MulNN(dst, n+1, p, c+1, rows, v, n+2, c, n)
					for i := range rows {
						for j := range n {
							var want, mag float64
							for a := range c {
								q := float64(p[i*(c+1)+a]) * float64(v[a*(n+2)+j])
								want += q
								mag += math.Abs(q)
							}
							if got := float64(dst[i*(n+1)+j]); math.Abs(got-want) > mag*float64(c)*0x1p-24 {
								t.Fatalf("c=%d n=%d rows=%d [%d,%d]: %v, want %v", c, n, rows, i, j, got, want)
							}
						}
						if dst[i*(n+1)+n] != 12345 {
							t.Fatalf("c=%d n=%d rows=%d: wrote beyond row %d", c, n, rows, i)
						}
					}
				}
			}
		}
	})
}

func TestConversions(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	wide := make([]float32, len(all))
	half.F16ToF32(wide, all)
	// Every half, its neighbours and the halfway points to the next.
	var x []float32
	for _, v := range wide {
		b := math.Float32bits(v)
		x = append(x, v, math.Float32frombits(b+1), math.Float32frombits(b-1), math.Float32frombits(b+1<<12), math.Float32frombits(b+1<<12+1), math.Float32frombits(b+1<<12-1))
	}
	want := make([]uint16, len(x))
	half.F32ToF16(want, x)
	eachLevel(t, func(t *testing.T) {
		got := make([]float32, len(all))
		F16ToF32(got, all)
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(wide[i]) {
				t.Fatalf("half %#04x: %#08x, want %#08x", i, math.Float32bits(got[i]), math.Float32bits(wide[i]))
			}
		}
		for _, n := range []int{0, 1, 15, 16, 33, len(x)} {
			h := make([]uint16, n)
			F32ToF16(h, x[:n])
			r := append([]float32(nil), x[:n]...)
			RoundF16(r)
			for i := range h {
				if h[i] != want[i] {
					t.Fatalf("%#08x: %#04x, want %#04x", math.Float32bits(x[i]), h[i], want[i])
				}
				if math.Float32bits(r[i]) != math.Float32bits(half.ToF32(want[i])) {
					t.Fatalf("%#08x rounds to %#08x", math.Float32bits(x[i]), math.Float32bits(r[i]))
				}
			}
		}
		for _, n := range []int{0, 1, 16, 5000, 9001} {
			v := make([]float32, n)
			copy(v, wide[1000:])
			if !IsF16(v) {
				t.Errorf("n=%d: halves are said not to be halves", n)
			}
			for _, at := range []int{0, n / 2, n - 1} {
				if n == 0 {
					continue
				}
				old := v[at]
				v[at] = 0.1
				if IsF16(v) {
					t.Errorf("n=%d: 0.1 at %d was not seen", n, at)
				}
				v[at] = old
			}
		}
	})
}

func TestElementwise(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, n := range append(awkward, 0) {
			a, b, d := numbers(10, n), numbers(11, n), make([]float32, n)
			check := func(name string, want func(i int) float32) {
				t.Helper()
				for i := range d {
					if d[i] != want(i) {
						t.Fatalf("%s n=%d [%d]: %v, want %v", name, n, i, d[i], want(i))
					}
				}
			}
			Add(d, a, b)
			check("add", func(i int) float32 { return a[i] + b[i] })
			Sub(d, a, b)
			check("sub", func(i int) float32 { return a[i] - b[i] })
			Mul(d, a, b)
			check("mul", func(i int) float32 { return a[i] * b[i] })
			AddScalar(d, a, 1.5)
			check("add scalar", func(i int) float32 { return a[i] + 1.5 })
			MulScalar(d, a, 0.3)
			check("mul scalar", func(i int) float32 { return a[i] * 0.3 })
			ScaleMul(d, a, b, 0.3)
			check("scale mul", func(i int) float32 { return float32(a[i]*0.3) * b[i] })
			copy(d, a)
			Add(d, d, d)
			check("in place", func(i int) float32 { return 2 * a[i] })
			if n > 0 {
				m := a[0]
				for _, v := range a {
					m = max(m, v)
				}
				if got := Max(a); got != m {
					t.Fatalf("max n=%d: %v, want %v", n, got, m)
				}
				at := ArgMax(a)
				if a[at] != m {
					t.Fatalf("argmax n=%d: %d, which is %v, not %v", n, at, a[at], m)
				}
				copy(d, a)
				for i := range d {
					if i != at && i%3 == 0 {
						d[i] = float32(math.NaN())
					}
				}
				if got := ArgMax(d); got != at {
					t.Fatalf("argmax n=%d: %d beside NaN, %d without", n, got, at)
				}
			}
		}
	})
}

func ulps(a, b float32) int {
	i, j := int32(math.Float32bits(a)), int32(math.Float32bits(b))
	if i < 0 {
		i = math.MinInt32 - i
	}
	if j < 0 {
		j = math.MinInt32 - j
	}
	return int(max(i-j, j-i))
}

func TestActivations(t *testing.T) {
	var x []float32
	for v := float32(-110); v < 110; v += 0.37 {
		x = append(x, v)
	}
	x = append(x, numbers(12, 200)...)
	eachLevel(t, func(t *testing.T) {
		d := make([]float32, len(x))
		Silu(d, x)
		for i, v := range x {
			want := float32(float64(v) / (1 + math.Exp(-float64(v))))
			if v > -87 && ulps(d[i], want) > 4 {
				t.Errorf("silu(%v) = %v, want %v", v, d[i], want)
			}
		}
		GeluTanh(d, x)
		for i, v := range x {
			u := math.Sqrt(2/math.Pi) * (float64(v) + 0.044715*math.Pow(float64(v), 3))
			want := 0.5 * float64(v) * (1 + math.Tanh(u))
			if math.Abs(float64(d[i])-want) > 2e-6*math.Max(math.Abs(want), 1e-2) {
				t.Errorf("gelu(%v) = %v, want %v", v, d[i], want)
			}
		}
		nan := float32(math.NaN())
		d, y := make([]float32, 3), []float32{nan, 1, float32(math.Inf(1))}
		Silu(d, y)
		if d[0] == d[0] || d[1] != d[1] || !math.IsInf(float64(d[2]), 1) {
			t.Errorf("silu of NaN, 1, Inf: %v", d)
		}
	})
}

func TestSoftmax(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, n := range awkward {
			x, d := numbers(13, n), make([]float32, n)
			x[n/2] = -1e4
			x[n/3] = 20
			Softmax(d, x)
			var s float64
			for _, v := range x {
				s += math.Exp(float64(v) - 20)
			}
			for i, v := range x {
				want := float32(math.Exp(float64(v)-20) / s)
				// The difference to the maximum is rounded before exp.
				if ulps(d[i], want) > 8+int(20-v) {
					t.Fatalf("n=%d [%d]: %v, want %v", n, i, d[i], want)
				}
			}
		}
		d := make([]float32, 20)
		x := make([]float32, 20)
		x[3] = float32(math.NaN())
		Softmax(d, x)
		for _, v := range d {
			if v == v {
				t.Fatalf("a row with NaN gives %v", d)
			}
		}
	})
}

func TestRMSNorm(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, n := range awkward {
			x, g, d := numbers(14, n), numbers(15, n), make([]float32, n)
			RMSNorm(d, x, g, 1e-3)
			var s float64
			for _, v := range x {
				s += float64(v) * float64(v)
			}
			r := 1 / math.Sqrt(s/float64(n)+1e-3)
			for i := range d {
				want := float64(x[i]) * r * float64(g[i])
				if math.Abs(float64(d[i])-want) > 3e-6*math.Abs(want) {
					t.Fatalf("n=%d [%d]: %v, want %v", n, i, d[i], want)
				}
			}
		}
	})
}

func BenchmarkGEMV(b *testing.B) {
	const n, k = 16384, 640
	x, w, d := numbers(1, k), halves(numbers(2, n*k)), make([]float32, n)
	b.SetBytes(n * k * 2)
	for b.Loop() {
		MulF16(d, n, x, k, 1, w, k, n, k)
	}
}

func BenchmarkGEMM(b *testing.B) {
	const t, n, k = 64, 2048, 640
	x, w, d := numbers(1, t*k), halves(numbers(2, n*k)), make([]float32, t*n)
	for b.Loop() {
		MulF16(d, n, x, k, t, w, k, n, k)
	}
	b.ReportMetric(2*t*n*k*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
