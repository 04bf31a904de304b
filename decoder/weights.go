package decoder

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
)

// Weights replaces the matrix of a module, such as
// model.layers.0.self_attn.q_proj: nil leaves it as it is in the checkpoint.
// checkpoint.NewFloat32 makes a tensor of a matrix in memory.
type Weights func(module string) (checkpoint.Tensor, error)

// weight is the matrix of a module.
func (d *Decoder) weight(module string, w Weights, rows, cols int) (weight, error) {
	var t checkpoint.Tensor
	if w != nil {
		var err error
		if t, err = w(module); err != nil {
			return weight{}, err
		}
	}
	if t == nil {
		var ok bool
		if t, ok = d.src.Tensor(module + ".weight"); !ok {
			return weight{}, fmt.Errorf("decoder: tensor %q is missing", module+".weight")
		}
	}
	if !slices.Equal(t.Shape(), []int{rows, cols}) {
		return weight{}, fmt.Errorf("decoder: module %s: its matrix is %v, want [%d %d]", module, t.Shape(), rows, cols)
	}
	return weight{t, rows, cols}, nil
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
	return v, readRange(v, t, 0)
}

// readRange widens len(dst) elements from offset on and refuses those that are not
// finite.
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
