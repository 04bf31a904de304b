package parity

import (
	"fmt"
	"math"
	"slices"

	"github.com/smelt-go/smelt/parity/reference"
)

// changeOf says in a few words how rows of a site differ, where that has a
// simple form; "other values" where it has none. Positions within limit are left
// out.
func (s *Subject) changeOf(site Site, want, got Rows, limit float64) string {
	var bad []int
	for p, w := range want {
		if g := got[p]; g != nil && len(g) == len(w) {
			if finite(g) >= 0 {
				return "not finite"
			}
			if distance(w, g) > limit*math.Max(norm(w), 1e-9) {
				bad = append(bad, p)
			}
		}
	}
	slices.Sort(bad)
	if len(bad) == 0 {
		return ""
	}
	a, b := pick(want, bad), pick(got, bad)
	loose := math.Max(2*limit, 1e-2)
	if f, ok := commonFactor(a, b, loose); ok {
		return "scaled by " + s.factorName(f)
	}
	for by, name := range map[int]string{1: "row of the token before", -1: "row of the token behind"} {
		if moved(want, got, bad, by, loose) {
			return name
		}
	}
	switch k := siteKind(site.Name); k {
	case "q", "k":
		if c := s.turnOf(site.Layer, a, b); c != "" {
			return c
		}
	case "logits":
		if cap := s.softcapOf(); cap > 0 && each(a, b, loose, func(g float64) float64 { return cap * math.Tanh(g/cap) }) {
			return "without softcap"
		}
		for _, by := range []int{1, -1} {
			if rotated(a, b, by, loose) {
				return "columns moved by one"
			}
		}
	}
	if fixedGain(a, b, loose) {
		return "another gain"
	}
	if permuted(a, b, loose) {
		return "permuted"
	}
	return "other values"
}

func pick(rows Rows, positions []int) Rows {
	out := Rows{}
	for _, p := range positions {
		out[p] = rows[p]
	}
	return out
}

