package decompress

import (
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/mil"
)

// Options changes how a value is decoded.
type Options struct {
	// Exact leaves out the rounding of fp16 results.
	Exact bool
}

// Tensor decodes a compile-time value. It is safe for concurrent use.
type Tensor struct {
	Type mil.TensorType
	src  source
}

// source writes elements [first, first+len(dst)) in row-major order. Integers
// are widened. Constructors have checked that all elements can be decoded.
type source interface {
	read(dst []float32, first int)
}

// Of returns the decoder of v: a constant, or an output of a constexpr op
// whose operands are such values in turn. Parameters are checked here.
func Of(v *mil.Value, o Options) (*Tensor, error) {
	t, err := of(v, o)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return t, nil
}

func of(v *mil.Value, o Options) (*Tensor, error) {
	switch {
	case v == nil:
		return nil, fmt.Errorf("no value")
	case v.Const != nil:
		return constTensor(v.Const)
	case v.Op == nil || !strings.HasPrefix(v.Op.Kind, "constexpr_"):
		return nil, fmt.Errorf("value %q is not known at compile time", v.Name)
	}
	t, err := constexpr(v.Op, slices.Index(v.Op.Outputs, v), o)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", v.Op.Kind, v.Op.Name, err)
	}
	return t, nil
}

// Const returns the decoder of a plain constant.
func Const(c mil.Const) (*Tensor, error) {
	t, err := constTensor(c)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return t, nil
}

func constTensor(c mil.Const) (*Tensor, error) {
	p, err := pack(c)
	if err != nil {
		return nil, err
	}
	return &Tensor{c.Type(), p}, nil
}

// Len is the number of elements.
func (t *Tensor) Len() int { return t.Type.NumElements() }

// RowLen is the number of elements of a row: of a step of the first axis. A
// scalar is one row.
func (t *Tensor) RowLen() int {
	if t.Type.Rank() == 0 {
		return 1
	}
	return mil.Volume(t.Type.Shape[1:])
}

// NumRows is the size of the first axis.
func (t *Tensor) NumRows() int {
	if t.Type.Rank() == 0 {
		return 1
	}
	return t.Type.Shape[0]
}

// Rows decodes rows first to first+n−1 into dst, which must hold n·RowLen
// elements. It panics on rows that do not exist.
func (t *Tensor) Rows(dst []float32, first, n int) {
	r := t.RowLen()
	t.Elements(dst[:n*r], first*r)
}

// Elements decodes len(dst) elements in row-major order, from element first
// on. It panics on elements that do not exist.
func (t *Tensor) Elements(dst []float32, first int) {
	if first < 0 || first+len(dst) > t.Len() {
		panic(fmt.Sprintf("decompress: elements %d to %d of %v", first, first+len(dst), t.Type))
	}
	if len(dst) > 0 {
		t.src.read(dst, first)
	}
}

// All decodes every element.
func (t *Tensor) All() []float32 {
	out := make([]float32, t.Len())
	t.Elements(out, 0)
	return out
}

// chunk is the number of codes that a decoder unpacks at a time, on the
// stack.
const chunk = 256

// chunks calls body for pieces of [first, first+len(dst)).
func chunks(dst []float32, first int, body func(dst []float32, first int)) {
	for len(dst) > 0 {
		n := min(len(dst), chunk)
		body(dst[:n], first)
		dst, first = dst[n:], first+n
	}
}
