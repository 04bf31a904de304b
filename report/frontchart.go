package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Point is a mark beside a front: another tool's model, say.
type Point struct {
	Name   string  `json:"name"`
	BPW    float64 `json:"bits_per_weight"`
	Damage float64 `json:"damage"`
}

// Line is a further front, of another map or of another rule.
type Line struct {
	Name  string
	Front []Front
	// Steps says that there is nothing between the points: what is left of a
	// budget stays unused.
	Steps bool
}

// FrontSVG draws damage over size, on a logarithmic scale, as an SVG file.
func FrontSVG(front []Front, points []Point, lines ...Line) []byte {
	return []byte(frontChart(front, points, nil, lines).svg("damage over bits per weight", true))
}

// plane maps figures to places: bits a weight evenly, damage by its logarithm.
type plane struct {
	area           rectangle
	x0, x1, y0, y1 float64
}

func (p *plane) x(v float64) float64 { return p.area.x + (v-p.x0)/(p.x1-p.x0)*p.area.w }

func (p *plane) y(v float64) float64 {
	l := math.Log10(max(v, p.y0))
	return p.area.y + (math.Log10(p.y1)-l)/(math.Log10(p.y1)-math.Log10(p.y0))*p.area.h
}

// axes draws the frame of a plane around figures; false if there are none.
func (c *canvas) axes(area rectangle, xs, ys []float64) (*plane, bool) {
	ys = slices.DeleteFunc(ys, func(y float64) bool { return !(y > 0) })
	if len(xs) == 0 || len(ys) == 0 {
		c.text(c.width/2, c.height/2, "soft", "middle", "nothing to draw")
		return nil, false
	}
	p := &plane{area: area, x0: math.Floor(slices.Min(xs)*4) / 4, x1: math.Ceil(slices.Max(xs)*4) / 4}
	if p.x1 <= p.x0 {
		p.x1 = p.x0 + 1
	}
	marks := ticks(slices.Min(ys), slices.Max(ys))
	p.y0, p.y1 = marks[0], marks[len(marks)-1]
	right, bottom := area.x+area.w, area.y+area.h
	last := math.Inf(1)
	for _, v := range marks {
		y := p.y(v)
		c.line(area.x, y, right, y, "grid")
		decade := math.Abs(math.Log10(v)-math.Round(math.Log10(v))) < 1e-9
		if decade || len(marks) <= 10 && last-y > 14 {
			c.text(area.x-8, y+4, "small", "end", fmt.Sprintf("%.3g", v))
			last = y
		}
	}
	step := 0.5
	if p.x1-p.x0 > 6 {
		step = 1
	}
	for v := math.Ceil(p.x0/step) * step; v <= p.x1+1e-9; v += step {
		c.line(p.x(v), area.y, p.x(v), bottom, "grid")
		c.text(p.x(v), bottom+18, "small", "middle", fmt.Sprintf("%.4g", v))
	}
	c.line(area.x, bottom, right, bottom, "axis")
	c.text(area.x+area.w/2, bottom+38, "soft", "middle", "bits per weight, everything counted")
	c.add(`<text transform="translate(16 %.1f) rotate(-90)" class="soft" text-anchor="middle">damage (KL divergence, nats)</text>`, area.y+area.h/2)
	return p, true
}

// curve draws a front and tells labels where it is.
func (c *canvas) curve(p *plane, l *labels, front []Front, class string, steps bool) {
	var path strings.Builder
	for i, f := range front {
		x, y := p.x(f.BPW), p.y(f.Damage)
		if i == 0 {
			fmt.Fprintf(&path, "M%.1f %.1f", x, y)
			continue
		}
		lastX, lastY := p.x(front[i-1].BPW), p.y(front[i-1].Damage)
		if steps {
			fmt.Fprintf(&path, "H%.1fV%.1f", x, y)
			l.line(lastX, lastY, x, lastY)
			l.line(x, lastY, x, y)
			continue
		}
		fmt.Fprintf(&path, "L%.1f %.1f", x, y)
		l.line(lastX, lastY, x, y)
	}
	c.add(`<path class="%s" d="%s"/>`, class, path.String())
}

