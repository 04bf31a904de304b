package mlpackage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/x448/float16"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/mil"
)

// readImmediate decodes the elements of an inline tensor. Numbers are accepted in
// any field that can hold them, not only in the one that writers choose today.
func readImmediate(t mil.TensorType, v *coremlproto.TensorValue) (*mil.Literal, error) {
	n := t.NumElements()
	if n == mil.Unknown {
		return nil, fmt.Errorf("constant of unknown shape %v", t)
	}
	out := &mil.Literal{T: t}
	size := func(got, want int, unit string) error {
		if got != want {
			return fmt.Errorf("%v immediate has %d %s, want %d", t, got, unit, want)
		}
		return nil
	}
	wrong := func(name string) error { return fmt.Errorf("%v immediate is stored as %s", t, name) }
	switch k := v.GetValue().(type) {
	case *coremlproto.TensorValue_Bytes:
		if t.DType == mil.String {
			return nil, wrong("bytes")
		}
		out.Data = k.Bytes.GetValues()
		return out, size(len(out.Data), int(t.NumBytes()), "bytes")
	case *coremlproto.TensorValue_Ints:
		if err := size(len(k.Ints.GetValues()), n, "elements"); err != nil {
			return nil, err
		}
		return readInts(t, k.Ints.GetValues())
	case *coremlproto.TensorValue_LongInts:
		if err := size(len(k.LongInts.GetValues()), n, "elements"); err != nil {
			return nil, err
		}
		return readInts(t, k.LongInts.GetValues())
	case *coremlproto.TensorValue_Floats:
		f := k.Floats.GetValues()
		if err := size(len(f), n, "elements"); err != nil {
			return nil, err
		}
		switch t.DType {
		case mil.Float32:
			for _, x := range f {
				out.Data = binary.LittleEndian.AppendUint32(out.Data, math.Float32bits(x))
			}
		case mil.Float16:
			for _, x := range f {
				h := float16.Fromfloat32(x)
				if back := h.Float32(); back != x && x == x {
					return nil, fmt.Errorf("%v immediate holds %v, no fp16 number", t, x)
				}
				out.Data = binary.LittleEndian.AppendUint16(out.Data, h.Bits())
			}
		default:
			return nil, wrong("floats")
		}
		return out, nil
	case *coremlproto.TensorValue_Doubles:
		if t.DType != mil.Float64 {
			return nil, wrong("doubles")
		}
		for _, x := range k.Doubles.GetValues() {
			out.Data = binary.LittleEndian.AppendUint64(out.Data, math.Float64bits(x))
		}
		return out, size(len(k.Doubles.GetValues()), n, "elements")
	case *coremlproto.TensorValue_Bools:
		if t.DType != mil.Bool {
			return nil, wrong("bools")
		}
		for _, x := range k.Bools.GetValues() {
			b := byte(0)
			if x {
				b = 1
			}
			out.Data = append(out.Data, b)
		}
		return out, size(len(out.Data), n, "elements")
	case *coremlproto.TensorValue_Strings:
		if t.DType != mil.String {
			return nil, wrong("strings")
		}
		out.Strs = k.Strings.GetValues()
		return out, size(len(out.Strs), n, "elements")
	}
	if n == 0 {
		return out, nil
	}
	return nil, fmt.Errorf("%v immediate has no data", t)
}

func readInts[T int32 | int64](t mil.TensorType, v []T) (*mil.Literal, error) {
	if !t.DType.IsInt() {
		return nil, fmt.Errorf("%v immediate is stored as integers", t)
	}
	lo, hi := int64(0), int64(math.MaxInt64)
	bits := t.DType.Bits()
	switch {
	case bits == 64:
		lo = math.MinInt64 // unsigned values wrap
	case t.DType.IsSigned():
		lo, hi = -1<<(bits-1), 1<<(bits-1)-1
	default:
		hi = 1<<bits - 1
	}
	values := make([]int, len(v))
	for i, x := range v {
		if int64(x) < lo || int64(x) > hi {
			return nil, fmt.Errorf("%v immediate holds %d, outside [%d, %d]", t, x, lo, hi)
		}
		values[i] = int(x)
	}
	return mil.NewInts(t.DType, t.Shape, values...), nil
}

// writeImmediate encodes a constant into the field that Core ML reads for its
// type. An empty tensor gets the empty field.
func writeImmediate(c mil.Const) (*coremlproto.TensorValue, error) {
	t := c.Type()
	if t.DType == mil.String {
		l, ok := c.(*mil.Literal)
		if !ok || len(l.Strs) != t.NumElements() {
			return nil, fmt.Errorf("%v constant does not hold its strings", t)
		}
		return &coremlproto.TensorValue{Value: &coremlproto.TensorValue_Strings{
			Strings: &coremlproto.TensorValue_RepeatedStrings{Values: l.Strs}}}, nil
	}
	b, err := mil.ConstBytes(c)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != t.NumBytes() {
		return nil, fmt.Errorf("%v constant has %d bytes, want %d", t, len(b), t.NumBytes())
	}
	out := &coremlproto.TensorValue{}
	n := t.NumElements()
	switch forms[t.DType].field {
	case inBytes:
		out.Value = &coremlproto.TensorValue_Bytes{Bytes: &coremlproto.TensorValue_RepeatedBytes{Values: b}}
	case inInts, inLongs:
		v, err := mil.ConstInts(c)
		if err != nil {
			return nil, err
		}
		if forms[t.DType].field == inInts {
			values := make([]int32, n)
			for i := range values {
				values[i] = int32(v[i])
			}
			out.Value = &coremlproto.TensorValue_Ints{Ints: &coremlproto.TensorValue_RepeatedInts{Values: values}}
			break
		}
		values := make([]int64, n)
		for i := range values {
			values[i] = int64(v[i])
		}
		out.Value = &coremlproto.TensorValue_LongInts{LongInts: &coremlproto.TensorValue_RepeatedLongInts{Values: values}}
	case inFloats:
		values := make([]float32, n)
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		out.Value = &coremlproto.TensorValue_Floats{Floats: &coremlproto.TensorValue_RepeatedFloats{Values: values}}
	case inDoubles:
		values := make([]float64, n)
		for i := range values {
			values[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
		out.Value = &coremlproto.TensorValue_Doubles{Doubles: &coremlproto.TensorValue_RepeatedDoubles{Values: values}}
	case inBools:
		values := make([]bool, n)
		for i := range values {
			values[i] = b[i] != 0
		}
		out.Value = &coremlproto.TensorValue_Bools{Bools: &coremlproto.TensorValue_RepeatedBools{Values: values}}
	default:
		return nil, fmt.Errorf("%v cannot be written", t)
	}
	return out, nil
}

// scalarString decodes an inline string, the form of operation names.
func scalarString(v *coremlproto.Value) (string, error) {
	t, err := readType(v.GetType())
	if err != nil {
		return "", err
	}
	s := v.GetImmediateValue().GetTensor().GetStrings().GetValues()
	if tt, ok := t.(mil.TensorType); !ok || tt.DType != mil.String || tt.Rank() != 0 || len(s) != 1 {
		return "", errors.New("not a string scalar")
	}
	return s[0], nil
}
