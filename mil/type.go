package mil

import (
	"fmt"
	"slices"
	"strings"
)

// Unknown marks a dimension whose size is known only at run time.
const Unknown = -1

// A Type is the type of a Value: TensorType, StateType, ListType, TupleType
// or DictType.
type Type interface {
	fmt.Stringer
	isType()
}

// TensorType is an element type and a shape. A scalar has an empty shape; a
// symbolic dimension is Unknown.
type TensorType struct {
	DType DType
	Shape []int
}

// StateType is a mutable tensor that lives across predictions (spec ≥ 9).
type StateType struct{ Tensor TensorType }

// ListType, TupleType and DictType appear in attributes and control flow.
type ListType struct {
	Elem   Type
	Length int // Unknown if dynamic
}

// TupleType is an ordered, heterogeneous collection.
type TupleType struct{ Elems []Type }

// DictType maps keys to values, as in the program attribute buildInfo.
type DictType struct{ Key, Value Type }

func (TensorType) isType() {}
func (StateType) isType()  {}
func (ListType) isType()   {}
func (TupleType) isType()  {}
func (DictType) isType()   {}

// T is a short way to write a TensorType.
func T(d DType, shape ...int) TensorType { return TensorType{d, shape} }

// Rank is the number of axes.
func (t TensorType) Rank() int { return len(t.Shape) }

// NumElements is the product of the shape, or Unknown if any dimension is.
func (t TensorType) NumElements() int {
	n := 1
	for _, d := range t.Shape {
		if d == Unknown {
			return Unknown
		}
		n *= d
	}
	return n
}

// NumBytes is the packed storage size of a tensor of fixed shape, in bytes.
func (t TensorType) NumBytes() int64 {
	return (int64(t.NumElements())*int64(t.DType.Bits()) + 7) / 8
}

// Equal reports whether both types are identical, Unknown dimensions included.
func (t TensorType) Equal(u TensorType) bool {
	return t.DType == u.DType && slices.Equal(t.Shape, u.Shape)
}

// Compatible is Equal except that an Unknown dimension matches any size.
func (t TensorType) Compatible(u TensorType) bool {
	if t.DType != u.DType || len(t.Shape) != len(u.Shape) {
		return false
	}
	for i, d := range t.Shape {
		if d != u.Shape[i] && d != Unknown && u.Shape[i] != Unknown {
			return false
		}
	}
	return true
}

// String prints tensor<fp16, [1, 8, ?]>.
func (t TensorType) String() string {
	return "tensor<" + t.DType.String() + ", " + shapeString(t.Shape) + ">"
}

func shapeString(shape []int) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range shape {
		if i > 0 {
			b.WriteString(", ")
		}
		if d == Unknown {
			b.WriteByte('?')
		} else {
			fmt.Fprint(&b, d)
		}
	}
	b.WriteByte(']')
	return b.String()
}

func (t StateType) String() string { return "state<" + t.Tensor.String() + ">" }
func (t ListType) String() string  { return fmt.Sprintf("list<%v, %d>", t.Elem, t.Length) }
func (t DictType) String() string  { return fmt.Sprintf("dict<%v, %v>", t.Key, t.Value) }
func (t TupleType) String() string {
	s := make([]string, len(t.Elems))
	for i, e := range t.Elems {
		s[i] = e.String()
	}
	return "tuple<" + strings.Join(s, ", ") + ">"
}

// TypesCompatible reports whether a value of type a may stand where b is
// declared: same kind, and compatible tensors inside.
func TypesCompatible(a, b Type) bool {
	switch a := a.(type) {
	case TensorType:
		b, ok := b.(TensorType)
		return ok && a.Compatible(b)
	case StateType:
		b, ok := b.(StateType)
		return ok && a.Tensor.Compatible(b.Tensor)
	case nil:
		return b == nil
	}
	return b != nil && a.String() == b.String()
}
