package mlpackage

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/mil"
)

// known rejects a message with fields that the schema does not have: they could
// change the meaning of what surrounds them.
func known(m proto.Message, what string) error {
	if n := len(m.ProtoReflect().GetUnknown()); n > 0 {
		return fmt.Errorf("%s has unknown fields (%d bytes; written by a newer tool?)", what, n)
	}
	return nil
}

func readType(t *coremlproto.ValueType) (mil.Type, error) {
	if t == nil {
		return nil, errors.New("type is missing")
	}
	switch k := t.Type.(type) {
	case *coremlproto.ValueType_TensorType:
		return readTensorType(k.TensorType)
	case *coremlproto.ValueType_StateType:
		inner, err := readType(k.StateType.GetWrappedType())
		if err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
		tensor, ok := inner.(mil.TensorType)
		if !ok {
			return nil, fmt.Errorf("state of %v, want a tensor", inner)
		}
		return mil.StateType{Tensor: tensor}, nil
	case *coremlproto.ValueType_ListType:
		elem, err := readType(k.ListType.GetType())
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		n, err := readDimension(k.ListType.GetLength())
		if err != nil {
			return nil, fmt.Errorf("list length: %w", err)
		}
		return mil.ListType{Elem: elem, Length: n}, nil
	case *coremlproto.ValueType_TupleType:
		var out mil.TupleType
		for _, e := range k.TupleType.GetTypes() {
			elem, err := readType(e)
			if err != nil {
				return nil, fmt.Errorf("tuple: %w", err)
			}
			out.Elems = append(out.Elems, elem)
		}
		return out, nil
	case *coremlproto.ValueType_DictionaryType:
		key, err := readType(k.DictionaryType.GetKeyType())
		if err != nil {
			return nil, fmt.Errorf("dictionary key: %w", err)
		}
		value, err := readType(k.DictionaryType.GetValueType())
		if err != nil {
			return nil, fmt.Errorf("dictionary value: %w", err)
		}
		return mil.DictType{Key: key, Value: value}, nil
	}
	if err := known(t, "type"); err != nil {
		return nil, err
	}
	return nil, errors.New("type is empty")
}

func readTensorType(t *coremlproto.TensorType) (mil.TensorType, error) {
	var none mil.TensorType
	if err := known(t, "tensor type"); err != nil {
		return none, err
	}
	d, ok := dtypeOf[t.GetDataType()]
	if !ok {
		return none, fmt.Errorf("unknown data type %v", t.GetDataType())
	}
	if len(t.GetAttributes()) > 0 {
		return none, errors.New("tensor type with attributes is not supported")
	}
	if t.GetRank() != int64(len(t.GetDimensions())) {
		return none, fmt.Errorf("rank %d with %d dimensions", t.GetRank(), len(t.GetDimensions()))
	}
	out := mil.TensorType{DType: d}
	size := 1
	for _, dim := range t.GetDimensions() {
		n, err := readDimension(dim)
		if err != nil {
			return none, err
		}
		out.Shape = append(out.Shape, n)
		if n > 0 {
			// Bits per element are at most 64: bytes stay inside an int64.
			if size > math.MaxInt64/64/n {
				return none, fmt.Errorf("shape %v is too large", out.Shape)
			}
			size *= n
		}
	}
	return out, nil
}

func readDimension(d *coremlproto.Dimension) (int, error) {
	switch k := d.GetDimension().(type) {
	case *coremlproto.Dimension_Constant:
		n := k.Constant.GetSize()
		if n > math.MaxInt64/64 {
			return 0, fmt.Errorf("dimension of size %d", n)
		}
		return int(n), nil
	case *coremlproto.Dimension_Unknown:
		if k.Unknown.GetVariadic() {
			return 0, errors.New("tensors of unknown rank are not supported")
		}
		return mil.Unknown, nil
	}
	return 0, errors.New("dimension is empty")
}

func writeType(t mil.Type) (*coremlproto.ValueType, error) {
	switch t := t.(type) {
	case mil.TensorType:
		tensor, err := writeTensorType(t)
		return &coremlproto.ValueType{Type: &coremlproto.ValueType_TensorType{TensorType: tensor}}, err
	case mil.StateType:
		inner, err := writeType(t.Tensor)
		return &coremlproto.ValueType{Type: &coremlproto.ValueType_StateType{
			StateType: &coremlproto.StateType{WrappedType: inner}}}, err
	case mil.ListType:
		elem, err := writeType(t.Elem)
		return &coremlproto.ValueType{Type: &coremlproto.ValueType_ListType{
			ListType: &coremlproto.ListType{Type: elem, Length: writeDimension(t.Length)}}}, err
	case mil.TupleType:
		tuple := &coremlproto.TupleType{}
		for _, e := range t.Elems {
			elem, err := writeType(e)
			if err != nil {
				return nil, err
			}
			tuple.Types = append(tuple.Types, elem)
		}
		return &coremlproto.ValueType{Type: &coremlproto.ValueType_TupleType{TupleType: tuple}}, nil
	case mil.DictType:
		key, err := writeType(t.Key)
		if err != nil {
			return nil, err
		}
		value, err := writeType(t.Value)
		return &coremlproto.ValueType{Type: &coremlproto.ValueType_DictionaryType{
			DictionaryType: &coremlproto.DictionaryType{KeyType: key, ValueType: value}}}, err
	}
	return nil, errors.New("type is missing")
}

func writeTensorType(t mil.TensorType) (*coremlproto.TensorType, error) {
	f, ok := forms[t.DType]
	if !ok {
		return nil, fmt.Errorf("%v cannot be written", t)
	}
	out := &coremlproto.TensorType{DataType: f.code, Rank: int64(len(t.Shape))}
	for _, n := range t.Shape {
		if n < mil.Unknown {
			return nil, fmt.Errorf("%v has a negative dimension", t)
		}
		out.Dimensions = append(out.Dimensions, writeDimension(n))
	}
	return out, nil
}

func writeDimension(n int) *coremlproto.Dimension {
	if n == mil.Unknown {
		return &coremlproto.Dimension{Dimension: &coremlproto.Dimension_Unknown{
			Unknown: &coremlproto.Dimension_UnknownDimension{}}}
	}
	return &coremlproto.Dimension{Dimension: &coremlproto.Dimension_Constant{
		Constant: &coremlproto.Dimension_ConstantDimension{Size: uint64(n)}}}
}
