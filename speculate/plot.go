package speculate

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// palette has colours that differ in lightness as well.
var palette = []color.RGBA{{0x1b, 0x5e, 0xa8, 0xff}, {0xd9, 0x6b, 0x0b, 0xff}, {0x3b, 0x8f, 0x52, 0xff}, {0x8a, 0x3f, 0x9c, 0xff}, {0x77, 0x77, 0x77, 0xff}}

// Plot draws, as SVG, how many drafts of each slot every arm gets accepted.
func (r *Result) Plot() ([]byte, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("accepted drafts by position (%s)", r.Mode)
	p.X.Label.Text, p.Y.Label.Text = "draft position", "accepted"
	p.Y.Min, p.Y.Max, p.X.Min = 0, 1, 0.5
	slots := 0
	for i, a := range r.Arms {
		var xy plotter.XYs
		for k, s := range a.Summary.Slots {
			xy = append(xy, plotter.XY{X: float64(k + 1), Y: s.Rate})
		}
		slots = max(slots, len(xy))
		if err := series(p, a.Name, i, xy, nil); err != nil {
			return nil, err
		}
	}
	p.X.Max = float64(slots) + 0.5
	p.X.Tick.Marker = plot.ConstantTicks(whole(slots))
	return svg(p)
}

// Sizes groups the arms that read anything by what their names begin with, up
// to the last "-", into curves of acceptance by the bytes of a draft. The first
// arm is none of them: level is its acceptance. There are no curves with fewer
// than three arms.
func (r *Result) Sizes() (curves []Curve, level float64) {
	if len(r.Arms) < 3 || r.Arms[0].Bytes == 0 {
		return nil, 0
	}
	for _, a := range r.Arms[1:] {
		if a.Bytes == 0 {
			continue
		}
		name := a.Name
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		at := slices.IndexFunc(curves, func(c Curve) bool { return c.Name == name })
		if at < 0 {
			at, curves = len(curves), append(curves, Curve{Name: name})
		}
		curves[at].Points = append(curves[at].Points, Point{a.Bytes / 1000, a.Summary.Acceptance, a.Name})
	}
	for _, c := range curves {
		slices.SortStableFunc(c.Points, func(p, q Point) int { return cmp.Compare(p.X, q.X) })
	}
	return curves, r.Arms[0].Summary.Acceptance.Value
}

// Point is an artifact of a Curve.
type Point struct {
	X   float64
	Y   Interval
	Tag string
}

// Curve is a named row of points.
type Curve struct {
	Name   string
	Points []Point
}

// PlotCurves draws, as SVG, acceptance against size with intervals. level, if
// not 0, is drawn as a line across: what the original reaches.
func PlotCurves(title, x, y string, curves []Curve, level float64) ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	lo, hi := 0.0, 0.0
	for i, c := range curves {
		var xy plotter.XYs
		var bars []Interval
		for _, q := range c.Points {
			xy, bars = append(xy, plotter.XY{X: q.X, Y: q.Y.Value}), append(bars, q.Y)
			if hi == 0 || q.X < lo {
				lo = q.X
			}
			hi = max(hi, q.X)
		}
		if err := series(p, c.Name, i, xy, bars); err != nil {
			return nil, err
		}
	}
	if level != 0 {
		l, err := plotter.NewLine(plotter.XYs{{X: lo, Y: level}, {X: hi, Y: level}})
		if err != nil {
			return nil, fmt.Errorf("speculate: plot: %w", err)
		}
		l.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
		p.Add(l)
		p.Legend.Add("original", l)
	}
	p.X.Tick.Marker = short{}
	p.Y.Tick.Marker = short{}
	return svg(p)
}

func whole(n int) (ticks []plot.Tick) {
	for k := 1; k <= n; k++ {
		ticks = append(ticks, plot.Tick{Value: float64(k), Label: fmt.Sprint(k)})
	}
	return ticks
}

// short are the usual ticks with labels of as few digits as they need.
type short struct{}

func (short) Ticks(lo, hi float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(lo, hi)
	for i, t := range ticks {
		if t.Label != "" {
			ticks[i].Label = strconv.FormatFloat(t.Value, 'g', 4, 64)
		}
	}
	return ticks
}

// errorBars are points with intervals.
type errorBars struct {
	plotter.XYs
	bars []Interval
}

func (e errorBars) YError(i int) (low, high float64) {
	b := e.bars[i]
	return b.Value - b.Low, b.High - b.Value
}

func series(p *plot.Plot, name string, i int, xy plotter.XYs, bars []Interval) error {
	line, points, err := plotter.NewLinePoints(xy)
	if err != nil {
		return fmt.Errorf("speculate: plot: %s: %w", name, err)
	}
	c := palette[i%len(palette)]
	line.Color, points.Color = c, c
	line.Width = vg.Points(1.5)
	points.Shape = draw.CircleGlyph{}
	if round := i / len(palette); round > 0 { // the same colours again
		line.Dashes = []vg.Length{vg.Points(float64(6 / round)), vg.Points(2)}
		points.Shape = draw.PyramidGlyph{}
	}
	p.Add(line, points)
	if bars != nil {
		e, err := plotter.NewYErrorBars(errorBars{xy, bars})
		if err != nil {
			return fmt.Errorf("speculate: plot: %s: %w", name, err)
		}
		e.Color = c
		p.Add(e)
	}
	p.Legend.Add(name, line, points)
	return nil
}

// svg draws p with its legend beside it, where no curve is, and where text is free
// to be wider than it was measured: viewers take fonts that they have.
func svg(p *plot.Plot) ([]byte, error) {
	const width, height = 15 * vg.Centimeter, 9 * vg.Centimeter
	legend := p.Legend
	p.Legend = plot.NewLegend()
	legend.Left, legend.Top, legend.Padding = true, true, vg.Millimeter
	beside := legend.Rectangle(draw.New(vgsvg.New(width, height))).Size().X*5/4 + vg.Centimeter
	c := vgsvg.New(width+beside, height)
	all := draw.New(c)
	p.Draw(draw.Crop(all, vg.Millimeter, -beside, vg.Millimeter, -vg.Millimeter))
	legend.Draw(draw.Crop(all, width+vg.Centimeter/2, 0, 0, -vg.Centimeter/2))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("speculate: plot: %w", err)
	}
	return b.Bytes(), nil
}
