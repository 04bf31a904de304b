package decoder

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
)

// State is what a model has computed so far for some sequences.
type State struct {
	// Hidden is the residual stream [tokens, hidden], sequence after sequence.
	Hidden Matrix
	// Lengths are those of the sequences; positions begin with 0 in each.
	Lengths []int
	// Layer is the next to run.
	Layer int
	// KeepKV lists layers whose keys and values stay for KV, beside those that
	// later layers read. Set it before they run.
	KeepKV []int

	// perLayer is what the layers of Gemma 4 receive beside the residual stream
	// [tokens, layers·width].
	perLayer Matrix
	// kept are keys and values that later layers read, by layer. They are not
	// written to again.
	kept    map[int]keyValue
	scratch scratch
}

// keyValue holds rotated keys and values [tokens, kv_heads·head_dim].
type keyValue struct{ k, v Matrix }

// scratch is memory reused from layer to layer.
type scratch struct{ norm, a, k, v Matrix }

// Tokens is the number of tokens of all sequences.
func (s *State) Tokens() int { return s.Hidden.Rows }

// KV are the rotated keys and the values [tokens, kv_heads·head_dim] of a layer that
// has run and has its own; false unless KeepKV lists it or a later layer reads
// them.
func (s *State) KV(layer int) (k, v Matrix, ok bool) {
	kv, ok := s.kept[layer]
	return kv.k, kv.v, ok
}

// Clone returns a copy that runs on independently.
func (s *State) Clone() *State {
	return &State{Hidden: s.Hidden.Clone(), Lengths: s.Lengths, Layer: s.Layer, KeepKV: s.KeepKV, perLayer: s.perLayer, kept: maps.Clone(s.kept)}
}

// Copy makes s a copy of from, in the memory that s has.
func (s *State) Copy(from *State) {
	h := s.Hidden.resized(from.Hidden.Rows, from.Hidden.Cols)
	copy(h.Data, from.Hidden.Data)
	s.Hidden, s.Lengths, s.Layer, s.KeepKV, s.perLayer, s.kept = h, from.Lengths, from.Layer, from.KeepKV, from.perLayer, maps.Clone(from.kept)
}

// Embed starts sequences of tokens. w may replace the embedding.
func (d *Decoder) Embed(ctx context.Context, sequences [][]int32, w Weights) (*State, error) {
	c := &d.config
	s := &State{kept: map[int]keyValue{}}
	tokens := 0
	for i, ids := range sequences {
		if len(ids) == 0 {
			return nil, fmt.Errorf("decoder: sequence %d is empty", i)
		}
		for t, id := range ids {
			if id < 0 || int(id) >= c.Vocab {
				return nil, fmt.Errorf("decoder: sequence %d: token %d is %d, outside the vocabulary of %d", i, t, id, c.Vocab)
			}
			if c.PerLayer.Width > 0 && int(id) >= c.PerLayer.Vocab {
				return nil, fmt.Errorf("decoder: sequence %d: token %d is %d, outside the per-layer vocabulary of %d", i, t, id, c.PerLayer.Vocab)
			}
		}
		s.Lengths = append(s.Lengths, len(ids))
		tokens += len(ids)
	}
	if tokens == 0 {
		return nil, fmt.Errorf("decoder: no tokens")
	}
	ids := slices.Concat(sequences...)
	table, err := d.weight(EmbedModule, w, c.Vocab, c.Hidden)
	if err != nil {
		return nil, err
	}
	s.Hidden = NewMatrix(tokens, c.Hidden)
	if err := gather(s.Hidden, table, ids, c.EmbedScale); err != nil {
		return nil, err
	}
	if c.PerLayer.Width > 0 {
		if err := d.perLayerInputs(s, ids, w); err != nil {
			return nil, err
		}
	}
	return s, ctx.Err()
}