func sortedPositions(rows Rows) []int {
	out := make([]int, 0, len(rows))
	for p := range rows {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// commonFactor is the f for which got is f·want up to tol of its size, if
// there is one other than 1.
func commonFactor(want, got Rows, tol float64) (float64, bool) {
	var ww, wg, gg float64
	for _, p := range sortedPositions(want) {
		for i, w := range want[p] {
			g := float64(got[p][i])
			ww += float64(w) * float64(w)
			wg += float64(w) * g
			gg += g * g
		}
	}
	if ww == 0 {
		return 0, false
	}
	f := wg / ww
	rest := gg - f*wg
	if gg == 0 {
		return 0, true
	}
	return f, math.Abs(f-1) > tol && rest <= tol*tol*gg
}

// factorName names a factor in terms of the model.
func (s *Subject) factorName(f float64) string {
	c := s.Contract
	type named struct {
		v    float64
		name string
	}
	all := []named{{c.ResidualScale, "the scale of the residual stream"}}
	if cfg := s.truth(); cfg != nil {
		all = append(all, named{math.Sqrt(float64(cfg.Hidden)), "√hidden"})
		if w := cfg.PerLayer.Width; w > 0 {
			all = append(all, named{math.Sqrt(float64(w)), "√P"})
		}
	}
	for _, x := range all {
		if x.v != 1 && math.Abs(f/x.v-1) < 1e-2 {
			return x.name
		}
		if x.v != 1 && math.Abs(f*x.v-1) < 1e-2 {
			return "1/" + x.name
		}
	}
	return factorName(f)
}

func factorName(f float64) string {
	switch {
	case f == 0:
		return "0"
	case math.Abs(f+1) < 1e-2:
		return "-1"
	case math.Abs(f-math.Sqrt2) < 1e-2:
		return "√2"
	case math.Abs(f-math.Sqrt2/2) < 1e-2:
		return "1/√2"
	}
	for _, n := range []float64{2, 4, 8, 16} {
		if math.Abs(f/n-1) < 1e-2 {
			return fmt.Sprintf("%g", n)
		}
		if math.Abs(f*n-1) < 1e-2 {
			return fmt.Sprintf("1/%g", n)
		}
	}
	return "a number"
}

// moved reports whether got at position p is want at p-by.
func moved(want, got Rows, bad []int, by int, tol float64) bool {
	n := 0
	for _, p := range bad {
		w := want[p-by]
		if w == nil || len(w) != len(got[p]) {
			continue
		}
		if distance(w, got[p]) > tol*norm(w) {
			return false
		}
		n++
	}
	return n > 2 || n > 0 && n == len(bad)
}

// each reports whether fn of every got is want.
func each(want, got Rows, tol float64, fn func(float64) float64) bool {
	for p, w := range want {
		var d, n float64
		for i, x := range w {
			e := fn(float64(got[p][i])) - float64(x)
			d += e * e
			n += float64(x) * float64(x)
		}
		if d > tol*tol*n {
			return false
		}
	}
	return true
}

// rotated reports whether columns have moved by one, around the end.
func rotated(want, got Rows, by int, tol float64) bool {
	for p, w := range want {
		n := len(w)
		var d, size float64
		for i, x := range w {
			e := float64(got[p][(i+by+n)%n]) - float64(x)
			d += e * e
			size += float64(x) * float64(x)
		}
		if d > tol*tol*size {
			return false
		}
	}
	return true
}

// fixedGain reports whether every column is off by a factor of its own that is
// the same in all rows.
func fixedGain(want, got Rows, tol float64) bool {
	ps := sortedPositions(want)
	if len(ps) < 4 {
		return false
	}
	var rest, size float64
	for i := range want[ps[0]] {
		var ww, wg, gg float64
		for _, p := range ps {
			w, g := float64(want[p][i]), float64(got[p][i])
			ww, wg, gg = ww+w*w, wg+w*g, gg+g*g
		}
		size += gg
		if ww > 0 {
			rest += gg - wg*wg/ww
		}
	}
	return rest <= tol*tol*size
}

// permuted reports whether every row holds the same values in another order.
func permuted(want, got Rows, tol float64) bool {
	for p, w := range want {
		a, b := slices.Clone(w), slices.Clone(got[p])
		slices.Sort(a)
		slices.Sort(b)
		if distance(a, b) > 0.2*tol*norm(a) {
			return false
		}
	}
	return true
}

func (s *Subject) softcapOf() float64 {
	if cfg := s.truth(); cfg != nil {
		return float64(cfg.FinalSoftcap)
	}
	return 0
}

// truth is the configuration of the checkpoint; without one, that in the
// bundle, which may be wrong.
func (s *Subject) truth() *reference.Config {
	if s.Original != nil {
		cfg := s.Original.Config()
		return &cfg
	}
	return s.Config
}

// turnOf compares how pairs of dimensions of the first head are turned by
// RoPE. "" if their lengths differ, too.
func (s *Subject) turnOf(layer int, want, got Rows) string {
	cfg := s.truth()
	if cfg == nil || layer < 0 || layer >= cfg.Layers {
		return ""
	}
	own, other, dim, otherDim := cfg.FullRope, cfg.SlidingRope, cfg.FullHeadDim, cfg.HeadDim
	if s.sliding(layer) {
		own, other, dim, otherDim = other, own, otherDim, dim
	}
	freq := own.Frequencies(dim)
	n := len(freq)
	var alien []float32
	if other.Theta != 0 && otherDim == dim {
		alien = other.Frequencies(dim)
	}
	ps := sortedPositions(want)
	if len(ps) > 6 {
		ps = ps[:6]
	}
	type sample struct {
		p, i  int
		delta float64
	}
	var all []sample
	for _, p := range ps {
		w, g := want[p], got[p]
		var size float64
		for i := range n {
			size = math.Max(size, math.Hypot(float64(w[i]), float64(w[i+n])))
		}
		for i := range n {
			a, b := math.Hypot(float64(w[i]), float64(w[i+n])), math.Hypot(float64(g[i]), float64(g[i+n]))
			if math.Abs(a-b) > 0.03*size {
				return "pairs change their length"
			}
			if a > 0.1*size {
				d := math.Atan2(float64(g[i+n]), float64(g[i])) - math.Atan2(float64(w[i+n]), float64(w[i]))
				all = append(all, sample{p, i, d})
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	fits := func(turn func(p, i int) float64) bool {
		for _, x := range all {
			d := math.Mod(x.delta-turn(x.p, x.i), 2*math.Pi)
			if d = math.Abs(d); d > 0.06 && d < 2*math.Pi-0.06 {
				return false
			}
		}
		return true
	}
	f := func(i int) float64 { return float64(freq[i]) }
	switch {
	case fits(func(p, i int) float64 { return -2 * float64(p) * f(i) }):
		return "turned backwards"
	case fits(func(p, i int) float64 { return -float64(p) * f(i) }):
		return "not turned"
	case fits(func(_, i int) float64 { return f(i) }):
		return "turned for the next position"
	case fits(func(_, i int) float64 { return -f(i) }):
		return "turned for the position before"
	case alien != nil && fits(func(p, i int) float64 { return float64(p) * (float64(alien[i]) - f(i)) }):
		return "turned as layers of the other kind are"
	}
	tail := slices.Contains(freq, 0)
	for _, x := range all {
		if freq[x.i] != 0 && math.Abs(math.Remainder(x.delta, 2*math.Pi)) > 0.06 {
			tail = false
		}
	}
	if tail {
		return "the tail turns"
	}
	return "turned by other angles"
}
