package report

import (
	"fmt"
	"html"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/sensitivity"
)

// heatFormats are the formats that most tensors have, at most three: the
// narrowest, one of the middle, the widest but one.
func heatFormats(m *sensitivity.Map) []string {
	count := map[string]int{}
	var names []string
	bits := map[string]int{}
	for _, t := range m.Tensors {
		for _, c := range t.Candidates {
			n := sensitivity.Name(c.Format)
			if count[n] == 0 {
				names = append(names, n)
			}
			count[n]++
			bits[n] = c.Bits
		}
	}
	most := 0
	for _, n := range names {
		most = max(most, count[n])
	}
	names = slices.DeleteFunc(names, func(n string) bool { return 2*count[n] < most })
	slices.SortStableFunc(names, func(a, b string) int { return bits[a] - bits[b] })
	if len(names) <= 3 {
		return names
	}
	return []string{names[0], names[len(names)/3], names[2*len(names)/3]}
}

// cells lays tensors out by class and layer.
type cells struct {
	classes []quant.Class
	layers  int
	at      map[quant.Class]map[int]*sensitivity.Tensor
	outside []*sensitivity.Tensor
}

func layOut(m *sensitivity.Map) *cells {
	c := &cells{layers: m.Source.Layers, at: map[quant.Class]map[int]*sensitivity.Tensor{}}
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if t.Layer < 0 {
			c.outside = append(c.outside, t)
			continue
		}
		if c.at[t.Class] == nil {
			c.at[t.Class] = map[int]*sensitivity.Tensor{}
			c.classes = append(c.classes, t.Class)
		}
		if c.at[t.Class][t.Layer] == nil {
			c.at[t.Class][t.Layer] = t
		}
		c.layers = max(c.layers, t.Layer+1)
	}
	slices.SortStableFunc(c.classes, func(a, b quant.Class) int {
		return slices.Index(quant.Classes, a) - slices.Index(quant.Classes, b)
	})
	return c
}

const (
	gridLeft, gridTop = 96.0, 26.0
	cellHeight        = 30.0
)

// grid draws a cell for every tensor: its colour, a short text in it and what it
// says when pointed at. total sums a row up, under a heading.
func (c *cells) grid(show func(t *sensitivity.Tensor) (fill, ink, short, long string), heading string, total func(ts []*sensitivity.Tensor) string) *canvas {
	v := &canvas{width: 860}
	columns := max(c.layers, 1)
	w := min(44.0, (v.width-gridLeft-74)/float64(columns))
	end := gridLeft + max(w*float64(columns), 60) + 64
	v.text(end, gridTop-8, "small", "end", heading)
	cell := func(x, y, w float64, t *sensitivity.Tensor) {
		fill, ink, short, long := show(t)
		v.add(`<g><title>%s</title><rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3" fill="%s"/>`, html.EscapeString(t.Path+": "+long), x+1, y+1, w-2, cellHeight-2, fill)
		if w >= 24 {
			v.add(`<text x="%.1f" y="%.1f" text-anchor="middle" style="font-size:10.5px;fill:%s">%s</text>`, x+w/2, y+cellHeight/2+4, ink, html.EscapeString(short))
		}
		v.add("</g>")
	}
	y := gridTop
	every := 1
	if w < 18 {
		every = 4
	}
	for l := 0; l < c.layers; l += every {
		v.text(gridLeft+(float64(l)+.5)*w, gridTop-8, "small", "middle", fmt.Sprint(l))
	}
	v.text(gridLeft-10, gridTop-8, "small", "end", "layer")
	for _, class := range c.classes {
		v.text(gridLeft-10, y+cellHeight/2+4, "", "end", string(class))
		var row []*sensitivity.Tensor
		for l := range c.layers {
			if t := c.at[class][l]; t != nil {
				cell(gridLeft+float64(l)*w, y, w, t)
				row = append(row, t)
			}
		}
		v.text(end, y+cellHeight/2+4, "", "end", total(row))
		y += cellHeight
	}
	for _, t := range c.outside {
		v.text(gridLeft-10, y+cellHeight/2+4, "", "end", string(t.Class))
		cell(gridLeft, y, max(w*float64(columns), 60), t)
		v.text(end, y+cellHeight/2+4, "", "end", total([]*sensitivity.Tensor{t}))
		y += cellHeight
	}
	v.height = y + 8
	return v
}

