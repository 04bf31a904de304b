package conversion

import (
	"context"
	"fmt"
	"math"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
)

// writeTables writes the embedding sidecars that the contract names.
func (s *Source) writeTables(dir string, c *chunking.Contract) error {
	if c.Embedding.Mode == chunking.EmbedSidecar {
		if err := writeTable(filepath.Join(dir, c.Embedding.File), c.Embedding.Tensor, s.Model.Embedding()); err != nil {
			return err
		}
	}
	if p := c.PerLayer; p != nil {
		return writeTable(filepath.Join(dir, p.File), p.Tensor, s.Model.PerLayerEmbedding())
	}
	return nil
}

// writeTable writes a table in the type of the checkpoint; F64 is narrowed to
// F32.
func writeTable(path, name string, t checkpoint.Tensor) error {
	if t.DType() == checkpoint.F64 {
		t = checkpoint.AsType(t, checkpoint.F32)
	}
	t = checkpoint.Rename(t, name)
	defer checkpoint.Release(t)
	return checkpoint.WriteFile(path, []checkpoint.Tensor{t}, nil)
}

// tableRange returns the largest magnitude in the embedding table. The range
// probe sees only the rows of its text, and a sidecar is copied unread: a NaN
// in a row that neither needs would surface when a user's text needs it.
func (s *Source) tableRange(ctx context.Context) (float32, error) {
	t := s.Model.Embedding()
	defer checkpoint.Release(t)
	var peak uint32
	const inf = 0x7f800000
	buf := make([]float32, 1<<16)
	for off, n := 0, checkpoint.NumElements(t); off < n; off += len(buf) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		b := buf[:min(len(buf), n-off)]
		if err := t.ReadFloat32(b, off); err != nil {
			return 0, fmt.Errorf("conversion: %w", err)
		}
		for i, x := range b {
			// Magnitudes order as their bits do, NaN above infinity.
			v := math.Float32bits(x) &^ (1 << 31)
			if v >= inf {
				return 0, fmt.Errorf("conversion: tensor %q: element %d is %v (a damaged or diverged checkpoint?)", t.Name(), off+i, x)
			}
			peak = max(peak, v)
		}
	}
	return math.Float32frombits(peak), nil
}
