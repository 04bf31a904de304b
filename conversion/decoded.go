package conversion

import (
	"io"

	"github.com/smelt-go/smelt/checkpoint"
)

// A codedWeight is a float32 tensor.

func (w *codedWeight) Name() string            { return w.name }
func (w *codedWeight) DType() checkpoint.DType { return checkpoint.F32 }
func (w *codedWeight) Shape() []int            { return []int{w.form.Rows, w.form.Cols} }

// ReadFloat32 decodes the rows that hold the elements.
func (w *codedWeight) ReadFloat32(dst []float32, off int) error {
	cols := w.form.Cols
	for len(dst) > 0 {
		row, at := off/cols, off%cols
		if at == 0 && len(dst) >= cols {
			n := len(dst) / cols * cols
			if err := w.form.Decode(dst[:n], w.data, row); err != nil {
				return err
			}
			dst, off = dst[n:], off+n
			continue
		}
		one := make([]float32, cols)
		if err := w.form.Decode(one, w.data, row); err != nil {
			return err
		}
		n := copy(dst, one[at:])
		dst, off = dst[n:], off+n
	}
	return nil
}

// WriteTo writes float32 elements.
func (w *codedWeight) WriteTo(out io.Writer) (int64, error) {
	x := make([]float32, w.form.Rows*w.form.Cols)
	if err := w.ReadFloat32(x, 0); err != nil {
		return 0, err
	}
	return checkpoint.NewFloat32(w.name, w.Shape(), x).WriteTo(out)
}
