package kmeans

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/internal/half"
)

// bruteForce tries every way to cut sorted values into k runs.
func bruteForce(x, w []float64, k int) float64 {
	n := len(x)
	best := make([][]float64, k+1)
	for j := range best {
		best[j] = make([]float64, n+1)
		for i := range best[j] {
			best[j][i] = math.Inf(1)
		}
	}
	best[0][0] = 0
	for j := 1; j <= k; j++ {
		for i := 1; i <= n; i++ {
			for a := range i {
				var sw, sx, e float64
				for t := a; t < i; t++ {
					sw += w[t]
					sx += w[t] * x[t]
				}
				for t := a; t < i; t++ {
					d := x[t] - sx/sw
					e += w[t] * d * d
				}
				best[j][i] = min(best[j][i], best[j-1][a]+e)
			}
		}
	}
	return best[k][n]
}

func TestKMeansIsOptimal(t *testing.T) {
	h := new(Histogram)
	rapid.Check(t, func(rt *rapid.T) {
		h.Reset()
		n := rapid.IntRange(1, 40).Draw(rt, "n")
		w := make([]uint16, n)
		imp := make([]float32, n)
		for i := range w {
			w[i] = half.FromF32(rapid.Float32Range(-4, 4).Draw(rt, "x"))
			imp[i] = rapid.Float32Range(0.1, 3).Draw(rt, "d")
		}
		h.Add(w, imp)
		k := rapid.IntRange(1, 8).Draw(rt, "k")
		c, got := h.Fit(k)
		xs := make([]float64, len(h.solver.x))
		ws := make([]float64, len(h.solver.x))
		for i := range xs {
			xs[i], ws[i] = h.solver.x[i], h.solver.node[i+1].w-h.solver.node[i].w
		}
		want := bruteForce(xs, ws, len(c))
		if math.Abs(got-want) > 1e-9*(1+want) {
			rt.Fatalf("error %g with %d of %d values, want %g", got, k, len(xs), want)
		}
		// The centroids achieve what Fit says.
		var e float64
		for i, x := range xs {
			d := math.Inf(1)
			for _, y := range c {
				d = min(d, math.Abs(x-y))
			}
			e += ws[i] * d * d
		}
		if math.Abs(e-want) > 1e-9*(1+want) {
			rt.Fatalf("the centroids have error %g, want %g", e, want)
		}
	})
}

// layered is the least error by dynamic programming over all positions.
func layered(s *solver, k int) float64 {
	n := len(s.x)
	l := &s.layers
	l.lo, l.hi = growInt(l.lo, k+1), growInt(l.hi, k+1)
	for j := range k + 1 {
		l.lo[j], l.hi[j] = int32(j), int32(n-k+j)
	}
	l.hi[0], l.lo[k] = 0, int32(n)
	s.dynamic(k)
	err := s.all
	for j := range k {
		a, b := s.node[s.path[j]], s.node[s.path[j+1]]
		err -= (b.s - a.s) * (b.s - a.s) / (b.w - a.w)
	}
	return err
}

// Prices and enclosed dynamic programming find what all of dynamic programming
// finds, where errors have ties, too.
func TestSolverMatchesLayers(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	shapes := map[string]func(i int) (x, w float64){
		"gaussian":  func(int) (float64, float64) { return rng.NormFloat64(), 1 },
		"lattice":   func(i int) (float64, float64) { return float64(i), 1 },
		"heavy":     func(int) (float64, float64) { return rng.NormFloat64() / (0.01 + rng.Float64()), 1 + 9*rng.Float64() },
		"two heaps": func(i int) (float64, float64) { return float64(i%2*1000) + float64(i/2), 1 },
		"spread":    func(i int) (float64, float64) { return math.Exp2(float64(i) / 8), 1 },
		"counts":    func(i int) (float64, float64) { return float64(i), math.Floor(math.Exp2(16 * rng.Float64())) },
	}
	gaveUp := 0
	for name, f := range shapes {
		for _, n := range []int{2, 3, 17, 64, 300} {
			var s solver
			s.reset()
			x := make([][2]float64, n)
			for i := range x {
				x[i][0], x[i][1] = f(i)
			}
			slices.SortFunc(x, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
			for _, v := range x {
				s.push(v[0], v[1])
			}
			for k := 1; k <= min(n, 40); k++ {
				_, got := s.solve(k)
				if k > 1 && k < len(s.x) && !s.search(k) {
					gaveUp++
				}
				want := layered(&s, min(k, len(s.x)))
				if math.Abs(got-want) > 1e-12*s.all {
					t.Errorf("%s: %d values, %d entries: error %g, want %g", name, n, k, got, want)
				}
			}
		}
	}
	if gaveUp == 0 {
		t.Error("no case needed more than prices")
	}
}
