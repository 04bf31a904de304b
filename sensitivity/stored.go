package sensitivity

import (
	"context"
	"fmt"

	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/quant"
)

// Joint is the divergence of the model with all tensors stored by a recipe, on
// the sequences, over the whole vocabulary.
func Joint(ctx context.Context, m *Model, r *quant.Recipe, c Coding, sequences [][]int32) (mean, se float64, err error) {
	with, err := Stored(ctx, m, r, c)
	if err != nil {
		return 0, 0, err
	}
	d := m.Decoder
	q := d.With(decoder.Overlay(d.Source(), with))
	var xs []decoder.Matrix
	var heads []*decoder.Head
	for _, d := range []*decoder.Decoder{d, q} {
		s, err := d.Embed(ctx, sequences, nil)
		if err != nil {
			return 0, 0, err
		}
		if err := d.Layers(ctx, s, decoder.Options{}); err != nil {
			return 0, 0, err
		}
		x, err := d.Norm(s)
		if err != nil {
			return 0, 0, err
		}
		h, err := d.NewHead(nil)
		if err != nil {
			return 0, 0, err
		}
		xs, heads = append(xs, x), append(heads, h)
	}
	all, err := decoder.Compare(ctx, heads[1], xs[1], heads[0], xs[0], nil)
	if err != nil {
		return 0, 0, fmt.Errorf("sensitivity: %w", err)
	}
	kl := make([]float64, len(all))
	for i, v := range all {
		kl[i] = v.KL
	}
	mean, se = meanError(kl)
	return max(0, mean), se, nil
}
