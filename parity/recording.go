package parity

import (
	"fmt"
	"math"
	"slices"
)

// TopK is how many of the largest logits a Position keeps at least.
const TopK = 5

// Scored is a token and its logit.
type Scored struct {
	ID    int32   `json:"id"`
	Logit float32 `json:"logit"`
}

// Position is what a model says after one token. Large vocabularies keep the
// row of logits at chosen positions only.
type Position struct {
	Argmax int32
	Top    []Scored  // largest first; fewer than TopK if the model has only a token head
	LSE    float64   // log-sum-exp of the row; NaN if unknown
	Row    []float32 // all logits, or nil
	margin float64   // as recorded; NaN: take it from Top
}

// Margin is how far the largest logit is above the second; NaN if unknown.
func (p *Position) Margin() float64 {
	if !math.IsNaN(p.margin) {
		return p.margin
	}
	if len(p.Top) < 2 {
		return math.NaN()
	}
	return float64(p.Top[0].Logit) - float64(p.Top[1].Logit)
}

// Recording holds reference results for one sequence of tokens, from position
// 0 on, in one causal pass without a cache.
type Recording struct {
	Source    string // where it comes from, for reports
	IDs       []int32
	Vocab     int
	Positions []Position // one an id
	// MaxAbs is the largest |logit| known.
	MaxAbs float64
	// Resolution is how far a stored logit may be from the computed one:
	// recordings may store fp16.
	Resolution float64
	// Noise is the largest |Δlogit| that fp16 compute caused in the recorded
	// model; NaN if unknown.
	Noise float64
	// Hidden holds residual streams by site, [T, hidden]: embed,
	// layers.N.out and final_norm. Nil where the recording has none.
	Hidden map[string]Rows
}

// Rows is a matrix of which only some rows may be kept.
type Rows map[int][]float32

// keeps reports whether the row of logits at position t is wanted.
func (r *Recording) keeps(t int) bool {
	return t < len(r.Positions) && r.Positions[t].Row != nil
}

// cut keeps the first n tokens; 0 means all.
func (r *Recording) cut(n int) {
	if n > 0 && n < len(r.IDs) {
		r.IDs, r.Positions = r.IDs[:n], r.Positions[:n]
	}
}

// check finds contradictions in what was read or computed.
func (r *Recording) check() error {
	switch {
	case len(r.IDs) == 0:
		return fmt.Errorf("parity: %s: no input_ids", r.Source)
	case len(r.Positions) != len(r.IDs):
		return fmt.Errorf("parity: %s: results for %d positions, %d input_ids", r.Source, len(r.Positions), len(r.IDs))
	}
	for t, id := range r.IDs {
		if id < 0 || r.Vocab > 0 && int(id) >= r.Vocab {
			return fmt.Errorf("parity: %s: input id %d at position %d is outside the vocabulary of %d", r.Source, id, t, r.Vocab)
		}
	}
	if math.IsNaN(r.MaxAbs) || math.IsInf(r.MaxAbs, 0) {
		return fmt.Errorf("parity: %s: the recorded logits are not finite", r.Source)
	}
	return nil
}

// positionOf reduces a row of logits. keep retains a copy of the row.
func positionOf(row []float32, keep bool) Position {
	p := Position{Top: topK(row, TopK), LSE: logSumExp(row), margin: math.NaN()}
	p.Argmax = p.Top[0].ID
	if keep {
		p.Row = slices.Clone(row)
	}
	return p
}

// topK returns the k largest logits, the first of equals first.
func topK(row []float32, k int) []Scored {
	k = min(k, len(row))
	out := make([]Scored, 0, k+1)
	for i, v := range row {
		if len(out) == k && !(v > out[k-1].Logit) {
			continue
		}
		j := len(out)
		for j > 0 && v > out[j-1].Logit {
			j--
		}
		out = slices.Insert(out, j, Scored{int32(i), v})
		out = out[:min(len(out), k)]
	}
	return out
}

// spread picks n positions of t, ends included, dense at the start where
// caches are short.
func spread(t, n int) []int {
	set := map[int]bool{}
	for a, b := 0, 1; a < t; a, b = b, a+max(b, 1) {
		set[a] = true
	}
	for i := range n {
		set[i*(t-1)/max(n-1, 1)] = true
	}
	out := make([]int, 0, len(set))
	for p := range set {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}