// heatChart colours tensors by their damage in one format.
func heatChart(m *sensitivity.Map, format string) *canvas {
	c := layOut(m)
	find := func(t *sensitivity.Tensor) *sensitivity.Measurement {
		for i := range t.Candidates {
			if sensitivity.Name(t.Candidates[i].Format) == format {
				return &t.Candidates[i]
			}
		}
		return nil
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	for i := range m.Tensors {
		if x := find(&m.Tensors[i]); x != nil && x.Damage > 0 {
			lo, hi = min(lo, math.Log10(x.Damage)), max(hi, math.Log10(x.Damage))
		}
	}
	v := c.grid(func(t *sensitivity.Tensor) (string, string, string, string) {
		x := find(t)
		if x == nil {
			return "#d5d9dc", "#444", "–", "cannot be stored so"
		}
		part := 0.0
		if x.Damage > 0 && hi > lo {
			part = (math.Log10(x.Damage) - lo) / (hi - lo)
		}
		ink := "#222"
		if part > 0.55 {
			ink = "#fff"
		}
		return heat(part), ink, short(x.Damage), fmt.Sprintf("damage %.6f ± %.6f, %s", x.Damage, x.StandardError, megabytes(x.Bytes))
	}, "sum", func(ts []*sensitivity.Tensor) string {
		var sum float64
		for _, t := range ts {
			if x := find(t); x != nil {
				sum += x.Damage
			}
		}
		return short(sum)
	})
	if hi > lo {
		y := v.height + 6
		for i := range 60 {
			v.add(`<rect x="%.1f" y="%.1f" width="4.2" height="9" fill="%s"/>`, gridLeft+float64(i)*4, y, heat(float64(i)/59))
		}
		v.text(gridLeft, y+22, "small", "start", fmt.Sprintf("%.2g", math.Pow(10, lo)))
		v.text(gridLeft+240, y+22, "small", "end", fmt.Sprintf("%.2g nats", math.Pow(10, hi)))
		v.text(gridLeft+252, y+9, "small", "start", "figures: thousandths of a nat")
		v.height = y + 30
	}
	return v
}

// short prints damage in thousandths.
func short(d float64) string {
	d *= 1000
	switch {
	case d >= 100:
		return fmt.Sprintf("%.0f", d)
	case d >= 10:
		return fmt.Sprintf("%.0f", d)
	case d >= 1:
		return fmt.Sprintf("%.1f", d)
	case d >= 0.01:
		return strings.TrimPrefix(fmt.Sprintf("%.2f", d), "0")
	}
	return "0"
}

// heat goes from pale to dark through the hues of a fire, lightness falling
// evenly.
func heat(x float64) string {
	stops := [][3]float64{{250, 243, 221}, {253, 206, 130}, {240, 140, 74}, {204, 71, 61}, {122, 26, 62}}
	x = min(max(x, 0), 1) * float64(len(stops)-1)
	i := min(int(x), len(stops)-2)
	f := x - float64(i)
	var c [3]int
	for k := range c {
		c[k] = int(stops[i][k] + f*(stops[i+1][k]-stops[i][k]) + .5)
	}
	return fmt.Sprintf("#%02x%02x%02x", c[0], c[1], c[2])
}

// widthColor is that of a width in bits.
func widthColor(bits int) (fill, ink string) {
	colors := map[int]string{2: "#f1eef6", 3: "#d8e3ee", 4: "#b3cde3", 5: "#7fb2d3", 6: "#4a90bf", 8: "#1b5f93"}
	fill, ok := colors[bits]
	if !ok {
		fill = "#0c3c61"
	}
	ink = "#1c2024"
	if bits >= 6 {
		ink = "#fff"
	}
	return fill, ink
}

// recipeChart shows every tensor's width.
func recipeChart(p Page) *canvas {
	formats := p.Problem.Formats(p.Solution)
	seen := map[int]bool{}
	v := layOut(p.Map).grid(func(t *sensitivity.Tensor) (string, string, string, string) {
		f, ok := formats[t.Path]
		if !ok {
			fill, ink := widthColor(16)
			seen[16] = true
			return fill, ink, "16", "kept"
		}
		bits := f.Bits
		if c, err := quant.NewFloat(f.Codec); err == nil {
			bits = c.Bits()
		}
		fill, ink := widthColor(bits)
		seen[bits] = true
		return fill, ink, fmt.Sprint(bits), sensitivity.Name(f)
	}, "size", func(ts []*sensitivity.Tensor) string {
		var n int64
		for _, t := range ts {
			n += sizeOf(t, formats)
		}
		return megabytes(n)
	})
	v.key(seen)
	return v
}

// sizeOf is the size of a tensor in its chosen format.
func sizeOf(t *sensitivity.Tensor, formats map[string]quant.Format) int64 {
	if f, ok := formats[t.Path]; ok {
		for _, c := range t.Candidates {
			if c.Format == f {
				return c.Bytes
			}
		}
	}
	return t.Bytes
}

// key explains the colours of widths; 16 stands for what is kept.
func (c *canvas) key(seen map[int]bool) {
	x, y := gridLeft, c.height+6
	for _, b := range slices.Sorted(maps.Keys(seen)) {
		fill, ink := widthColor(b)
		name := fmt.Sprintf("%d bits", b)
		if b == 16 {
			name = "kept as it is"
		}
		c.add(`<rect x="%.1f" y="%.1f" width="22" height="16" rx="3" fill="%s"/>`, x, y, fill)
		c.add(`<text x="%.1f" y="%.1f" text-anchor="middle" style="font-size:10.5px;fill:%s">%d</text>`, x+11, y+12, ink, b)
		c.text(x+28, y+12, "small", "start", name)
		x += 44 + 6.4*float64(len(name))
	}
	c.height = y + 24
}

// bytesChart is a bar a class, in parts by width.
func bytesChart(p Page) *canvas {
	v := &canvas{width: 860}
	rows := p.Problem.Classes(p.Solution)
	total := map[quant.Class]int64{}
	var classes []quant.Class
	var most int64
	for _, r := range rows {
		if total[r.Class] == 0 {
			classes = append(classes, r.Class)
		}
		total[r.Class] += r.Bytes
		most = max(most, total[r.Class])
	}
	all := p.Problem.Bytes(p.Solution)
	scale := (v.width - gridLeft - 170) / float64(most)
	y := 8.0
	for _, c := range classes {
		v.text(gridLeft-10, y+17, "", "end", string(c))
		x := gridLeft
		for _, r := range rows {
			if r.Class != c {
				continue
			}
			bits := 16
			fmt.Sscanf(r.Format[strings.IndexByte(r.Format+" ", ' ')+0:], " %d-bit", &bits)
			fill, ink := widthColor(bits)
			w := float64(r.Bytes) * scale
			v.add(`<g><title>%s</title><rect x="%.1f" y="%.1f" width="%.1f" height="22" fill="%s"/>`, html.EscapeString(fmt.Sprintf("%s, %s: %d tensors, %s", c, r.Format, r.Tensors, megabytes(r.Bytes))), x, y, max(w, .5), fill)
			if w > 22 {
				v.add(`<text x="%.1f" y="%.1f" text-anchor="middle" style="font-size:10.5px;fill:%s">%d</text>`, x+w/2, y+15, ink, bits)
			}
			v.add("</g>")
			x += w
		}
		v.text(x+8, y+16, "small", "start", fmt.Sprintf("%s · %.1f %%", megabytes(total[c]), 100*float64(total[c])/float64(all)))
		y += 28
	}
	v.height = y + 4
	return v
}