// frontChart draws a front, other lines, points of others, and a chosen solution.
func frontChart(front []Front, points []Point, chosen *Point, lines []Line) *canvas {
	c := &canvas{width: 860, height: 470}
	var xs, ys []float64
	add := func(x, y float64) { xs, ys = append(xs, x), append(ys, y) }
	for _, f := range front {
		add(f.BPW, f.Damage)
	}
	for _, l := range lines {
		for _, f := range l.Front {
			add(f.BPW, f.Damage)
		}
	}
	for _, p := range points {
		add(p.BPW, p.Damage)
	}
	if chosen != nil {
		add(chosen.BPW, chosen.Damage)
	}
	top := 40.0 + 18*float64(legendRows(lines, points)-1)
	p, ok := c.axes(rectangle{64, top, c.width - 64 - 20, c.height - top - 50}, xs, ys)
	if !ok {
		return c
	}
	l := &labels{area: p.area}
	for i, x := range lines {
		c.curve(p, l, x.Front, fmt.Sprintf("line l%d", i%4+1), x.Steps)
	}
	c.curve(p, l, front, "front", false)
	for _, f := range front {
		c.add(`<circle class="dot" cx="%.1f" cy="%.1f" r="3"><title>%.3f bits: damage %.5f, %s</title></circle>`, p.x(f.BPW), p.y(f.Damage), f.BPW, f.Damage, html.EscapeString(f.Widths))
	}
	marks := slices.Clone(points)
	slices.SortStableFunc(marks, func(a, b Point) int {
		switch {
		case a.BPW < b.BPW:
			return -1
		case a.BPW > b.BPW:
			return 1
		}
		return 0
	})
	for _, m := range marks {
		l.mark(p.x(m.BPW), p.y(m.Damage), 6)
	}
	if chosen != nil {
		x, y := p.x(chosen.BPW), p.y(chosen.Damage)
		l.mark(x, y, 8)
		c.add(`<circle class="chosen" cx="%.1f" cy="%.1f" r="7"><title>%s: %.3f bits, damage %.5f</title></circle>`, x, y, html.EscapeString(chosen.Name), chosen.BPW, chosen.Damage)
		left, base, _ := l.place(x, y, 8, 6.8*float64(len([]rune(chosen.Name))), 13)
		c.text(left, base, "strong", "start", chosen.Name)
	}
	for _, m := range marks {
		x, y := p.x(m.BPW), p.y(m.Damage)
		width := 5.9 * float64(len([]rune(m.Name)))
		left, base, far := l.place(x, y, 5, width, 12)
		if far {
			to := left
			if left+width/2 < x {
				to = left + width
			}
			c.line(x, y, to, base-4, "leader")
		}
		c.add(`<circle class="peer" cx="%.1f" cy="%.1f" r="4.5"><title>%s: %.3f bits, %.5f</title></circle>`, x, y, html.EscapeString(m.Name), m.BPW, m.Damage)
		c.text(left, base, "peername", "start", m.Name)
	}
	c.legend(lines, len(points) > 0)
	return c
}

// entries of a legend with their widths.
func entries(lines []Line, points bool) (names []string, widths []float64) {
	names = []string{"best allocation of each size"}
	for _, l := range lines {
		names = append(names, l.Name)
	}
	if points {
		names = append(names, "measured models of others")
	}
	for _, n := range names {
		widths = append(widths, 52+6.4*float64(len([]rune(n))))
	}
	return names, widths
}

func legendRows(lines []Line, points []Point) int {
	_, widths := entries(lines, len(points) > 0)
	rows, x := 1, 64.0
	for _, w := range widths {
		if x > 64 && x+w > 850 {
			rows, x = rows+1, 64
		}
		x += w
	}
	return rows
}

// legend explains lines and marks above the chart.
func (c *canvas) legend(lines []Line, points bool) {
	names, widths := entries(lines, points)
	x, y := 64.0, 18.0
	for i, n := range names {
		if x > 64 && x+widths[i] > 850 {
			x, y = 64, y+18
		}
		switch {
		case i == 0:
			c.line(x, y-4, x+24, y-4, "front")
			c.add(`<circle class="dot key" cx="%.1f" cy="%.1f" r="3"/>`, x+12, y-4)
		case i <= len(lines):
			c.line(x, y-4, x+24, y-4, fmt.Sprintf("line l%d", (i-1)%4+1))
		default:
			c.add(`<circle class="peer" cx="%.1f" cy="%.1f" r="4.5"/>`, x+14, y-4)
		}
		c.text(x+30, y, "small", "start", n)
		x += widths[i]
	}
}
