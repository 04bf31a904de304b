package runtime

import (
	"fmt"

	"github.com/smelt-go/smelt/internal/decompress"
	"github.com/smelt-go/smelt/mil"
)

// Tensor is a dense row-major tensor of the interpreter. Floating point
// elements are held as float32 whatever the declared type (in Typed mode they
// are always representable in it); integers and bools (0 or 1) as int32.
type Tensor struct {
	DType mil.DType
	Shape []int
	F     []float32 // elements if DType is floating point
	I     []int32   // elements otherwise
}

// NewTensor makes a zeroed tensor.
func NewTensor(d mil.DType, shape ...int) *Tensor {
	t := &Tensor{DType: d, Shape: shape}
	n := t.Len()
	if d.IsFloat() {
		t.F = make([]float32, n)
	} else {
		t.I = make([]int32, n)
	}
	return t
}

// Len is the number of elements.
func (t *Tensor) Len() int { return numElements(t.Shape) }

// String describes the tensor's type, not its contents.
func (t *Tensor) String() string { return mil.TensorType{DType: t.DType, Shape: t.Shape}.String() }

// Int returns element i of an integer or bool tensor, or the truncated value
// of a floating point one.
func (t *Tensor) Int(i int) int {
	if t.F != nil {
		return int(t.F[i])
	}
	return int(t.I[i])
}

func numElements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// FromConst decodes a constant of fixed shape.
func FromConst(c mil.Const) (*Tensor, error) {
	ty := c.Type()
	t := &Tensor{DType: ty.DType, Shape: ty.Shape}
	if ty.DType == mil.String {
		return nil, fmt.Errorf("runtime: a string constant has no tensor form")
	}
	if mil.Floats.Has(ty.DType) {
		d, err := decompress.Const(c)
		if err != nil {
			return nil, fmt.Errorf("runtime: %w", err)
		}
		t.F = d.All()
		return t, nil
	}
	if ty.DType.IsFloat() {
		v, err := mil.ConstFloats(c)
		if err != nil {
			return nil, err
		}
		t.F = make([]float32, len(v))
		for i, x := range v {
			t.F[i] = float32(x)
		}
		return t, nil
	}
	v, err := mil.ConstInts(c)
	if err != nil {
		return nil, err
	}
	t.I = make([]int32, len(v))
	for i, x := range v {
		t.I[i] = int32(x)
	}
	return t, nil
}
