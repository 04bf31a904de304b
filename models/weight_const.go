package models

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/littleendian"
	"github.com/smelt-go/smelt/mil"
)

// weight presents a checkpoint tensor as an fp32 constant. It reads the
// tensor piecewise whenever it is written, and releases its pages after.
type weight struct{ t checkpoint.Tensor }

var _ mil.RangeConst = (*weight)(nil)

// Type returns fp32 with the tensor's shape.
func (w *weight) Type() mil.TensorType { return mil.T(mil.Float32, w.t.Shape()...) }

// Name is the tensor's name in the checkpoint.
func (w *weight) Name() string { return w.t.Name() }

// infinity is the magnitude from which bits stand for no number.
const infinity = 0x7f800000

// ReadFloat32 fills dst with elements [off, off+len(dst)). A NaN or an
// infinity is an error.
func (w *weight) ReadFloat32(dst []float32, off int) error {
	if err := w.t.ReadFloat32(dst, off); err != nil {
		return err
	}
	if kernel.MaxBits(dst) < infinity {
		return nil
	}
	for i, x := range dst {
		if math.Float32bits(x)&infinity == infinity {
			return fmt.Errorf("models: tensor %q: element %d is %v (a damaged or diverged checkpoint?)", w.t.Name(), off+i, x)
		}
	}
	return nil
}

// Ranges reads little-endian float32 elements.
func (w *weight) Ranges() (mil.ReadRange, bool) { return w.readRange, true }

func (w *weight) readRange(dst []byte, off int64) error {
	if f, ok := littleendian.View[float32](dst); ok {
		return w.ReadFloat32(f, int(off/4))
	}
	var buf [1 << 10]float32
	for at := int(off / 4); len(dst) > 0; {
		f := buf[:min(len(buf), len(dst)/4)]
		if err := w.ReadFloat32(f, at); err != nil {
			return err
		}
		for i, x := range f {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
		dst, at = dst[4*len(f):], at+len(f)
	}
	return nil
}

// WriteTo writes little-endian float32 elements.
func (w *weight) WriteTo(out io.Writer) (int64, error) {
	defer checkpoint.Release(w.t)
	const piece = 1 << 18
	buf := make([]byte, piece)
	total := int64(0)
	for left := w.Type().NumBytes(); left > 0; {
		b := buf[:min(left, piece)]
		if err := w.readRange(b, total); err != nil {
			return total, err
		}
		n, err := out.Write(b)
		total, left = total+int64(n), left-int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// Stored is the tensor as the checkpoint holds it, if widening its elements
// gives exactly those of the weight. Its values are not checked.
func (w *weight) Stored() (mil.Const, bool) {
	d, ok := map[checkpoint.DType]mil.DType{
		checkpoint.BF16: mil.BFloat16, checkpoint.F16: mil.Float16, checkpoint.F32: mil.Float32,
	}[w.t.DType()]
	return &stored{w.t, d}, ok
}

// stored is a checkpoint tensor in the type it has there.
type stored struct {
	t checkpoint.Tensor
	d mil.DType
}

func (s *stored) Type() mil.TensorType                 { return mil.T(s.d, s.t.Shape()...) }
func (s *stored) WriteTo(out io.Writer) (int64, error) { return s.t.WriteTo(out) }

func (s *stored) Ranges() (mil.ReadRange, bool) {
	return func(dst []byte, off int64) error { return checkpoint.ReadRaw(s.t, dst, off) }, true
}
