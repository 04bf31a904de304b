package allocate

import "slices"

// Isotonic fits damages that do not rise from one candidate to the next, as
// more bits cannot hurt: the weighted least squares fit by pooling adjacent
// violators. weights, nil for equal ones, are those of the squared errors,
// usually 1/SE². Means of damages that are not negative are not negative.
func Isotonic(damages, weights []float64) []float64 {
	type pool struct {
		sum, weight float64
		n           int
	}
	var pools []pool
	for i, d := range damages {
		w := 1.0
		if weights != nil {
			w = weights[i]
		}
		pools = append(pools, pool{float64(d * w), w, 1})
		for len(pools) > 1 {
			a, b := pools[len(pools)-2], pools[len(pools)-1]
			if float64(b.sum*a.weight) <= float64(a.sum*b.weight) {
				break
			}
			pools = append(pools[:len(pools)-2], pool{a.sum + b.sum, a.weight + b.weight, a.n + b.n})
		}
	}
	out := make([]float64, 0, len(damages))
	for _, p := range pools {
		out = append(out, slices.Repeat([]float64{p.sum / p.weight}, p.n)...)
	}
	return out
}
