package rotation

import (
	"fmt"
	"io"
	"sync"

	"github.com/smelt-go/smelt/checkpoint"
)

// rotated is a tensor of a rotated model. Rotated rows need the whole tensor, which
// is computed at the first read and let go when it has been read to its end.
type rotated struct {
	checkpoint.Tensor
	name    string
	cols    turner // turns rows, colRuns times side by side
	colRuns int
	rows    turner // turns columns, rowRuns times one below the other
	rowRuns int
	gains   checkpoint.Tensor // multiply columns first
	ones    bool              // gains that went elsewhere

	mu    sync.Mutex
	whole []float32
}

func (r *rotated) Name() string            { return r.name }
func (r *rotated) DType() checkpoint.DType { return checkpoint.F32 }

// fits reports whether the shape is one that the rotations have.
func (r *rotated) fits() bool {
	shape := r.Shape()
	rank := len(shape)
	if rank < 1 || rank > 2 || r.cols.signs != nil && rank != 2 {
		return false
	}
	runs := max(r.colRuns, 1)
	return (r.cols.signs == nil || shape[rank-1] == runs*len(r.cols.signs)) &&
		(r.rows.signs == nil || shape[0] == r.rowRuns*len(r.rows.signs)) &&
		(r.gains == nil || checkpoint.NumElements(r.gains) == shape[rank-1])
}

// width is the number of elements of a row.
func (r *rotated) width() int {
	shape := r.Shape()
	if len(shape) == 1 {
		return 1
	}
	return shape[1]
}

// ReadFloat32 reads elements from the given one on.
func (r *rotated) ReadFloat32(dst []float32, off int) error {
	if off < 0 || off+len(dst) > checkpoint.NumElements(r) {
		return fmt.Errorf("rotation: tensor %q: elements %d to %d of %v", r.name, off, off+len(dst), r.Shape())
	}
	if r.ones {
		for i := range dst {
			dst[i] = 1
		}
		return nil
	}
	if r.rows.signs != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.whole == nil {
			x := make([]float32, checkpoint.NumElements(r))
			if err := r.turnedRows(x, 0); err != nil {
				return err
			}
			r.turnColumns(x)
			r.whole = x
		}
		copy(dst, r.whole[off:])
		if off+len(dst) == len(r.whole) {
			r.whole = nil
		}
		return nil
	}
	w := r.width()
	first := off / w
	last := (off + len(dst) + w - 1) / w
	if off%w == 0 && len(dst)%w == 0 {
		return r.turnedRows(dst, first)
	}
	x := make([]float32, (last-first)*w)
	if err := r.turnedRows(x, first); err != nil {
		return err
	}
	copy(dst, x[off-first*w:])
	return nil
}

// turnedRows reads rows with gains and the rotation of columns.
func (r *rotated) turnedRows(x []float32, first int) error {
	w := r.width()
	if err := r.Tensor.ReadFloat32(x, first*w); err != nil {
		return err
	}
	if r.gains != nil {
		g, err := checkpoint.ReadAll(r.gains)
		if err != nil {
			return err
		}
		for i := range x {
			x[i] *= g[i%w]
		}
	}
	r.cols.turn(x)
	return nil
}

// turnColumns rotates columns.
func (r *rotated) turnColumns(x []float32) {
	w, n := r.width(), len(r.rows.signs)
	column := make([]float32, n)
	for run := range r.rowRuns {
		for c := range w {
			at := run*n*w + c
			for i := range column {
				column[i] = x[at+i*w]
			}
			r.rows.turn(column)
			for i, v := range column {
				x[at+i*w] = v
			}
		}
	}
}

// WriteTo writes float32 elements.
func (r *rotated) WriteTo(out io.Writer) (int64, error) {
	var n int64
	w := r.width()
	total := checkpoint.NumElements(r)
	buf := make([]float32, min(total, max(1, 1<<16/w)*w))
	for off := 0; off < total; off += len(buf) {
		f := buf[:min(len(buf), total-off)]
		if err := r.ReadFloat32(f, off); err != nil {
			return n, err
		}
		k, err := checkpoint.NewFloat32("", []int{len(f)}, f).WriteTo(out)
		n += k
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
