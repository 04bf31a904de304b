package coremlproto_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/smelt-go/smelt/coremlproto"
)

func models(t *testing.T) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("../fixtures/packages/*/model.mlpackage/Data/com.apple.CoreML/model.mlmodel")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d models, %v", len(paths), err)
	}
	out := map[string][]byte{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.Split(p, "/")[3]] = b
	}
	return out
}

// unknown counts bytes that the schema does not explain, in the whole tree.
func unknown(m protoreflect.Message) int {
	n := len(m.GetUnknown())
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
				n += unknown(e.Message())
				return true
			})
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				n += unknown(v.List().Get(i).Message())
			}
		default:
			n += unknown(v.Message())
		}
		return true
	})
	return n
}

// The schema explains every byte of models that coremltools wrote, and encoding
// neither loses nor adds any: sizes agree, and so do all messages decoded again.
func TestRealModels(t *testing.T) {
	for name, b := range models(t) {
		m, err := coremlproto.Unmarshal(b)
		if err != nil {
			t.Fatal(err)
		}
		if n := unknown(m.ProtoReflect()); n > 0 {
			t.Errorf("%s: %d bytes in unknown fields", name, n)
		}
		out, err := coremlproto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := coremlproto.Unmarshal(out)
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(m, again) {
			t.Errorf("%s: changed by a round trip", name)
		}
		if len(out) != len(b) {
			t.Errorf("%s: %d bytes, written again %d", name, len(b), len(out))
		}
		twice, err := coremlproto.Marshal(again)
		if err != nil || !bytes.Equal(out, twice) {
			t.Errorf("%s: two encodings differ (%v)", name, err)
		}
	}
}

func TestUnknownFieldsSurvive(t *testing.T) {
	m := &coremlproto.Model{SpecificationVersion: 4, Description: &coremlproto.ModelDescription{}}
	b, err := coremlproto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	const neuralNetwork = 500
	body := protowire.AppendTag(nil, neuralNetwork, protowire.BytesType)
	body = protowire.AppendBytes(body, []byte("a body this schema does not declare"))
	m, err = coremlproto.Unmarshal(append(b, body...))
	if err != nil {
		t.Fatal(err)
	}
	if m.GetType() != nil {
		t.Errorf("type %T", m.GetType())
	}
	m.SpecificationVersion = 5
	out, err := coremlproto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(out, body) {
		t.Error("the unknown body is lost")
	}
}

// Numbers that the wire format fixes: a wrong one would still pass every round
// trip of our own.
func TestFieldNumbers(t *testing.T) {
	for _, c := range []struct {
		m      proto.Message
		field  protoreflect.Name
		number protoreflect.FieldNumber
	}{
		{&coremlproto.Model{}, "mlProgram", 502}, {&coremlproto.Model{}, "pipeline", 202}, {&coremlproto.Model{}, "serializedModel", 3000},
		{&coremlproto.ModelDescription{}, "functions", 20}, {&coremlproto.ModelDescription{}, "defaultFunctionName", 21},
		{&coremlproto.ModelDescription{}, "state", 13}, {&coremlproto.ModelDescription{}, "metadata", 100},
		{&coremlproto.FunctionDescription{}, "state", 6}, {&coremlproto.Metadata{}, "userDefined", 100},
		{&coremlproto.FeatureType{}, "stateType", 8}, {&coremlproto.FeatureType{}, "isOptional", 1000},
		{&coremlproto.ArrayFeatureType{}, "shapeRange", 31}, {&coremlproto.ArrayFeatureType{}, "enumeratedShapes", 21},
		{&coremlproto.Function{}, "block_specializations", 3}, {&coremlproto.Operation{}, "attributes", 5},
		{&coremlproto.Value{}, "blobFileValue", 5}, {&coremlproto.TensorValue{}, "bytes", 7}, {&coremlproto.TensorValue{}, "longInts", 5},
	} {
		f := c.m.ProtoReflect().Descriptor().Fields().ByName(c.field)
		if f == nil || f.Number() != c.number {
			t.Errorf("%T.%s: %v, want number %d", c.m, c.field, f, c.number)
		}
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	_, err := coremlproto.Unmarshal(bytes.Repeat([]byte{0xff}, 64))
	if err == nil || !strings.HasPrefix(err.Error(), "coremlproto: ") {
		t.Errorf("garbage: %v", err)
	}
}
