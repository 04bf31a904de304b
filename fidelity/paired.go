package fidelity

import (
	"fmt"
	"math"
)

// runLength is how many neighbouring positions count as one observation: what a
// model makes of one token depends on those before it.
const runLength = 32

// Paired is how much farther from the reference one model is than another, on the
// same positions of a text.
type Paired struct {
	Positions int     `json:"positions"`
	A         float64 `json:"kl_a"`
	B         float64 `json:"kl_b"`
	// Difference is A − B. Low and High are the ends of its 95 % interval.
	Difference float64 `json:"difference"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
}

// Pair compares divergences by position, as Against.Positions has them. The
// interval is that of the mean of runs of 32 positions, by Student's distribution
// as for many (1.96 standard errors) with a correction of its first order.
func Pair(a, b []float64) (*Paired, error) {
	if len(a) != len(b) {
		return nil, fmt.Errorf("fidelity: %d positions cannot be paired with %d", len(a), len(b))
	}
	n := len(a) / runLength
	if n < 3 {
		return nil, fmt.Errorf("fidelity: %d positions are too few for an interval (want at least %d)", len(a), 3*runLength)
	}
	p := &Paired{Positions: len(a)}
	for i := range a {
		p.A += a[i] / float64(len(a))
		p.B += b[i] / float64(len(a))
	}
	p.Difference = p.A - p.B
	// Runs of about equal length; the last ones take what is left over.
	var squares float64
	for r := range n {
		from, to := r*len(a)/n, (r+1)*len(a)/n
		var d float64
		for i := from; i < to; i++ {
			d += a[i] - b[i]
		}
		d = d/float64(to-from) - p.Difference
		squares += d * d
	}
	free := float64(n - 1)
	se := math.Sqrt(squares / free / float64(n))
	const z = 1.959964
	wide := z + (z*z*z+z)/(4*free) // Student's quantile, to first order in 1/free
	p.Low, p.High = p.Difference-wide*se, p.Difference+wide*se
	return p, nil
}
