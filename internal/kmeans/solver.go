// Package kmeans finds the optimal tables of k numbers for weights: exact k-means
// in one dimension.
package kmeans

import (
	"math"
	"slices"

	"github.com/smelt-go/smelt/internal/elementary"
)

// solver finds optimal tables for sorted numbers with weights.
//
// In one dimension the clusters of k-means are runs of the sorted values, and a
// table is a way from position 0 to n in k steps, where a step from a to i costs
// what its values deviate from their mean,
//
//	cost(a, i) = Σwx² − (Σwx)²/Σw over values a to i−1.
//
// Σwx² of all is the same for every way and left out.
//
// These costs satisfy the quadrangle inequality, from which three things follow
// that solve makes use of. With a price on every step instead of a number of
// steps, the cheapest way is found in one pass (blocks).
// The error is a convex function of k, so a cheapest way that happens to have k
// steps is the best of k steps, and there is a price for each k unless errors of
// neighbouring k lie on a line (Aggarwal, Schieber and Tokuyama, "Finding a
// minimum-weight k-link path in graphs with the concave Monge property", 1994).
// And the best ways of k1 < k < k2 steps interlace, so that dynamic programming
// over the few positions between two neighbours settles what prices leave open
// (between).
type solver struct {
	node   []node    // positions 0 to n
	x      []float64 // distinct values
	all    float64   // Σwx²
	path   []int32   // the way found last: 0, …, n
	below  []int32   // a cheapest way of fewer than k steps
	above  []int32   // of more
	layers layers
}

// node is a position between values.
type node struct {
	w, s float64 // Σw, Σwx of the values before
	f    float64 // cost of the cheapest way here
	from int32   // where its last step starts
}

func (s *solver) reset() {
	s.node, s.x, s.all = append(s.node[:0], node{}), s.x[:0], 0
}

// push adds a value, not below those before. What has no importance needs no
// entry.
func (s *solver) push(x, w float64) {
	if w == 0 {
		return
	}
	wx := float64(w * x)
	s.all += float64(wx * x)
	last := s.node[len(s.node)-1]
	next := node{w: last.w + w, s: last.s + wx}
	if n := len(s.x); n > 0 && s.x[n-1] == x { // −0 and 0
		s.node[n] = next
		return
	}
	s.x = append(s.x, x)
	s.node = append(s.node, next)
}

// solve finds the best table of k entries, or of as many as there are values.
func (s *solver) solve(k int) (centroids []float64, err float64) {
	n := len(s.x)
	if k = min(k, n); k == 0 {
		return nil, 0
	}
	if k == n {
		s.path = s.path[:0]
		for i := range n + 1 {
			s.path = append(s.path, int32(i))
		}
	} else if !s.search(k) {
		s.between(k)
	}
	centroids = make([]float64, k)
	err = s.all
	for j := range k {
		a, b := s.node[s.path[j]], s.node[s.path[j+1]]
		d, w := b.s-a.s, b.w-a.w
		centroids[j] = d / w
		err -= float64(d*d) / w
	}
	return centroids, max(err, 0)
}

// search looks for a price at which the cheapest way has k steps. Where it
// gives up, below and above are cheapest ways that enclose k.
func (s *solver) search(k int) bool {
	const enough = 12
	n := len(s.x)
	s.below = append(s.below[:0], 0, int32(n))
	s.above = s.above[:0]
	for i := range n + 1 {
		s.above = append(s.above, int32(i))
	}
	if k == 1 {
		s.path = append(s.path[:0], s.below...)
		return true
	}
	low, high := 0.0, math.Inf(1) // prices of above and below
	price := s.guess(k)
	for range enough {
		if !(price > low && price < high) {
			switch {
			case math.IsInf(high, 1):
				price = 4 * low
			case low == 0:
				price = high / 4
			default:
				price = math.Sqrt(low) * math.Sqrt(high)
			}
			if !(price > low && price < high) {
				return false
			}
		}
		s.run(price)
		got := len(s.path) - 1
		switch {
		case got == k:
			return true
		case got < k:
			high = price
			s.below, s.path = s.path, s.below
		default:
			low = price
			s.above, s.path = s.path, s.above
		}
		if got == k-1 || got == k+1 {
			return false // what is left to do between is less than another pass
		}
		r := (float64(got) + offset) / (float64(k) + offset)
		price *= r * r * r
	}
	return false
}

// offset makes (k + offset)² times the error of k entries about constant.
const offset = 0.9

// guess estimates the error that one entry more saves: errors of k entries are
// about (∫ density^(1/3))³/(12·k²) (Panter and Dite, 1951). The density is taken
// as constant in quarters of an octave, which is about a tenth too little.
func (s *solver) guess(k int) float64 {
	var sum, w, first float64
	bin := int64(math.MinInt64)
	last := 0.0
	flush := func() {
		if w > 0 {
			sum += elementary.Pow(w*float64((last-first)*(last-first)), 1.0/3)
		}
	}
	for i, x := range s.x {
		b := int64(math.Float64bits(x) >> 50)
		if b != bin {
			// The bin reaches as far as the next one.
			last = x
			flush()
			bin, w, first = b, 0, x
		}
		w += s.node[i+1].w - s.node[i].w
		last = x
	}
	flush()
	q := float64(k) + offset
	return 1.09 * sum * sum * sum / (6 * q * q * q)
}

// run finds the cheapest way at a price a step.
func (s *solver) run(price float64) {
	s.blocks(price)
	s.path = s.path[:0]
	for i := int32(len(s.x)); i > 0; i = s.node[i].from {
		s.path = append(s.path, i)
	}
	s.path = append(s.path, 0)
	slices.Reverse(s.path)
}
