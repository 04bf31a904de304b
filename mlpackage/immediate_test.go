package mlpackage

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/mil"
)

func ints(v ...int32) *coremlproto.TensorValue {
	return &coremlproto.TensorValue{Value: &coremlproto.TensorValue_Ints{Ints: &coremlproto.TensorValue_RepeatedInts{Values: v}}}
}

func longs(v ...int64) *coremlproto.TensorValue {
	return &coremlproto.TensorValue{Value: &coremlproto.TensorValue_LongInts{LongInts: &coremlproto.TensorValue_RepeatedLongInts{Values: v}}}
}

func floats(v ...float32) *coremlproto.TensorValue {
	return &coremlproto.TensorValue{Value: &coremlproto.TensorValue_Floats{Floats: &coremlproto.TensorValue_RepeatedFloats{Values: v}}}
}

func raw(v ...byte) *coremlproto.TensorValue {
	return &coremlproto.TensorValue{Value: &coremlproto.TensorValue_Bytes{Bytes: &coremlproto.TensorValue_RepeatedBytes{Values: v}}}
}

// Every field that can hold a type is accepted, and gives the same constant.
func TestImmediateFields(t *testing.T) {
	for _, c := range []struct {
		want *mil.Literal
		in   *coremlproto.TensorValue
	}{
		{mil.NewInts(mil.Int8, []int{2}, -1, 127), ints(-1, 127)},
		{mil.NewInts(mil.Int8, []int{2}, -1, 127), raw(0xff, 0x7f)},
		{mil.NewInts(mil.UInt8, []int{1}, 255), ints(255)},
		{mil.NewInts(mil.Int16, []int{2}, -2, 300), ints(-2, 300)},
		{mil.NewInts(mil.Int16, []int{2}, -2, 300), raw(0xfe, 0xff, 0x2c, 0x01)},
		{mil.NewInts(mil.UInt16, []int{1}, 65535), ints(65535)},
		{mil.NewInts(mil.UInt32, []int{1}, 1<<32-1), raw(255, 255, 255, 255)},
		{mil.NewInts(mil.UInt32, []int{1}, 1<<32-1), longs(1<<32 - 1)},
		{mil.NewInts(mil.Int64, []int{1}, math.MinInt64), longs(math.MinInt64)},
		{mil.NewInts(mil.UInt64, []int{1}, -1), longs(-1)},
		{mil.NewInts(mil.UInt3, []int{5}, 1, 2, 3, 4, 5), raw(0xd1, 0x58)},
		{mil.NewInts(mil.Int4, []int{3}, -1, 2, -8), raw(0x2f, 0x08)},
		{mil.NewFloats(mil.Float16, []int{1}, 1.5), floats(1.5)},
		{mil.NewFloats(mil.Float16, []int{1}, 1.5), raw(0x00, 0x3e)},
		{mil.NewFloats(mil.Float32, nil, 0.1), floats(0.1)},
		{mil.NewInts(mil.Int32, []int{0}), &coremlproto.TensorValue{}},
	} {
		got, err := readImmediate(c.want.T, c.in)
		if err != nil || string(got.Data) != string(c.want.Data) || !got.T.Equal(c.want.T) {
			t.Errorf("%v from %v: %v, %v", c.want.T, c.in, got, err)
		}
	}
}

func TestImmediateRefuses(t *testing.T) {
	for _, c := range []struct {
		t    mil.TensorType
		in   *coremlproto.TensorValue
		want string
	}{
		{mil.T(mil.Int8, 1), ints(128), "holds 128"},
		{mil.T(mil.UInt8, 1), ints(-1), "holds -1"},
		{mil.T(mil.UInt3, 1), ints(8), "holds 8"},
		{mil.T(mil.Int4, 1), ints(-9), "holds -9"},
		{mil.T(mil.Int32, 1), longs(1 << 31), "holds 2147483648"},
		{mil.T(mil.Int32, 2), ints(1), "has 1 elements"},
		{mil.T(mil.Int32, 1), raw(1, 2, 3), "has 3 bytes"},
		{mil.T(mil.Float16, 1), floats(0.1), "no fp16 number"},
		{mil.T(mil.Float32, 1), ints(1), "stored as integers"},
		{mil.T(mil.Bool, 1), floats(1), "stored as floats"},
		{mil.T(mil.String), raw(), "stored as bytes"},
		{mil.T(mil.Float32, mil.Unknown), floats(), "unknown shape"},
		{mil.T(mil.Float32, 1), &coremlproto.TensorValue{}, "has no data"},
	} {
		if got, err := readImmediate(c.t, c.in); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v from %v: %v, %v, want …%s…", c.t, c.in, got, err, c.want)
		}
	}
}

// What is written reads back as it was, NaN bits and signed zeros included.
func TestImmediateRoundTrip(t *testing.T) {
	odd := mil.NewFloats(mil.Float32, []int{3}, 0, math.Inf(-1), 1)
	copy(odd.Data, []byte{1, 0, 0xc0, 0x7f}) // a NaN with a payload
	for _, c := range []*mil.Literal{
		odd, mil.NewFloats(mil.Float16, []int{2}, math.Copysign(0, -1), 65504), mil.NewFloats(mil.Float64, nil, 0.1),
		mil.NewInts(mil.Int64, []int{2}, -5, 1<<40), mil.NewInts(mil.UInt16, []int{1, 2}, 65535, 0),
		mil.NewInts(mil.UInt6, []int{3}, 1, 2, 63), mil.NewBools([]int{3}, true, false, true), mil.NewStr("naïve"),
		mil.NewInts(mil.Int8, []int{0, 3}), mil.NewFloats(mil.Float32, []int{0}),
	} {
		v, err := writeImmediate(c)
		if err != nil {
			t.Fatal(err)
		}
		if v.Value == nil {
			t.Errorf("%v: no field is set", c.T)
		}
		wire, err := proto.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		again := &coremlproto.TensorValue{}
		if err := proto.Unmarshal(wire, again); err != nil {
			t.Fatal(err)
		}
		got, err := readImmediate(c.T, again)
		if err != nil || string(got.Data) != string(c.Data) || strings.Join(got.Strs, "|") != strings.Join(c.Strs, "|") {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
}

func TestListsAndMaps(t *testing.T) {
	classes := &mil.Literal{T: mil.T(mil.String, 2), Strs: []string{"cat", "dog"}}
	list := mil.ListType{Elem: mil.T(mil.String), Length: 2}
	lt, err := writeType(list)
	if err != nil {
		t.Fatal(err)
	}
	v, err := listValue(lt, list, classes)
	if err != nil {
		t.Fatal(err)
	}
	typ, c, err := newWeights(nil).value(v)
	if err != nil || typ.String() != list.String() || strings.Join(c.(*mil.Literal).Strs, " ") != "cat dog" {
		t.Errorf("%v %v, %v", typ, c, err)
	}
	v.GetImmediateValue().GetList().Values = v.GetImmediateValue().GetList().Values[:1]
	if _, _, err := newWeights(nil).value(v); err == nil {
		t.Error("a list shorter than its type was read")
	}
	m := map[string]string{"a": "1", "b": "2"}
	got, err := readStringMap(stringMap(m))
	if err != nil || len(got) != 2 || got["a"] != "1" || got["b"] != "2" {
		t.Errorf("%v, %v", got, err)
	}
}
