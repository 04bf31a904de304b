package reference

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
)

// Ranges are the largest magnitudes a forward pass met, site by site.
type Ranges struct {
	Tokens int    `json:"tokens"`
	Sites  []Site `json:"sites"` // in the order of computation
}

// Site is the largest magnitude of one named intermediate. Names are those of
// a Tap, and two more a layer:
//
//	layers.N.scores        scaled q·k of attended pairs, before the softcap
//	layers.N.scores_bound  max‖q‖·max‖k‖·scale per head: no pair at all, masked
//	                       ones included, can exceed it (Cauchy–Schwarz)
//
// Where a layer reads another one's keys, they are those of the latter.
type Site struct {
	Name   string  `json:"name"`
	MaxAbs float32 `json:"max_abs"`
}

// Get returns the range of a named site.
func (r Ranges) Get(name string) (float32, bool) {
	for _, s := range r.Sites {
		if s.Name == name {
			return s.MaxAbs, true
		}
	}
	return 0, false
}

// Max returns the largest range of a site over all layers: Max("mlp_act").
func (r Ranges) Max(site string) float32 {
	var peak float32
	for _, s := range r.Sites {
		if s.Name == site || strings.HasSuffix(s.Name, "."+site) {
			peak = max(peak, s.MaxAbs)
		}
	}
	return peak
}

// Residual returns the range of the residual stream: [0] after the embedding,
// [i] within layer i−1 (the largest of its values after attention, after the
// MLP, after the per-layer input and after the layer's scalar).
func (r Ranges) Residual() []float32 {
	var peaks []float32
	for _, s := range r.Sites {
		switch {
		case s.Name == "embed", strings.HasSuffix(s.Name, ".resid_mid"):
			peaks = append(peaks, s.MaxAbs)
		case strings.HasSuffix(s.Name, ".out"), strings.HasSuffix(s.Name, ".resid_mlp"), strings.HasSuffix(s.Name, ".resid_ple"):
			peaks[len(peaks)-1] = max(peaks[len(peaks)-1], s.MaxAbs)
		}
	}
	return peaks
}

// RangeProbe runs ids through all layers, without the head, and records the
// range of every site. It keeps no hidden states.
//
// Unlike those of Forward, its results have the same bits on every processor:
// a conversion scales the model by them, and must give the same files
// everywhere.
func (m *Model) RangeProbe(ctx context.Context, ids []int32) (Ranges, error) {
	return m.RangeProbeWith(ctx, ids, nil)
}

// A Product computes y = x·wᵀ + bias, where w is rows first to first+y.Cols of
// a stored matrix. bias has an element a column of y, or is nil. A weight that
// is not finite is an error.
type Product func(y, x *Matrix, w checkpoint.Tensor, first int, bias []float32) error

// RangeProbeWith is RangeProbe with another way to multiply, for callers that
// need the ranges quickly; all the rest is computed here. The results have the
// same bits everywhere if those of product have.
func (m *Model) RangeProbeWith(ctx context.Context, ids []int32, product Product) (Ranges, error) {
	r := Ranges{Tokens: len(ids)}
	note := func(name string, peak float32) { r.Sites = append(r.Sites, Site{Name: name, MaxAbs: peak}) }
	p := m.pass(exactDot)
	p.product = product
	p.tap, p.scores = siteRanges(note)
	if err := p.run(ctx, ids, func(*Matrix) {}); err != nil {
		return Ranges{}, err
	}
	return r, nil
}

// siteRanges are the callbacks of a pass that turn intermediates into ranges.
func siteRanges(note func(name string, peak float32)) (Tap, func(layer int, peak, bound float32)) {
	return func(name string, x *Matrix) { note(name, x.MaxAbs()) },
		func(layer int, peak, bound float32) {
			note(fmt.Sprintf("layers.%d.scores", layer), peak)
			note(fmt.Sprintf("layers.%d.scores_bound", layer), bound)
		}
}

// RangeProbe runs ids through the target and then, from several of their
// positions, a round of drafts, and records the ranges of the drafter's sites
// over all steps. Like those of Model.RangeProbe its results have the same
// bits on every processor.
func (d *Drafter) RangeProbe(ctx context.Context, target *Model, ids []int32, steps int) (Ranges, error) {
	const rounds = 4
	if h := target.config.Hidden; h != d.config.TargetHidden {
		return Ranges{}, fmt.Errorf("reference: the drafter belongs to a target with hidden_size %d, got %d", d.config.TargetHidden, h)
	}
	p := target.pass(exactDot)
	p.kinds = map[LayerKind]KV{}
	if err := p.run(ctx, ids, func(*Matrix) {}); err != nil {
		return Ranges{}, err
	}
	r := Ranges{Tokens: len(ids)}
	index := map[string]int{}
	tap, scores := siteRanges(func(name string, peak float32) {
		at, ok := index[name]
		if !ok {
			at = len(r.Sites)
			index[name] = at
			r.Sites = append(r.Sites, Site{Name: name})
		}
		if !(peak <= r.Sites[at].MaxAbs) {
			r.Sites[at].MaxAbs = peak
		}
	})
	for i := range min(rounds, len(ids)-1) {
		n := (i + 1) * (len(ids) - 1) / min(rounds, len(ids)-1)
		next, hidden := ids[n], p.norm.Row(n-1)
		for range steps {
			embedding, err := target.Embed(next)
			if err != nil {
				return Ranges{}, err
			}
			s, err := d.step(ctx, DraftRound{N: n, KV: p.kinds}, slices.Concat(embedding, hidden), tap, scores, exactDot)
			if err != nil {
				return Ranges{}, err
			}
			next, hidden = s.Token, s.Projected
		}
	}
	return r, nil
}

// scoreBound returns the largest value a scaled score can take for these
// queries and keys, whatever positions are paired.
func scoreBound(q, k *Matrix, h heads, dot dotFunc) float32 {
	longest := func(m *Matrix, head int) float64 {
		var peak float64
		for t := range m.Rows {
			v := m.Row(t)[head*h.dim : (head+1)*h.dim]
			peak = max(peak, dot(v, v))
		}
		return math.Sqrt(peak)
	}
	keys := make([]float64, h.kv)
	for i := range keys {
		keys[i] = longest(k, i)
	}
	var bound float64
	for i := range h.query {
		bound = max(bound, longest(q, i)*keys[i/(h.query/h.kv)])
	}
	return float32(bound) * h.scale
}