// gather reads the rows of a table that ids name, times scale.
func gather(dst Matrix, table checkpoint.Tensor, ids []int32, scale float32) error {
	errs := make([]error, len(ids))
	parallel.Ranges(len(ids), 64, func(lo, hi int) {
		for t := lo; t < hi; t++ {
			row := dst.Row(t)
			errs[t] = readRange(row, table, int(ids[t])*dst.Cols)
			if scale != 1 {
				kernel.MulScalar(row, row, scale)
			}
		}
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// perLayerInputs computes what each layer of Gemma 4 receives for itself:
//
//	(norm(project(embed)·ProjectionScale) + table[token]·TokenScale) · CombineScale
//
// with one norm for each layer's part.
func (d *Decoder) perLayerInputs(s *State, ids []int32, w Weights) error {
	c := &d.config
	width, total := c.PerLayer.Width, c.Layers*c.PerLayer.Width
	table, err := d.weight("model.embed_tokens_per_layer", w, c.PerLayer.Vocab, total)
	if err != nil {
		return err
	}
	projection, err := d.weight("model.per_layer_model_projection", w, total, c.Hidden)
	if err != nil {
		return err
	}
	gamma, err := d.gamma("model.per_layer_projection_norm.weight", width)
	if err != nil {
		return err
	}
	s.perLayer = NewMatrix(len(ids), total)
	if err := gather(s.perLayer, table, ids, c.PerLayer.TokenScale); err != nil {
		return err
	}
	return stream(len(ids), width, []weight{projection}, func(lo, hi, first int, w []Matrix) {
		n := w[0].Rows
		p := NewMatrix(hi-lo, n)
		p.columns(0, hi-lo, 0, n).mul(s.Hidden, lo, w[0], nil, first)
		kernel.MulScalar(p.Data, p.Data, c.PerLayer.ProjectionScale)
		norm(p.Data, p.Data, gamma, c.NormEps)
		for i := range p.Rows {
			dst := s.perLayer.Row(lo + i)[first : first+n]
			kernel.Add(dst, dst, p.Row(i))
			kernel.MulScalar(dst, dst, c.PerLayer.CombineScale)
		}
	})
}

// gamma reads the factors of an RMS norm.
func (d *Decoder) gamma(name string, width int) ([]float32, error) {
	g, err := d.vector(name, width)
	if err == nil && d.config.UnitOffset {
		for i := range g {
			g[i]++
		}
	}
	return g, err
}

// norm applies an RMS norm to each len(gamma) values of x.
func norm(dst, x, gamma []float32, eps float64) {
	for i, n := 0, len(gamma); i < len(x); i += n {
		kernel.RMSNorm(dst[i:i+n], x[i:i+n], gamma, float32(eps))
	}
}

func finite(x []float32) bool { return kernel.MaxBits(x) < 0x7f800000 }

// Join is a state of all sequences of states, which must be at the same layer of
// the same model: variants of one text, for instance, that run on together.
func Join(states ...*State) (*State, error) {
	if len(states) == 0 {
		return nil, fmt.Errorf("decoder: there is nothing to join")
	}
	first := states[0]
	out := &State{Layer: first.Layer, kept: map[int]keyValue{}}
	for i, s := range states {
		if s.Layer != first.Layer || s.Hidden.Cols != first.Hidden.Cols || len(s.kept) != len(first.kept) {
			return nil, fmt.Errorf("decoder: state %d, before layer %d, cannot be joined to one before layer %d", i, s.Layer, first.Layer)
		}
		out.Lengths = append(out.Lengths, s.Lengths...)
	}
	stack := func(of func(s *State) Matrix) Matrix {
		rows := 0
		for _, s := range states {
			rows += of(s).Rows
		}
		m := NewMatrix(rows, of(first).Cols)
		at := 0
		for _, s := range states {
			at += copy(m.Data[at:], of(s).Data)
		}
		return m
	}
	out.Hidden = stack(func(s *State) Matrix { return s.Hidden })
	out.perLayer = stack(func(s *State) Matrix { return s.perLayer })
	for layer := range first.kept {
		out.kept[layer] = keyValue{stack(func(s *State) Matrix { return s.kept[layer].k }), stack(func(s *State) Matrix { return s.kept[layer].v })}
	}
	return out, nil
}
