package report

import (
	"math"
	"slices"
)

// rectangle is an area of a chart, from its upper left corner.
type rectangle struct{ x, y, w, h float64 }

func (r rectangle) overlap(o rectangle) float64 {
	w := min(r.x+r.w, o.x+o.w) - max(r.x, o.x)
	h := min(r.y+r.h, o.y+o.h) - max(r.y, o.y)
	if w <= 0 || h <= 0 {
		return 0
	}
	return w * h
}

// labels places names beside their marks, so that they cover as little as
// possible of each other and of what is drawn.
type labels struct {
	area  rectangle   // that names stay inside of
	taken []rectangle // by names and marks
	lines []rectangle // small pieces of lines
}

// mark notes a mark of radius r, which names must not cover.
func (l *labels) mark(x, y, r float64) {
	l.taken = append(l.taken, rectangle{x - r, y - r, 2 * r, 2 * r})
}

// line notes a line from a to b.
func (l *labels) line(x1, y1, x2, y2 float64) {
	n := max(1, int(math.Hypot(x2-x1, y2-y1)/4))
	for i := range n + 1 {
		t := float64(i) / float64(n)
		l.lines = append(l.lines, rectangle{x1 + t*(x2-x1) - 2, y1 + t*(y2-y1) - 2, 4, 4})
	}
}

// place finds where the name of the mark at x, y goes: the left end of its
// baseline, and whether it is far enough from the mark to need a line to it.
func (l *labels) place(x, y, r, width, size float64) (left, base float64, far bool) {
	best, cost := rectangle{}, math.Inf(1)
	for _, reach := range []float64{r + 5, r + 16, r + 30, r + 46, r + 64} {
		for k := range 16 {
			a := 2 * math.Pi * float64(k) / 16
			dx, dy := math.Cos(a), math.Sin(a)
			// The box touches the circle of this reach with its nearest side.
			b := rectangle{x + dx*reach, y + dy*reach - size/2, width, size}
			switch {
			case math.Abs(dx) < 0.3:
				b.x -= width / 2
			case dx < 0:
				b.x -= width
			}
			if math.Abs(dx) < 0.8 {
				b.y += math.Copysign(size/2, dy)
			}
			c := 4 * reach
			if dx < -0.3 {
				c += 3
			}
			for _, o := range l.taken {
				c += 12 * b.overlap(o)
			}
			for _, o := range l.lines {
				c += 2 * b.overlap(o)
			}
			c += 50 * (width*size - b.overlap(l.area))
			if c < cost {
				best, cost, far = b, c, reach > r+16
			}
		}
	}
	l.taken = append(l.taken, best)
	return best.x, best.y + size*0.8, far
}

// ticks are round values 1, 2 and 5 times powers of ten around [lo, hi], the
// first and the last one not inside of it.
func ticks(lo, hi float64) []float64 {
	var out []float64
	for e := math.Floor(math.Log10(lo)) - 1; e <= math.Ceil(math.Log10(hi))+1; e++ {
		for _, k := range []float64{1, 2, 5} {
			out = append(out, k*math.Pow(10, e))
		}
	}
	first, last := 0, len(out)-1
	for i, v := range out {
		if v <= lo*(1+1e-9) {
			first = i
		}
	}
	for i, v := range slices.Backward(out) {
		if v >= hi*(1-1e-9) {
			last = i
		}
	}
	return out[first : max(last, first+1)+1]
}
