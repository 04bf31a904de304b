package mlpackage

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/internal/milblob"
	"github.com/smelt-go/smelt/mil"
)

// broken is a model under the knife.
type broken struct {
	*coremlproto.Model
	weights []byte
}

func load(t testing.TB, name string) *broken {
	t.Helper()
	dir := filepath.Join("..", "fixtures", "packages", name, "model.mlpackage", "Data", "com.apple.CoreML")
	b, err := os.ReadFile(filepath.Join(dir, "model.mlmodel"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := coremlproto.Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	w, err := os.ReadFile(filepath.Join(dir, "weights", "weight.bin"))
	if err != nil {
		t.Fatal(err)
	}
	return &broken{m, w}
}

func (b *broken) fn() *coremlproto.Function {
	for _, name := range sortedKeys(b.GetMlProgram().Functions) {
		return b.GetMlProgram().Functions[name]
	}
	return nil
}

func (b *broken) block() *coremlproto.Block { return b.fn().BlockSpecializations[b.fn().Opset] }

func (b *broken) op(kind string) *coremlproto.Operation {
	for _, o := range b.block().Operations {
		if o.Type == kind {
			return o
		}
	}
	return nil
}

// blob is the first constant that lies in the weight file.
func (b *broken) blob() *coremlproto.Value_BlobFileValue {
	for _, o := range b.block().Operations {
		if v := o.Attributes["val"].GetBlobFileValue(); v != nil {
			return v
		}
	}
	return nil
}

func (b *broken) constant(field func(*coremlproto.TensorValue) bool) *coremlproto.Operation {
	for _, o := range b.block().Operations {
		if v := o.Attributes["val"].GetImmediateValue().GetTensor(); v != nil && field(v) {
			return o
		}
	}
	return nil
}

// shrink takes four bytes off the last blob.
func (b *broken) shrink() {
	size := binary.LittleEndian.Uint64(b.weights[72:])
	binary.LittleEndian.PutUint64(b.weights[72:], size-4)
	b.weights = b.weights[:len(b.weights)-4]
}

func TestReaderRefuses(t *testing.T) {
	for _, c := range []struct {
		name, fixture string
		edit          func(*broken)
		want          string
	}{
		{"offset of nothing", "linear", func(b *broken) { b.blob().Offset += 64 }, "none of the"},
		{"offset past the end", "linear", func(b *broken) { b.blob().Offset = 1 << 40 }, "no blob at offset"},
		{"sentinel", "linear", func(b *broken) { b.weights[64]++ }, "sentinel is 0x"},
		{"blob dtype", "linear", func(b *broken) { b.weights[68] = byte(milblob.Int32) }, "the program wants tensor<fp32"},
		{"blob size", "linear", func(b *broken) { b.shrink() }, "holds 127 elements"},
		{"blob count", "linear", func(b *broken) { b.weights[0]++ }, "runs past the end"},
		{"weights truncated", "linear", func(b *broken) { b.weights = b.weights[:100] }, "truncated"},
		{"file outside", "linear", func(b *broken) { b.blob().FileName = "@model_path/weights/../x" }, "is not directly below"},
		{"file relative", "linear", func(b *broken) { b.blob().FileName = "weights/weight.bin" }, "is not directly below"},
		{"unknown op", "linear", func(b *broken) { b.op("linear").Type = "nonsense" }, "nonsense"},
		{"unknown input", "linear", func(b *broken) { b.op("linear").Inputs["zzz"] = b.op("linear").Inputs["x"] }, "zzz"},
		{"missing input", "linear", func(b *broken) { delete(b.op("linear").Inputs, "x") }, `linear "`},
		{"wrong output shape", "movement", func(b *broken) {
			b.op("transpose").Outputs[0].Type.GetTensorType().Dimensions[1].GetConstant().Size++
		}, `transpose "`},
		{"undefined", "linear", func(b *broken) { b.op("linear").Inputs["x"].Arguments[0] = byName("nowhere") }, `"nowhere" is not defined`},
		{"order", "linear", func(b *broken) {
			ops := b.block().Operations
			ops[0], ops[len(ops)-1] = ops[len(ops)-1], ops[0]
		}, "is not defined before"},
		{"duplicate name", "movement", func(b *broken) { b.op("concat").Outputs[0].Name = b.op("split").Outputs[0].Name }, "is defined twice"},
		{"output undefined", "linear", func(b *broken) { b.block().Outputs[0] = "ghost" }, `output "ghost" is not defined`},
		{"attribute", "linear", func(b *broken) { b.op("linear").Attributes["extra"] = b.op("linear").Attributes["name"] }, `attribute "extra"`},
		{"name is no string", "linear", func(b *broken) { b.op("linear").Attributes["name"] = b.op("const").Attributes["val"] }, "not a string scalar"},
		{"const without value", "linear", func(b *broken) { delete(b.op("const").Attributes, "val") }, "attribute val"},
		{"const type", "linear", func(b *broken) {
			b.op("const").Outputs[0].Type.GetTensorType().DataType = coremlproto.DataType_INT8
		}, "output declares"},
		{"no such dtype", "linear", func(b *broken) { b.op("linear").Outputs[0].Type.GetTensorType().DataType = 99 }, "unknown data type"},
		{"rank", "linear", func(b *broken) { b.op("linear").Outputs[0].Type.GetTensorType().Rank = 3 }, "rank 3 with 2 dimensions"},
		{"huge shape", "linear", func(b *broken) {
			for _, d := range b.op("linear").Outputs[0].Type.GetTensorType().Dimensions {
				d.GetConstant().Size = 1 << 40
			}
		}, "too large"},
		{"type missing", "linear", func(b *broken) { b.op("linear").Outputs[0].Type = nil }, "type is missing"},
		{"binding empty", "linear", func(b *broken) { b.op("linear").Inputs["x"].Arguments[0] = &coremlproto.Argument_Binding{} }, "binding is empty"},
		{"argument empty", "linear", func(b *broken) { b.op("linear").Inputs["x"].Arguments = nil }, "bound to nothing"},
		{"immediate length", "topk", func(b *broken) {
			o := b.constant(func(v *coremlproto.TensorValue) bool { return len(v.GetInts().GetValues()) == 1 })
			v := o.Attributes["val"].GetImmediateValue().GetTensor().GetInts()
			v.Values = append(v.Values, 1)
		}, "want 1"},
		{"immediate field", "topk", func(b *broken) {
			o := b.constant(func(v *coremlproto.TensorValue) bool { return v.GetInts() != nil })
			o.Attributes["val"].GetImmediateValue().GetTensor().Value = &coremlproto.TensorValue_Floats{
				Floats: &coremlproto.TensorValue_RepeatedFloats{Values: []float32{1}}}
		}, "stored as floats"},
		{"immediate absent", "topk", func(b *broken) {
			o := b.constant(func(v *coremlproto.TensorValue) bool { return v.GetInts() != nil })
			o.Attributes["val"].GetImmediateValue().GetTensor().Value = nil
		}, "has no data"},
		{"constexpr twice", "affine_ios16", func(b *broken) {
			o := b.op("constexpr_affine_dequantize")
			scale := &coremlproto.Argument_Binding{Binding: &coremlproto.Argument_Binding_Value{Value: o.Attributes["scale"]}}
			o.Inputs = map[string]*coremlproto.Argument{"scale": {Arguments: []*coremlproto.Argument_Binding{scale}}}
		}, "both an input and an attribute"},
		{"unknown field", "linear", func(b *broken) { b.op("linear").ProtoReflect().SetUnknown([]byte{0xf8, 0x01, 0x01}) }, "unknown fields"},
		{"opset", "linear", func(b *broken) { b.fn().Opset = "CoreML7" }, "no block for opset CoreML7 (have CoreML8)"},
		{"opset unknown", "linear", func(b *broken) { b.fn().Opset = "CoreML99" }, "CoreML99"},
		{"spec too low", "linear", func(b *broken) { b.SpecificationVersion = 8 }, "needs specification version 9"},
		{"spec too high", "linear", func(b *broken) { b.SpecificationVersion = 11 }, "specification version 11"},
		{"program version", "linear", func(b *broken) { b.GetMlProgram().Version = 2 }, "program version 2"},
		{"program attribute", "linear", func(b *broken) {
			b.GetMlProgram().Attributes["other"] = stringValue("x")
		}, `program attribute "other"`},
		{"no functions", "linear", func(b *broken) { b.GetMlProgram().Functions = nil }, "no functions"},
		{"feature missing", "linear", func(b *broken) { b.Description.Input = nil }, `input "x" of the program is not described`},
		{"feature extra", "linear", func(b *broken) { b.Description.Output[0].Name = "ghost" }, `output "ghost" is described but not in the program`},
		{"feature dtype", "linear", func(b *broken) {
			b.Description.Input[0].Type.GetMultiArrayType().DataType = coremlproto.ArrayFeatureType_INT32
		}, "is described as tensor<int32"},
		{"feature shape", "linear", func(b *broken) { b.Description.Output[0].Type.GetMultiArrayType().Shape[0]++ }, "is described as"},
		{"feature twice", "linear", func(b *broken) { b.Description.Input = append(b.Description.Input, b.Description.Input[0]) }, "described twice"},
		{"state undescribed", "state", func(b *broken) { b.Description.State = nil }, `state "kv" of the program is not described`},
		{"default function", "multifunction", func(b *broken) { b.Description.DefaultFunctionName = "nobody" }, `default function "nobody"`},
		{"function undescribed", "multifunction", func(b *broken) { b.Description.Functions = b.Description.Functions[:1] }, "is not described"},
		{"function ghost", "multifunction", func(b *broken) { b.Description.Functions[1].Name, b.Description.DefaultFunctionName = "ghost", "ghost" }, "function ghost is described but not in the program"},
		{"both kinds of features", "multifunction", func(b *broken) { b.Description.Input = b.Description.Functions[0].Input }, "features both at the top"},
		{"pipeline", "linear", func(b *broken) { b.Type = &coremlproto.Model_Pipeline{Pipeline: &coremlproto.Pipeline{}} }, "pipeline"},
		{"no body", "linear", func(b *broken) { b.Type = nil }, "not an ML Program"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := load(t, c.fixture)
			b.read(t, "") // sound before the edit
			c.edit(b)
			b.read(t, c.want)
		})
	}
}

func (b *broken) read(t *testing.T, want string) {
	t.Helper()
	model, err := coremlproto.Marshal(b.Model)
	if err != nil {
		t.Fatal(err)
	}
	_, err = ReadModel("m", model, b.weights, ReadOptions{})
	switch {
	case want == "" && err != nil:
		t.Fatal(err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%v, want …%s…", err, want)
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	b := load(t, "linear")
	b.blob().Offset += 64
	model, err := coremlproto.Marshal(b.Model)
	if err != nil {
		t.Fatal(err)
	}
	_, err = ReadModel("dir/m.mlpackage", model, b.weights, ReadOptions{})
	for _, part := range []string{"mlpackage: dir/m.mlpackage: ", "function main", "const \"", "weight.bin"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}

func TestOneOfSeveralSpecializations(t *testing.T) {
	b := load(t, "linear")
	b.fn().BlockSpecializations["CoreML7"] = &coremlproto.Block{Outputs: []string{"ghost"}}
	b.read(t, "")
}

func FuzzReadModel(f *testing.F) {
	for _, name := range []string{"linear", "state", "multifunction", "affine_ios16", "sparse_lut", "while_loop"} {
		b := load(f, name)
		model, err := coremlproto.Marshal(b.Model)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(model, b.weights)
	}
	f.Fuzz(func(t *testing.T, model, weights []byte) {
		p, err := ReadModel("fuzz", model, weights, ReadOptions{})
		if err != nil {
			return
		}
		// What reads must be written, or refused with an error.
		e := &encoder{ctx: t.Context(), spec: p.Spec, store: func(mil.Const, mil.TensorType) (uint64, error) { return 64, nil }}
		_, _ = e.program(p.Program)
	})
}
