package conversion

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/internal/diskspace"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/littleendian"
)

// writeEmbedding writes the table of embeddings in the form that the contract
// names, and for an app also in its own. It returns the largest magnitude in
// the table, which is read in any case: the range probe sees only the rows of
// its text, and a NaN in another row would surface when a user's text needs it.
func (s *Source) writeEmbedding(ctx context.Context, dir string, c *chunking.Contract, app bool) (peak float32, err error) {
	t := s.Model.Embedding()
	if app || c.Embedding.Mode == chunking.EmbedInt8 {
		if peak, err = writeRows(ctx, filepath.Join(dir, chunking.EmbeddingInt8), t); err != nil || c.Embedding.Mode == chunking.EmbedInt8 {
			return peak, err
		}
	}
	rows := &table{Tensor: t, ctx: ctx}
	if c.Embedding.Mode == chunking.EmbedSidecar {
		err = rows.sidecar(filepath.Join(dir, c.Embedding.File), c.Embedding.Tensor)
	} else {
		_, err = rows.WriteTo(io.Discard)
	}
	return rows.peak, err
}

// writePerLayer is writeEmbedding for the table of per-layer embeddings, if the
// host looks rows up in it.
func (s *Source) writePerLayer(ctx context.Context, dir string, c *chunking.Contract, app bool) error {
	p := c.PerLayer
	if p == nil {
		return nil
	}
	t := s.Model.PerLayerEmbedding()
	if app || p.Scales != "" {
		if _, err := writeRows(ctx, filepath.Join(dir, chunking.PerLayerInt8), t); err != nil || p.Scales != "" {
			return err
		}
	}
	return (&table{Tensor: t, ctx: ctx}).sidecar(filepath.Join(dir, p.File), p.Tensor)
}

// table is a table of embeddings that takes note of its range as it is written:
// in the type of the checkpoint, F64 narrowed to F32.
type table struct {
	checkpoint.Tensor
	ctx  context.Context
	peak float32 // largest magnitude so far
}

func (t *table) DType() checkpoint.DType {
	if d := t.Tensor.DType(); d != checkpoint.F64 {
		return d
	}
	return checkpoint.F32
}

// sidecar writes the table to a new file, under another name.
func (t *table) sidecar(path, name string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("conversion: %w", err)
	}
	diskspace.Reserve(f, checkpoint.NumBytes(t))
	err = checkpoint.Encode(f, []checkpoint.Tensor{checkpoint.Rename(t, name)}, nil)
	if e := f.Close(); err == nil && e != nil {
		err = fmt.Errorf("conversion: %w", e)
	}
	return err
}

// WriteTo copies the table piece by piece. An element that is no number is an
// error.
func (t *table) WriteTo(w io.Writer) (int64, error) {
	const piece = 1 << 20
	buf := make([]byte, piece)
	size := int64(t.DType().Bits() / 8)
	done := int64(0)
	for total := checkpoint.NumBytes(t); done < total; {
		if err := t.ctx.Err(); err != nil {
			return done, err
		}
		b := buf[:min(total-done, piece)]
		if err := t.read(b, done/size); err != nil {
			return done, err
		}
		n, err := w.Write(b)
		done += int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// infinity is the magnitude from which the bits of a float32 stand for no
// number.
const infinity = 0x7f800000

// read fills b with elements from the given one on and checks them.
func (t *table) read(b []byte, first int64) error {
	if t.DType() != t.Tensor.DType() || !littleendian.Host {
		return t.readWide(b, first)
	}
	size := int64(t.DType().Bits() / 8)
	if err := checkpoint.ReadRaw(t.Tensor, b, first*size); err != nil {
		return err
	}
	var peak float32
	if f, ok := littleendian.View[float32](b); ok && t.DType() == checkpoint.F32 {
		peak = math.Float32frombits(kernel.MaxBits(f))
	} else if h, ok := littleendian.View[uint16](b); ok && t.DType() == checkpoint.BF16 {
		peak = half.FromBF16(kernel.MaxBits16(h))
	} else if ok && t.DType() == checkpoint.F16 {
		peak = half.ToF32(kernel.MaxBits16(h))
	} else {
		return fmt.Errorf("conversion: tensor %q: dtype %v is no table of embeddings", t.Name(), t.DType())
	}
	if math.Float32bits(peak) >= infinity {
		f := make([]float32, int64(len(b))/size)
		if err := t.Tensor.ReadFloat32(f, int(first)); err != nil {
			return err
		}
		return t.check(f, first)
	}
	t.peak = max(t.peak, peak)
	return nil
}

// readWide reads through float32.
func (t *table) readWide(b []byte, first int64) error {
	wide := t.Tensor
	if t.DType() != wide.DType() {
		wide = checkpoint.AsType(wide, t.DType())
	}
	size := int64(t.DType().Bits() / 8)
	f := make([]float32, int64(len(b))/size)
	if err := wide.ReadFloat32(f, int(first)); err != nil {
		return err
	}
	if err := t.check(f, first); err != nil {
		return err
	}
	t.peak = max(t.peak, math.Float32frombits(kernel.MaxBits(f)))
	part := checkpoint.AsType(checkpoint.NewFloat32(t.Name(), []int{len(f)}, f), t.DType())
	raw, err := checkpoint.ReadBytes(part)
	copy(b, raw)
	return err
}

func (t *table) check(f []float32, first int64) error {
	for i, x := range f {
		if math.Float32bits(x)&infinity == infinity {
			return fmt.Errorf("conversion: tensor %q: element %d is %v (a damaged or diverged checkpoint?)", t.Name(), first+int64(i), x)
		}
	}
	return nil
}
