package parity

import (
	"context"
	"math"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity/reference"
	"github.com/smelt-go/smelt/runtime"
)

// siteRows are rows of named sites by position.
type siteRows map[string]Rows

// place says where a graph computes a site.
type place struct{ chunk, function string }

type traceKey struct {
	rec  *Recording
	to   int
	from int
}

// referenceSites are the reference's intermediates at positions from ≤ p <
// to: of the recording where it has them, else recomputed.
func (s *Subject) referenceSites(ctx context.Context, rec *Recording, from, to int) (siteRows, error) {
	key := traceKey{rec, to, from}
	if t, ok := s.traces[key]; ok {
		return t, nil
	}
	out := siteRows{}
	for name, rows := range rec.Hidden {
		out[name] = rows
	}
	logits := Rows{}
	for p := from; p < to; p++ {
		if row := rec.Positions[p].Row; row != nil {
			logits[p] = row
		}
	}
	out["logits"] = logits
	if s.Reference == nil {
		s.traces[key] = out
		return out, nil
	}
	tap := func(name string, m *reference.Matrix) {
		rows := Rows{}
		for p := from; p < min(to, m.Rows); p++ {
			rows[p] = slices.Clone(m.Row(p))
		}
		out[name] = rows
	}
	s.progress("reference, every intermediate", 0, 1)
	if _, err := s.Reference.Forward(ctx, rec.IDs[:to], reference.Options{Tap: tap, Product: product}); err != nil {
		return nil, err
	}
	s.progress("reference, every intermediate", 1, 1)
	s.traces[key] = out
	return out, nil
}

// graphSites runs a recording's tokens through the bundle up to position to
// and keeps the sites at positions from ≤ p < to, unscaled.
func (s *Subject) graphSites(ctx context.Context, rec *Recording, mode runtime.Mode, via Via, from, to int) (siteRows, map[string]place, error) {
	h, err := s.Host(mode)
	if err != nil {
		return nil, nil, err
	}
	c := s.newCollector(h, from, to)
	ignore := func(engine.Row) error { return nil }
	// Functions have a fixed number of rows: start on a boundary of theirs.
	n := max(1, largest(s.Contract, via))
	start := from / n * n
	if start > 0 {
		if err := feed(ctx, h, s.Contract, via, rec.IDs[:start], ignore); err != nil {
			return nil, nil, err
		}
	}
	h.Watch(c.watcher())
	defer h.Watch(Watcher{})
	err = feed(ctx, h, s.Contract, via, rec.IDs[start:to], ignore)
	return c.rows, c.where, err
}

// collector keeps the sites of calls at positions from ≤ p < to, unscaled.
type collector struct {
	s        *Subject
	h        Host
	from, to int
	sandwich bool
	// anew forgets what earlier calls computed when a call begins.
	anew  bool
	rows  siteRows
	where map[string]place
}

func (s *Subject) newCollector(h Host, from, to int) *collector {
	return &collector{s: s, h: h, from: from, to: to, sandwich: s.sandwich(), rows: siteRows{}, where: map[string]place{}}
}

func (c *collector) keep(ch *chunking.Chunk, f *chunking.Function, name string, t *runtime.Tensor) {
	rows := tokenRows(t, f.T)
	if rows == nil {
		return
	}
	if c.rows[name] == nil {
		c.rows[name], c.where[name] = Rows{}, place{ch.Name, f.Name}
	}
	inv := 1 / scaleOf(c.s.Contract, c.sandwich, name)
	for i, row := range rows {
		p := c.h.Pos() + i
		if p < c.from || p >= c.to || c.rows[name][p] != nil {
			continue
		}
		r := make([]float32, len(row))
		for j, v := range row {
			r[j] = v * inv
		}
		c.rows[name][p] = r
	}
}

// watcher collects while calls run.
func (c *collector) watcher() Watcher {
	return Watcher{
		Values: func(ch *chunking.Chunk, f *chunking.Function, value string, t *runtime.Tensor) {
			if name, ok := siteOf(ch, f, value); ok {
				c.keep(ch, f, name, t)
			}
		},
		Inputs: func(ch *chunking.Chunk, f *chunking.Function, in map[string]*runtime.Tensor) {
			if ch.First > 0 {
				return
			}
			if c.anew {
				c.rows, c.where = siteRows{}, map[string]place{}
			}
			if p := chunking.Find(f.Inputs, models.HiddenIn, ""); p != nil {
				c.keep(ch, f, "embed", in[p.Name])
			}
			if p := chunking.Find(f.Inputs, models.PerLayerRaw, ""); p != nil {
				c.keep(ch, f, "per_layer_token", in[p.Name])
			}
		},
	}
}

// sandwich reports whether the model normalises what joins the stream.
func (s *Subject) sandwich() bool {
	if s.Config != nil {
		return s.Config.Sandwich
	}
	if s.Reference != nil {
		return s.Reference.Config().Sandwich
	}
	return false
}

// Deviation compares one site over some positions.
type Deviation struct {
	Site     string `json:"site"`
	Relative Num    `json:"relative_l2"` // largest ‖Δ‖/‖reference‖ of a position; the norm is at least the site's mean
	MaxAbs   Num    `json:"max_abs"`
	Cosine   Num    `json:"min_cosine"`
	Position int    `json:"position"` // of the largest relative deviation
}

// deviation compares rows of one site. ok is false if no position is in both.
func deviation(site string, want, got Rows) (d Deviation, ok bool) {
	d = Deviation{Site: site, Cosine: 1}
	positions := make([]int, 0, len(want))
	var mean float64
	for p, w := range want {
		if g := got[p]; g != nil && len(g) == len(w) {
			positions = append(positions, p)
			mean += norm(w)
		}
	}
	if len(positions) == 0 {
		return d, false
	}
	mean /= float64(len(positions))
	slices.Sort(positions)
	for _, p := range positions {
		w, g := want[p], got[p]
		rel := distance(w, g) / math.Max(norm(w), mean)
		if mean == 0 {
			rel = distance(w, g)
		}
		if !(rel <= float64(d.Relative)) && d.Relative == d.Relative {
			d.Relative, d.Position = Num(rel), p
		}
		d.MaxAbs = Num(math.Max(float64(d.MaxAbs), maxAbsDiff(w, g)))
		d.Cosine = Num(math.Min(float64(d.Cosine), cosine(w, g)))
	}
	return d, true
}

func norm(x []float32) float64 {
	var s float64
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return math.Sqrt(s)
}

func distance(a, b []float32) float64 {
	var s float64
	for i, v := range a {
		d := float64(v) - float64(b[i])
		s += d * d
	}
	return math.Sqrt(s)
}

// firstBeyond is the first position whose relative deviation exceeds limit.
func firstBeyond(want, got Rows, limit float64) int {
	best := -1
	var mean float64
	n := 0
	for p, w := range want {
		if got[p] != nil {
			mean += norm(w)
			n++
		}
	}
	for p, w := range want {
		g := got[p]
		if g == nil || len(g) != len(w) {
			continue
		}
		if rel := distance(w, g) / math.Max(norm(w), mean/float64(n)); !(rel <= limit) && (best < 0 || p < best) {
			best = p
		}
	}
	return best
}
