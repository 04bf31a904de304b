package quant

import "math"

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
// steps, the cheapest way is found in one pass (run; Galil and Park, "A
// linear-time algorithm for concave one-dimensional dynamic programming", 1990).
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
	queue  []start
	path   []int32 // the way found last: 0, …, n
	below  []int32 // a cheapest way of fewer than k steps
	above  []int32 // of more
	layers layers
	passes int // of run, in the last solve
}

// node is a position between values.
type node struct {
	w, s float64 // Σw, Σwx of the values before
	f    float64 // cost of the cheapest way here
	from int32   // where its last step starts
}

// start says from which position on steps from at are the best known.
type start struct{ at, since int32 }

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
	s.passes = 0
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
		if len(s.above)-len(s.below) == 2 && s.passes >= 6 {
			return false
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
// as constant in quarters of an octave.
func (s *solver) guess(k int) float64 {
	var sum, w, first float64
	bin := int64(math.MinInt64)
	last := 0.0
	flush := func() {
		if w > 0 {
			sum += math.Cbrt(w * float64((last-first)*(last-first)))
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
	return sum * sum * sum / (6 * q * q * q)
}

// run finds the cheapest way at a price a step.
func (s *solver) run(price float64) {
	s.passes++
	nd := s.node
	n := len(nd) - 1
	if cap(s.queue) < n+1 {
		s.queue = make([]start, n+1)
	}
	q := s.queue[:n+1]
	q[0] = start{0, 1}
	head, tail := 0, 1
	for i := 1; i < n; i++ {
		for head+1 < tail && int(q[head+1].since) <= i {
			head++
		}
		v := &nd[i]
		u := &nd[q[head].at]
		d := v.s - u.s
		v.f = u.f - float64(d*d)/(v.w-u.w) + price
		v.from = q[head].at
		// Steps from i overtake those from the last of the queue somewhere.
		since := 0
		for {
			b := q[tail-1]
			t := max(int(b.since), i+1)
			if !overtakes(nd, int(b.at), i, t) {
				since = t
				break
			}
			if tail--; tail == head {
				since = i // no step is better than from i
				break
			}
		}
		if tail > head {
			since = overtaking(nd, int(q[tail-1].at), i, since)
			if since > n {
				continue
			}
		} else {
			since++
		}
		q[tail] = start{int32(i), int32(since)}
		tail++
	}
	for head+1 < tail && int(q[head+1].since) <= n {
		head++
	}
	nd[n].from = q[head].at
	s.trace()
}

// trace collects the way to the end.
func (s *solver) trace() {
	s.path = s.path[:0]
	for i := int32(len(s.x)); i > 0; i = s.node[i].from {
		s.path = append(s.path, i)
	}
	s.path = append(s.path, 0)
	for i, j := 0, len(s.path)-1; i < j; i, j = i+1, j-1 {
		s.path[i], s.path[j] = s.path[j], s.path[i]
	}
}

// overtakes reports whether the way to t is cheaper by b than by a < b.
func overtakes(nd []node, a, b, t int) bool {
	u, v, to := &nd[a], &nd[b], &nd[t]
	du, dv := to.s-u.s, to.s-v.s
	wu, wv := to.w-u.w, to.w-v.w
	// f + d²/w compared without divisions.
	return float64(float64((v.f-u.f)*wu)*wv) < float64(float64(dv*dv)*wu)-float64(float64(du*du)*wv)
}

// overtaking is the first position after t, to which a is better, for which b
// is; n+1 if there is none.
func overtaking(nd []node, a, b, t int) int {
	n := len(nd) - 1
	step := 1
	for {
		next := t + step
		if next >= n {
			next = n
			if t == n || !overtakes(nd, a, b, n) {
				return n + 1
			}
		} else if !overtakes(nd, a, b, next) {
			t, step = next, 2*step
			continue
		}
		for next-t > 1 {
			mid := int(uint(next+t) / 2)
			if overtakes(nd, a, b, mid) {
				next = mid
			} else {
				t = mid
			}
		}
		return next
	}
}
