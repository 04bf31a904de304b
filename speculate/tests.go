package speculate

import (
	"cmp"
	"math"
	"slices"
)

// McNemar is the two-sided p-value of McNemar's exact test: of n discordant
// pairs, in which one side succeeded and the other did not, b went one way and
// c the other; if neither side is better both are alike.
func McNemar(b, c int) float64 {
	n, k := b+c, min(b, c)
	if n == 0 {
		return 1
	}
	// Σ_{i≤k} C(n,i)/2^n, in logarithms.
	p := 0.0
	for i := range k + 1 {
		p += math.Exp(logChoose(n, i) - float64(n)*math.Ln2)
	}
	return min(1, 2*p)
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// SignTest is the two-sided p-value of the sign test over paired values; equal
// ones say nothing.
func SignTest(a, b []float64) float64 {
	up, down := 0, 0
	for i := range a {
		switch {
		case b[i] > a[i]:
			up++
		case b[i] < a[i]:
			down++
		}
	}
	return McNemar(up, down)
}

// Holm adjusts p-values for having asked several questions at once, so that
// the probability of any false rejection stays below the level. The result has
// the order of p.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	out := make([]float64, len(p))
	worst := 0.0
	for rank, i := range order {
		worst = max(worst, min(1, float64(len(p)-rank)*p[i]))
		out[i] = worst
	}
	return out
}
