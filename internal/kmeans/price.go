package kmeans

import "math"

// blocks finds the cheapest way to every position, some positions at a time. To
// those of a block the last step comes from before the block, as long as steps are
// longer; where from does not decrease, so that a middle position halves the
// problem. If a step starts inside a block, one to the block's last position does,
// since it can only start later; then half the block is tried.
func (s *solver) blocks(price float64) {
	nd := s.node
	n := len(nd) - 1
	first := 0
	for p := 1; p <= n; {
		size := min(max((p-first)/5, 1), n+1-p)
		for {
			last := p + size - 1
			s.block(last, last, first, p-1, price)
			s.block(p, last-1, first, int(nd[last].from), price)
			if s.within(p, last, price) {
				size /= 2
				continue
			}
			first, p = int(nd[last].from), last+1
			break
		}
	}
}

// within reports whether the way to last is cheaper by a step from p or later.
func (s *solver) within(p, last int, price float64) bool {
	end := s.node[last]
	for i := p; i < last; i++ {
		a := &s.node[i]
		d := end.s - a.s
		if a.f-float64(d*d)/(end.w-a.w)+price < end.f {
			return true
		}
	}
	return false
}

// block finds the ways to positions lo to hi whose last steps start in [first, last].
func (s *solver) block(lo, hi, first, last int, price float64) {
	if first == last { // often
		a := s.node[first]
		for i := lo; i <= hi; i++ {
			v := &s.node[i]
			d := v.s - a.s
			v.f, v.from = a.f-float64(d*d)/(v.w-a.w)+price, int32(first)
		}
		return
	}
	for lo <= hi {
		i := (lo + hi) / 2
		v := &s.node[i]
		best, at := math.Inf(1), first
		ws, ww := v.s, v.w
		from := s.node[first : last+1]
		for j := range from {
			a := &from[j]
			d := ws - a.s
			if c := a.f - float64(d*d)/(ww-a.w); c < best {
				best, at = c, first+j
			}
		}
		v.f, v.from = best+price, int32(at)
		if lo < i {
			s.block(lo, i-1, first, at, price)
		}
		lo, first = i+1, at
	}
}
