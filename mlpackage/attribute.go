package mlpackage

import (
	"fmt"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/mil"
)

func scalarType(d mil.DType) *coremlproto.ValueType {
	return &coremlproto.ValueType{Type: &coremlproto.ValueType_TensorType{
		TensorType: &coremlproto.TensorType{DataType: forms[d].code}}}
}

func stringValue(s string) *coremlproto.Value {
	return tensorValue(scalarType(mil.String), &coremlproto.TensorValue{Value: &coremlproto.TensorValue_Strings{
		Strings: &coremlproto.TensorValue_RepeatedStrings{Values: []string{s}}}})
}

// stringMap makes a dictionary value with sorted keys.
func stringMap(m map[string]string) *coremlproto.Value {
	dict := &coremlproto.DictionaryValue{}
	for _, k := range sortedKeys(m) {
		dict.Values = append(dict.Values, &coremlproto.DictionaryValue_KeyValuePair{Key: stringValue(k), Value: stringValue(m[k])})
	}
	return &coremlproto.Value{
		Type: &coremlproto.ValueType{Type: &coremlproto.ValueType_DictionaryType{DictionaryType: &coremlproto.DictionaryType{
			KeyType: scalarType(mil.String), ValueType: scalarType(mil.String)}}},
		Value: &coremlproto.Value_ImmediateValue_{ImmediateValue: &coremlproto.Value_ImmediateValue{
			Value: &coremlproto.Value_ImmediateValue_Dictionary{Dictionary: dict}}},
	}
}

// listValue makes a list of scalars from a rank-1 constant.
func listValue(t *coremlproto.ValueType, list mil.ListType, c mil.Const) (*coremlproto.Value, error) {
	l, ok := c.(*mil.Literal)
	elem, isTensor := list.Elem.(mil.TensorType)
	if !ok || !isTensor || l.T.Rank() != 1 || elem.DType != l.T.DType {
		return nil, fmt.Errorf("list %v with contents %v", list, c.Type())
	}
	out := &coremlproto.ListValue{}
	width := elem.DType.Bits() / 8
	for i := range l.T.Shape[0] {
		item := &mil.Literal{T: elem}
		if elem.DType == mil.String {
			item.Strs = l.Strs[i : i+1]
		} else {
			item.Data = l.Data[i*width : (i+1)*width]
		}
		im, err := writeImmediate(item)
		if err != nil {
			return nil, err
		}
		out.Values = append(out.Values, tensorValue(scalarType(elem.DType), im))
	}
	return &coremlproto.Value{Type: t, Value: &coremlproto.Value_ImmediateValue_{ImmediateValue: &coremlproto.Value_ImmediateValue{
		Value: &coremlproto.Value_ImmediateValue_List{List: out}}}}, nil
}
