package kernel

import (
	"math"
	"runtime"
	"slices"
	"testing"
)

func TestSyrkMatchesFloat64(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, c := range []struct{ rows, d, gap int }{
			{1, 1, 0}, {3, 5, 2}, {16, 33, 0}, {40, 64, 1}, {77, 130, 3}, {SyrkBlock, 17, 0}, {SyrkBlock + 5, 40, 0},
		} {
			ldx := c.d + c.gap
			x := numbers(21, c.rows*ldx)
			h := make([]float64, c.d*c.d)
			for i := range h {
				h[i] = 3
			}
			SyrkF32(h, x, ldx, c.rows, c.d)
			for i := range c.d {
				for j := range c.d {
					want, mag := 3.0, 3.0
					if j >= i {
						for a := range c.rows {
							p := float64(x[a*ldx+i]) * float64(x[a*ldx+j])
							want += p
							mag += math.Abs(p)
						}
					}
					bound := mag * float64(min(c.rows, SyrkBlock)+4) * 0x1p-24
					if j < i {
						bound = 0
					}
					if math.Abs(h[i*c.d+j]-want) > bound {
						t.Fatalf("%+v [%d,%d]: %v, want %v", c, i, j, h[i*c.d+j], want)
					}
				}
			}
			Mirror(h, c.d)
			for i := range c.d {
				for j := range i {
					if h[i*c.d+j] != h[j*c.d+i] {
						t.Fatalf("%+v: not symmetric at %d, %d", c, i, j)
					}
				}
			}
		}
	})
}

// What a block adds has the bits of a product of its columns, whatever the
// number of cores and of calls.
func TestSyrkOrder(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		for _, d := range []int{7, 45, 70, 96} {
			const rows = SyrkBlock + 100
			x := numbers(22, rows*d)
			want := make([]float64, d*d)
			for from := 0; from < rows; from += SyrkBlock {
				n := min(SyrkBlock, rows-from)
				cols, out := make([]float32, d*n), make([]float32, d*d)
				for a := range n {
					for j := range d {
						cols[j*n+a] = x[(from+a)*d+j]
					}
				}
				for i := range d {
					MulF32(out[i*d:], d, cols[i*n:], n, 1, cols, n, d, n)
				}
				for i := range d {
					for j := i; j < d; j++ {
						want[i*d+j] += float64(out[i*d+j])
					}
				}
			}
			for _, procs := range []int{1, 3} {
				old := runtime.GOMAXPROCS(procs)
				got := make([]float64, d*d)
				SyrkF32(got, x, d, SyrkBlock, d)
				SyrkF32(got, x[SyrkBlock*d:], d, rows-SyrkBlock, d)
				runtime.GOMAXPROCS(old)
				if !slices.Equal(got, want) {
					t.Fatalf("d=%d, %d threads: other bits than the products of columns", d, procs)
				}
			}
		}
	})
}

func BenchmarkSyrk(b *testing.B) {
	const t, d = 2048, 640
	x, h := numbers(1, t*d), make([]float64, d*d)
	for b.Loop() {
		SyrkF32(h, x, d, t, d)
	}
	b.ReportMetric(float64(b.N)*t*d*d/1e9/b.Elapsed().Seconds(), "GFLOP/s")
}
