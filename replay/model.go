package replay

import (
	"context"
	"slices"

	"github.com/smelt-go/smelt/decoder"
)

// model runs an ordinary model: slot j behind n tokens is what it says after token
// n+j.
func (r *Run) model(ctx context.Context, o Options) (*Draft, error) {
	m := r.d.model
	lengths := make([]int, len(r.texts))
	for i, t := range r.texts {
		lengths[i] = len(t.Tokens)
	}
	s, err := r.start(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := m.Layers(ctx, s, decoder.Options{Weights: o.Weights, Tap: o.Tap}); err != nil {
		return nil, err
	}
	x, err := m.Norm(s)
	if err != nil {
		return nil, err
	}
	at := places(lengths, r.bases)
	out := &Draft{Slots: r.slots, Rows: at.rows}
	for j := range r.slots {
		var rows []int
		at.each(func(_, text, n int) { rows = append(rows, at.start[text]+n+j) })
		out.states = append(out.states, x.Select(rows))
	}
	c := &calc{src: r.d.src, weights: o.Weights, tap: o.Tap}
	// The head sees every row once, as it does in a model that runs over a text.
	c.see(m.Head(), []decoder.Matrix{x})
	out.head = c.newHead(m.Head(), m.Config().Vocab, m.Config().Hidden, float64(m.Config().FinalSoftcap))
	return out, c.err
}

// start is the state before the first layer that o changes. Those of the model as
// it is are kept.
func (r *Run) start(ctx context.Context, o Options) (*decoder.State, error) {
	m := r.d.model
	sequences := make([][]int32, len(r.texts))
	for i, t := range r.texts {
		sequences[i] = t.Tokens
	}
	layer := -1
	if i := slices.IndexFunc(r.d.modules, func(m Module) bool { return m.Path == o.Only }); i >= 0 && o.Tap == nil {
		if layer = r.d.modules[i].Layer; layer < 0 && o.Only == m.Head() && o.Only != decoder.EmbedModule {
			layer = m.Config().Layers
		}
	}
	if layer < 0 {
		return m.Embed(ctx, sequences, o.Weights)
	}
	if r.before[layer] == nil {
		s, err := m.Embed(ctx, sequences, nil)
		if err != nil {
			return nil, err
		}
		for {
			r.before[s.Layer] = s.Clone()
			if s.Layer == m.Config().Layers {
				break
			}
			if err := m.Layer(ctx, s, decoder.Options{}); err != nil {
				return nil, err
			}
		}
	}
	return r.before[layer].Clone(), nil
}

// Every lists bases of a text of so many tokens, step apart, behind which slots
// drafts and what the target says of them are known.
func Every(tokens, slots, step int) []int {
	var out []int
	for n := 1; n+slots <= tokens; n += step {
		out = append(out, n)
	}
	return out
}
