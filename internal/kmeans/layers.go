package kmeans

import "math"

// layers are the tables of dynamic programming with a number of steps.
type layers struct {
	lo, hi     []int32 // of step j: positions it may end at
	prev, next []float64
	from       [][]int32
}

// between finds the best way of k steps between those of below and above.
func (s *solver) between(k int) {
	l, n := &s.layers, int32(len(s.x))
	k1, k2 := len(s.below)-1, len(s.above)-1
	l.lo, l.hi = growInt(l.lo, k+1), growInt(l.hi, k+1)
	l.lo[0], l.hi[0] = 0, 0
	for j := 1; j <= k; j++ {
		l.lo[j], l.hi[j] = s.above[j], n
		if i := j - (k - k1); i > 0 {
			l.lo[j] = max(l.lo[j], s.below[i])
		}
		if j <= k1 {
			l.hi[j] = s.below[j]
		}
		if i := j + k2 - k; i <= k2 {
			l.hi[j] = min(l.hi[j], s.above[i])
		}
		l.lo[j] = max(l.lo[j], l.lo[j-1]+1)
	}
	l.lo[k], l.hi[k] = n, n
	for j := k - 1; j > 0; j-- {
		l.hi[j] = min(l.hi[j], l.hi[j+1]-1)
		l.lo[j] = min(l.lo[j], l.hi[j])
	}
	s.dynamic(k)
}

// dynamic finds the best way of k steps whose step j ends in [lo[j], hi[j]].
// With D(j, i) the least cost of j steps to i,
//
//	D(j, i) = min over a of D(j−1, a) + cost(a, i);
//
// the best a does not decrease with i, so the a of a middle i halves the problem
// (Grønlund et al., "Fast exact k-means, k-medians and Bregman divergence
// clustering in 1D", 2017).
func (s *solver) dynamic(k int) {
	l, n := &s.layers, len(s.x)
	l.prev, l.next = grow(l.prev, n+1), grow(l.next, n+1)
	for len(l.from) < k+1 {
		l.from = append(l.from, nil)
	}
	l.prev[0] = 0
	for j := 1; j <= k; j++ {
		l.from[j] = growInt(l.from[j], int(l.hi[j]-l.lo[j])+1)
		s.layer(j, int(l.lo[j]), int(l.hi[j]), int(l.lo[j-1]), int(l.hi[j-1]))
		l.prev, l.next = l.next, l.prev
	}
	s.path = growInt(s.path, k+1)
	i := int32(n)
	for j := k; j >= 0; j-- {
		s.path[j] = i
		if j > 0 {
			i = l.from[j][i-l.lo[j]]
		}
	}
}

// layer computes D(j, i) for lo ≤ i ≤ hi, knowing that the best a is in [first, last].
func (s *solver) layer(j, lo, hi, first, last int) {
	l := &s.layers
	for lo <= hi {
		i := (lo + hi) / 2
		best, at := math.Inf(1), first
		si, wi := s.node[i].s, s.node[i].w
		for a := first; a <= min(last, i-1); a++ {
			d := si - s.node[a].s
			if c := l.prev[a] - float64(d*d)/(wi-s.node[a].w); c < best {
				best, at = c, a
			}
		}
		l.next[i] = best
		l.from[j][i-int(l.lo[j])] = int32(at)
		s.layer(j, lo, i-1, first, at)
		lo, first = i+1, at
	}
}

func grow(b []float64, n int) []float64 {
	if cap(b) < n {
		return make([]float64, n)
	}
	return b[:n]
}

func growInt(b []int32, n int) []int32 {
	if cap(b) < n {
		return make([]int32, n)
	}
	return b[:n]
}
