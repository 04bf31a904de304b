package models

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
)

// sameHead checks a head that is stored although config.json ties it: one that
// differs from the embedding is not what it says, and which of the two is
// meant nobody can tell.
func (m *Model) sameHead() error {
	const head, table = "lm_head.weight", "model.embed_tokens.weight"
	a, ok := m.src.Tensor(head)
	if !ok || !m.cfg.Tied {
		return nil
	}
	b, _ := m.src.Tensor(table) // cover has found it
	differ := fmt.Errorf("models: tensor %q differs from %q although config.json ties them (set tie_word_embeddings to false, or remove the tensor)", head, table)
	if !slices.Equal(a.Shape(), b.Shape()) {
		return differ
	}
	defer checkpoint.Release(a)
	defer checkpoint.Release(b)
	const piece = 1 << 16
	x, y := make([]float32, piece), make([]float32, piece)
	for off, n := 0, checkpoint.NumElements(a); off < n; off += piece {
		x, y := x[:min(piece, n-off)], y[:min(piece, n-off)]
		for _, err := range []error{a.ReadFloat32(x, off), b.ReadFloat32(y, off)} {
			if err != nil {
				return fmt.Errorf("models: %w", err)
			}
		}
		for i, v := range x {
			// NaN is for whoever reads the weights to find.
			if v != y[i] && (v == v || y[i] == y[i]) {
				return differ
			}
		}
	}
	return nil
}
