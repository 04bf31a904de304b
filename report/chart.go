package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// canvas collects SVG elements.
type canvas struct {
	b             strings.Builder
	width, height float64
}

func (c *canvas) add(format string, args ...any) {
	fmt.Fprintf(&c.b, format+"\n", args...)
}

func (c *canvas) text(x, y float64, class, anchor, s string) {
	c.add(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, html.EscapeString(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, class string) {
	c.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

// svg is the element, with the style inside if it has to stand alone.
func (c *canvas) svg(label string, alone bool) string {
	style := ""
	if alone {
		style = "<style>svg{background:#fff;color:#1c2024}" + chartStyle + "</style>\n"
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s" font-family="system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif">`+"\n%s%s</svg>\n",
		c.width, c.height, html.EscapeString(label), style, c.b.String())
}

// chartStyle colours charts; the page overrides the variables in dark mode.
const chartStyle = `
svg{--ink:#1c2024;--paper:#fff;--soft:#667078;--grid:#e3e6e8;--accent:#0b6e99;--warm:#c2571a}
svg text{font-size:12px;fill:var(--ink)}
svg .soft{fill:var(--soft)} svg .small{font-size:10.5px;fill:var(--soft)} svg .strong{font-weight:600}
svg .grid{stroke:var(--grid);stroke-width:1} svg .axis{stroke:var(--soft);stroke-width:1}
svg .front{fill:none;stroke:var(--accent);stroke-width:2.5;stroke-linejoin:round}
svg .dot{fill:var(--accent)} svg .peer{fill:none;stroke:var(--warm);stroke-width:1.8}
svg .peername{font-size:10.5px;fill:var(--warm)} svg .peername,svg .strong{paint-order:stroke;stroke:var(--paper);stroke-width:3px;stroke-linejoin:round} svg .chosen{fill:var(--warm);stroke:#fff;stroke-width:1.5}
`

// Point is a mark beside a front: another tool's model, say.
type Point struct {
	Name   string  `json:"name"`
	BPW    float64 `json:"bits_per_weight"`
	Damage float64 `json:"damage"`
}

// FrontSVG draws damage over size, on a logarithmic scale, as an SVG file.
func FrontSVG(front []Front, points []Point) []byte {
	return []byte(frontChart(front, points, nil).svg("damage over bits per weight", true))
}

// frontChart draws a front, points of others, and a chosen solution.
func frontChart(front []Front, points []Point, chosen *Point) *canvas {
	const left, right, top, bottom = 64.0, 24.0, 18.0, 48.0
	c := &canvas{width: 860, height: 420}
	xs, ys := []float64{}, []float64{}
	for _, f := range front {
		xs, ys = append(xs, f.BPW), append(ys, f.Damage)
	}
	for _, p := range points {
		xs, ys = append(xs, p.BPW), append(ys, p.Damage)
	}
	if chosen != nil {
		xs, ys = append(xs, chosen.BPW), append(ys, chosen.Damage)
	}
	ys = slices.DeleteFunc(ys, func(y float64) bool { return y <= 0 })
	if len(xs) == 0 || len(ys) == 0 {
		c.text(c.width/2, c.height/2, "soft", "middle", "nothing to draw")
		return c
	}
	x0, x1 := math.Floor(slices.Min(xs)*2)/2, math.Ceil(slices.Max(xs)*2)/2
	if x1 <= x0 {
		x1 = x0 + 1
	}
	y0, y1 := math.Floor(math.Log10(slices.Min(ys))), math.Ceil(math.Log10(slices.Max(ys)))
	if y1 <= y0 {
		y1 = y0 + 1
	}
	X := func(v float64) float64 { return left + (v-x0)/(x1-x0)*(c.width-left-right) }
	Y := func(v float64) float64 {
		l := y0
		if v > 0 {
			l = max(y0, math.Log10(v))
		}
		return top + (y1-l)/(y1-y0)*(c.height-top-bottom)
	}
	for e := y0; e <= y1; e++ {
		for _, k := range []float64{1, 2, 5} {
			v := k * math.Pow(10, e)
			if math.Log10(v) > y1+1e-9 {
				continue
			}
			c.line(left, Y(v), c.width-right, Y(v), "grid")
			if k == 1 || y1-y0 < 3 {
				c.text(left-8, Y(v)+4, "small", "end", fmt.Sprintf("%.4g", v))
			}
		}
	}
	step := 0.5
	if x1-x0 > 6 {
		step = 1
	}
	for v := x0; v <= x1+1e-9; v += step {
		c.line(X(v), top, X(v), c.height-bottom, "grid")
		c.text(X(v), c.height-bottom+18, "small", "middle", fmt.Sprintf("%.4g", v))
	}
	c.line(left, c.height-bottom, c.width-right, c.height-bottom, "axis")
	c.text((left+c.width-right)/2, c.height-10, "soft", "middle", "bits per weight, everything counted")
	c.add(`<text transform="translate(16 %.1f) rotate(-90)" class="soft" text-anchor="middle">damage (KL, nats)</text>`, (top+c.height-bottom)/2)
	var path strings.Builder
	for i, f := range front {
		cmd := "L"
		if i == 0 {
			cmd = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", cmd, X(f.BPW), Y(f.Damage))
	}
	c.add(`<path class="front" d="%s"/>`, path.String())
	for _, f := range front {
		c.add(`<circle class="dot" cx="%.1f" cy="%.1f" r="3"><title>%.3f bits: damage %.5f, %s</title></circle>`, X(f.BPW), Y(f.Damage), f.BPW, f.Damage, html.EscapeString(f.Widths))
	}
	names := slices.Clone(points)
	slices.SortStableFunc(names, func(a, b Point) int {
		switch {
		case a.BPW < b.BPW:
			return -1
		case a.BPW > b.BPW:
			return 1
		}
		return 0
	})
	type box struct{ x, y, w float64 }
	var taken []box
	for _, p := range names {
		c.add(`<circle class="peer" cx="%.1f" cy="%.1f" r="4.5"><title>%s: %.3f bits, %.5f</title></circle>`, X(p.BPW), Y(p.Damage), html.EscapeString(p.Name), p.BPW, p.Damage)
		// A name goes to the right of its mark, and lower while it would cover
		// another one.
		b := box{X(p.BPW) + 8, Y(p.Damage) + 3.5, 6 * float64(len([]rune(p.Name)))}
		anchor := "start"
		if b.x+b.w > c.width-right {
			b.x, anchor = X(p.BPW)-8-b.w, "end"
		}
		for range 40 {
			if !slices.ContainsFunc(taken, func(o box) bool {
				return math.Abs(o.y-b.y) < 11 && b.x < o.x+o.w && o.x < b.x+b.w
			}) {
				break
			}
			b.y -= 3
		}
		taken = append(taken, b)
		at := b.x
		if anchor == "end" {
			at = b.x + b.w
		}
		c.text(at, b.y, "peername", anchor, p.Name)
	}
	if chosen != nil {
		c.add(`<circle class="chosen" cx="%.1f" cy="%.1f" r="7"><title>%s</title></circle>`, X(chosen.BPW), Y(chosen.Damage), html.EscapeString(chosen.Name))
		c.text(X(chosen.BPW)+11, Y(chosen.Damage)-8, "strong", "start", chosen.Name)
	}
	return c
}
