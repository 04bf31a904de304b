package decoder

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/smelt-go/smelt/checkpoint"
)

// Weights replaces the matrix of a module, such as
// model.layers.0.self_attn.q_proj: nil leaves it as it is in the checkpoint.
// checkpoint.NewFloat32 makes a tensor of a matrix in memory.
type Weights func(module string) (checkpoint.Tensor, error)

// weight is the matrix of a module.
func (d *Decoder) weight(module string, w Weights, rows, cols int) (checkpoint.Tensor, error) {
	var t checkpoint.Tensor
	if w != nil {
		var err error
		if t, err = w(module); err != nil {
			return nil, err
		}
	}
	if t == nil {
		var ok bool
		if t, ok = d.src.Tensor(module + ".weight"); !ok {
			return nil, fmt.Errorf("decoder: tensor %q is missing", module+".weight")
		}
	}
	if !slices.Equal(t.Shape(), []int{rows, cols}) {
		return nil, fmt.Errorf("decoder: module %s: its matrix is %v, want [%d %d]", module, t.Shape(), rows, cols)
	}
	return t, nil
}

// matrix reads a module's matrix into memory.
func (d *Decoder) matrix(module string, w Weights, rows, cols int) (Matrix, error) {
	t, err := d.weight(module, w, rows, cols)
	if err != nil {
		return Matrix{}, err
	}
	m := NewMatrix(rows, cols)
	return m, read(m.Data, t, 0)
}

// vector reads a stored vector.
func (d *Decoder) vector(name string, n int) ([]float32, error) {
	t, ok := d.src.Tensor(name)
	if !ok {
		return nil, fmt.Errorf("decoder: tensor %q is missing", name)
	}
	if got := checkpoint.NumElements(t); got != n {
		return nil, fmt.Errorf("decoder: tensor %q has %d elements, want %d", name, got, n)
	}
	v := make([]float32, n)
	return v, read(v, t, 0)
}

// read widens len(dst) elements from offset on and refuses those that are not
// finite.
func read(dst []float32, t checkpoint.Tensor, offset int) error {
	const grain = 1 << 16
	failures := make([]error, (len(dst)+grain-1)/grain)
	var failed atomic.Bool
	parallel(len(dst), grain, func(lo, hi int) {
		if failed.Load() {
			return
		}
		if err := readRange(dst[lo:hi], t, offset+lo); err != nil {
			failures[lo/grain] = err
			failed.Store(true)
		}
	})
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

func readRange(dst []float32, t checkpoint.Tensor, offset int) error {
	if err := t.ReadFloat32(dst, offset); err != nil {
		return fmt.Errorf("decoder: %w", err)
	}
	if finite(dst) {
		return nil
	}
	i := slices.IndexFunc(dst, func(x float32) bool { return x-x != 0 })
	return fmt.Errorf("decoder: tensor %q: element %d is %v (the checkpoint is damaged)", t.Name(), offset+i, dst[i])
}
