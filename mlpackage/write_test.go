package mlpackage_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/coremlproto"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
)

// mlp builds y = silu(x·Wᵀ) with a weight that several programs may share.
func mlp(t *testing.T, name string, rows int, w mil.Const) *mil.Function {
	t.Helper()
	b := mil.NewBuilder(name, mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float16, rows, 4))
	h := b.Op("linear", "up", mil.Args{"x": x, "weight": b.Const("w", w)})
	b.Output("y", b.Op("silu", "act", mil.Args{"x": h}))
	f, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func weight() *mil.Literal { return ramp(mil.Float16, 8, 4) }

func ramp(d mil.DType, shape ...int) *mil.Literal {
	n := mil.T(d, shape...).NumElements()
	if !d.IsFloat() {
		v := make([]int, n)
		for i := range v {
			v[i] = i % (1 << (min(d.Bits(), 8) - 1))
		}
		return mil.NewInts(d, shape, v...)
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(i)/16 - 1
	}
	return mil.NewFloats(d, shape, v...)
}

func program(fs ...*mil.Function) *mil.Program {
	p := mil.NewProgram()
	for _, f := range fs {
		p.Functions[f.Name] = f
	}
	return p
}

func write(t *testing.T, p *mil.Program, opts mlpackage.WriteOptions) (string, mlpackage.Report) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.mlpackage")
	r, err := mlpackage.Write(context.Background(), path, p, opts)
	if err != nil {
		t.Fatal(err)
	}
	return path, r
}

func model(t *testing.T, path string) *coremlproto.Model {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path, "Data", "com.apple.CoreML", "model.mlmodel"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := coremlproto.Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWriteIsDeterministic(t *testing.T) {
	opts := mlpackage.WriteOptions{Metadata: mlpackage.Metadata{Author: "a", UserDefined: map[string]string{"x": "1", "y": "2", "z": "3"}}}
	p := program(mlp(t, "main", 2, weight()), mlp(t, "other", 1, weight()))
	p.BuildInfo = map[string]string{"b": "2", "a": "1"}
	one, report := write(t, p, opts)
	two, _ := write(t, p, opts)
	if diff := cmp.Diff(files(t, one), files(t, two)); diff != "" {
		t.Error(diff)
	}
	if report.Blobs != 1 || report.Shared != 64 || report.Functions != 2 || report.Spec != 9 {
		t.Errorf("equal weights of two functions: %+v", report)
	}
}

func TestMultiFunctionForm(t *testing.T) {
	p := program(mlp(t, "decode", 1, weight()), mlp(t, "prefill", 3, weight()))
	p.Default = "decode"
	path, _ := write(t, p, mlpackage.WriteOptions{})
	d := model(t, path).GetDescription()
	if len(d.Input)+len(d.Output) != 0 || d.DefaultFunctionName != "decode" || len(d.Functions) != 2 || d.Functions[1].Name != "prefill" {
		t.Errorf("description %v", d)
	}
	if s := d.Functions[1].Input[0].Type.GetMultiArrayType().Shape; !cmp.Equal(s, []int64{3, 4}) {
		t.Errorf("input shape %v", s)
	}
	p.Default = "nobody"
	if _, err := mlpackage.Write(context.Background(), filepath.Join(t.TempDir(), "x"), p, mlpackage.WriteOptions{}); err == nil {
		t.Error("a default function that does not exist was written")
	}
}

// Which constants go to the weight file, and the field of those that do not.
func TestConstantStorage(t *testing.T) {
	for _, c := range []struct {
		c     *mil.Literal
		spec  int
		field string
	}{
		{ramp(mil.Float16, 10), 9, "blob"}, {ramp(mil.Float16, 9), 9, "bytes"},
		{ramp(mil.Float32, 2, 5), 9, "blob"}, {ramp(mil.Float32, 3, 3), 9, "floats"},
		{ramp(mil.Int8, 10), 9, "blob"}, {ramp(mil.Int8, 9), 9, "bytes"},
		{ramp(mil.UInt8, 9), 9, "bytes"},
		{ramp(mil.Int32, 10), 9, "blob"}, {ramp(mil.Int32, 10), 8, "ints"}, {ramp(mil.Int32, 9), 9, "ints"},
		{ramp(mil.Int16, 10), 9, "blob"}, {ramp(mil.Int16, 10), 8, "ints"}, {ramp(mil.UInt16, 9), 9, "ints"},
		{ramp(mil.UInt32, 9), 9, "bytes"},
		{mil.NewBools([]int{12}, make([]bool, 12)...), 9, "bools"},
		{mil.NewStr("text"), 9, "strings"},
		{ramp(mil.Int32, 0), 9, "ints"},
	} {
		b := mil.NewBuilder("main", mil.Opset(c.spec-1))
		x := b.Input("x", mil.T(mil.Float32, 1))
		b.Const("c", c.c)
		b.Output("y", b.Op("relu", "r", mil.Args{"x": x}))
		f, err := b.Func()
		if err != nil {
			t.Fatal(err)
		}
		path, report := write(t, program(f), mlpackage.WriteOptions{})
		var v *coremlproto.Value
		for _, o := range model(t, path).GetMlProgram().Functions["main"].BlockSpecializations[f.Opset.String()].Operations {
			if o.Type == "const" && o.Outputs[0].Name == "c" {
				v = o.Attributes["val"]
			}
		}
		got := "blob"
		if v.GetBlobFileValue() == nil {
			got = fieldOf(v.GetImmediateValue().GetTensor())
		}
		if got != c.field || (report.Blobs == 1) != (c.field == "blob") {
			t.Errorf("%v at spec %d is stored as %s with %d blobs, want %s", c.c.T, c.spec, got, report.Blobs, c.field)
		}
		p, err := mlpackage.Read(path, mlpackage.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Program.Functions["main"].Body.Walk(func(o *mil.Op) {
			if o.IsConst() && o.Out().Name == "c" && operand(t, o.Out()) != operand(t, mil.Inline(c.c)) {
				t.Errorf("%v changed", c.c.T)
			}
		})
		p.Close()
	}
}

func fieldOf(v *coremlproto.TensorValue) string {
	m := v.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().Get(0))
	if f == nil {
		return "nothing"
	}
	return string(f.Name())
}

// Constexpr parameters: inputs with inline values from CoreML8 on, attributes
// before; constants that feed nothing else are not written.
func TestConstexprForms(t *testing.T) {
	for _, opset := range []mil.Opset{mil.CoreML6, mil.CoreML8} {
		b := mil.NewBuilder("main", opset)
		x := b.Input("x", mil.T(mil.Float16, 2, 4))
		w := b.Op("constexpr_affine_dequantize", "w", mil.Args{
			"quantized_data": b.Const("q", ramp(mil.UInt8, 8, 4)), "zero_point": mil.NewInts(mil.UInt8, nil, 7),
			"scale": ramp(mil.Float16, 8), "axis": 0})
		if opset >= mil.CoreML8 {
			w = b.Op("constexpr_blockwise_shift_scale", "w8", mil.Args{
				"data": b.Const("q4", ramp(mil.Int4, 8, 4)), "scale": ramp(mil.Float16, 8, 1)})
		}
		b.Output("y", b.Op("linear", "l", mil.Args{"x": x, "weight": w}))
		f, err := b.Func()
		if err != nil {
			t.Fatal(err)
		}
		path, _ := write(t, program(f), mlpackage.WriteOptions{})
		for _, o := range model(t, path).GetMlProgram().Functions["main"].BlockSpecializations[opset.String()].Operations {
			switch o.Type {
			case "const":
				if n := o.Outputs[0].Name; n == "q" || n == "q4" {
					t.Errorf("%v: constant %s is written though only a constexpr reads it", opset, n)
				}
			case "constexpr_affine_dequantize":
				if len(o.Inputs) != 0 || len(o.Attributes) != 5 {
					t.Errorf("%v: %d inputs, %d attributes", opset, len(o.Inputs), len(o.Attributes))
				}
			case "constexpr_blockwise_shift_scale":
				if len(o.Attributes) != 1 || o.Inputs["data"].Arguments[0].GetValue().GetBlobFileValue() == nil {
					t.Errorf("%v: %v", opset, o)
				}
			}
		}
	}
}

// Optional inputs with a default are emitted even if the program leaves them out.
func TestDefaultsAreEmitted(t *testing.T) {
	f := mlp(t, "main", 2, weight())
	for _, op := range f.Body.Ops {
		if op.Kind == "linear" {
			var args []mil.Arg
			for _, a := range op.Args {
				if a.Param != "bias" {
					args = append(args, a)
				}
			}
			op.Args = args
		}
	}
	x := f.Body.Ops[len(f.Body.Ops)-1]
	soft := &mil.Op{Kind: "softmax", Name: "soft", Args: []mil.Arg{{Param: "x", Values: []*mil.Value{x.Out()}}}}
	soft.Outputs = []*mil.Value{{Name: "z", Type: x.Out().Type, Op: soft}}
	f.Body.Ops = append(f.Body.Ops, soft)
	f.Body.Outputs = []*mil.Value{soft.Out()}
	path, _ := write(t, program(f), mlpackage.WriteOptions{})
	p, err := mlpackage.Read(path, mlpackage.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := mil.Verify(p.Program); err != nil {
		t.Errorf("what was written is not complete: %v", err)
	}
	p.Program.Functions["main"].Body.Walk(func(o *mil.Op) {
		if o.Kind == "softmax" {
			if axis, err := mil.ConstInts(o.In("axis").Const); err != nil || axis[0] != -1 {
				t.Errorf("axis %v, %v", axis, err)
			}
		}
	})
}

func TestFeaturesCarryDetails(t *testing.T) {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float32, mil.Unknown, 4))
	b.Output("y", b.Op("relu", "r", mil.Args{"x": x}))
	f, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	want := mlpackage.Feature{Name: "x", Doc: "rows", Type: mil.T(mil.Float32, 2, 4), Optional: true, Shapes: [][]int{{2, 4}, {5, 4}}}
	ranges := mlpackage.Feature{Name: "x", Type: mil.T(mil.Float32, 2, 4), Ranges: []mlpackage.Range{{1, 8}, {4, 4}}}
	for _, feature := range []mlpackage.Feature{want, ranges} {
		path, _ := write(t, program(f), mlpackage.WriteOptions{Features: map[string]mlpackage.Interface{"main": {Inputs: []mlpackage.Feature{feature}}}})
		p, err := mlpackage.Read(path, mlpackage.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := p.Features["main"]
		if diff := cmp.Diff([]mlpackage.Feature{feature}, got.Inputs, cmp.AllowUnexported(mlpackage.Feature{})); diff != "" {
			t.Error(diff)
		}
		if y := got.Outputs[0]; y.Type.DType != mil.Float32 || len(y.Type.Shape) != 0 {
			t.Errorf("output of unknown shape described as %v", y.Type)
		}
		p.Close()
	}
}

func TestPredictedNamesSurvive(t *testing.T) {
	for _, p := range []*mil.Program{program(mlp(t, "main", 2, weight())), program(mlp(t, "main", 2, weight()), mlp(t, "other", 1, weight()))} {
		want := mlpackage.Interface{PredictedFeature: "y", PredictedProbabilities: "p"}
		path, _ := write(t, p, mlpackage.WriteOptions{Features: map[string]mlpackage.Interface{"main": want}})
		read, err := mlpackage.Read(path, mlpackage.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := read.Features["main"]; got.PredictedFeature != "y" || got.PredictedProbabilities != "p" {
			t.Errorf("predicted names %q, %q", got.PredictedFeature, got.PredictedProbabilities)
		}
		read.Close()
	}
}

func TestWriterRefuses(t *testing.T) {
	ok := func() *mil.Function { return mlp(t, "main", 2, weight()) }
	// copied is y = identity(x), with a type that the builder would not take.
	copied := func(opset mil.Opset, in mil.TensorType) *mil.Program {
		b := mil.NewBuilder("main", mil.CoreML8)
		b.Output("y", b.Op("identity", "i", mil.Args{"x": b.Input("x", mil.T(mil.Float32, 4))}))
		f, err := b.Func()
		if err != nil {
			t.Fatal(err)
		}
		f.Opset, f.Inputs[0].Type, f.Body.Outputs[0].Type = opset, in, in
		return program(f)
	}
	for _, c := range []struct {
		name string
		p    func() *mil.Program
		opts mlpackage.WriteOptions
		want string
	}{
		{"spec too low", func() *mil.Program { return program(ok()) }, mlpackage.WriteOptions{Spec: 8}, "specification version 8"},
		{"no functions", mil.NewProgram, mlpackage.WriteOptions{}, "no functions"},
		{"reserved name", func() *mil.Program { f := ok(); f.Body.Ops[0].Out().Name = "tensor"; return program(f) }, mlpackage.WriteOptions{}, `"tensor"`},
		{"no identifier", func() *mil.Program { f := ok(); f.Body.Outputs[0].Name = "a/b"; return program(f) }, mlpackage.WriteOptions{}, `"a/b"`},
		{"function name", func() *mil.Program { f := ok(); f.Name = "a b"; p := program(f); p.Default = "a b"; return p }, mlpackage.WriteOptions{}, "not legal"},
		{"output twice", func() *mil.Program {
			f := ok()
			f.Body.Outputs = append(f.Body.Outputs, f.Body.Outputs[0])
			return program(f)
		}, mlpackage.WriteOptions{}, "y"},
		{"output is input", func() *mil.Program { f := ok(); f.Body.Outputs = f.Inputs[:1]; return program(f) }, mlpackage.WriteOptions{}, "appears twice"},
		{"fp16 input at CoreML5", func() *mil.Program { return copied(mil.CoreML5, mil.T(mil.Float16, 4)) }, mlpackage.WriteOptions{}, "needs specification version 7"},
		{"bool input", func() *mil.Program { return copied(mil.CoreML8, mil.T(mil.Bool, 4)) }, mlpackage.WriteOptions{}, "cannot cross the model's interface"},
		{"flexible without shapes", func() *mil.Program { return copied(mil.CoreML8, mil.T(mil.Float32, mil.Unknown)) }, mlpackage.WriteOptions{}, "unknown dimensions"},
		{"feature of nothing", func() *mil.Program { return program(ok()) }, mlpackage.WriteOptions{
			Features: map[string]mlpackage.Interface{"main": {Inputs: []mlpackage.Feature{{Name: "ghost"}}}}}, `"ghost"`},
		{"features of no function", func() *mil.Program { return program(ok()) }, mlpackage.WriteOptions{
			Features: map[string]mlpackage.Interface{"ghost": {}}}, "function ghost"},
		{"constant of the wrong type", func() *mil.Program {
			f := ok()
			f.Body.Walk(func(o *mil.Op) {
				if o.IsConst() && o.Out().Name == "w" {
					o.Out().Const = ramp(mil.Float16, 8, 5)
				}
			})
			return program(f)
		}, mlpackage.WriteOptions{}, "w"},
		{"unknown op", func() *mil.Program {
			f := ok()
			f.Body.Ops[len(f.Body.Ops)-1].Kind = "nonsense"
			return program(f)
		}, mlpackage.WriteOptions{}, "nonsense"},
	} {
		t.Run(c.name, func(t *testing.T) {
			parent := t.TempDir()
			_, err := mlpackage.Write(context.Background(), filepath.Join(parent, "m.mlpackage"), c.p(), c.opts)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "mlpackage: ") {
				t.Errorf("%v, want …%s…", err, c.want)
			}
			if entries, _ := os.ReadDir(parent); len(entries) > 0 {
				t.Errorf("%v is left behind", entries)
			}
		})
	}
}

// failing is a lazy constant whose source breaks off.
type failing struct{ mil.Const }

func (f *failing) WriteTo(w io.Writer) (int64, error) {
	n, _ := w.Write(make([]byte, 8))
	return int64(n), errors.New("disk went away")
}

func TestNothingHalfWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.mlpackage")
	if _, err := mlpackage.Write(context.Background(), path, program(mlp(t, "main", 2, weight())), mlpackage.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	before := files(t, path)
	if _, err := mlpackage.Write(context.Background(), path, program(mlp(t, "main", 3, weight())), mlpackage.WriteOptions{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("existing package: %v", err)
	}
	_, err := mlpackage.Write(context.Background(), path, program(mlp(t, "main", 3, &failing{weight()})), mlpackage.WriteOptions{Force: true})
	if err == nil || !strings.Contains(err.Error(), "disk went away") || !strings.Contains(err.Error(), `const "w"`) {
		t.Errorf("failing constant: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := mlpackage.Write(ctx, path, program(mlp(t, "main", 3, weight())), mlpackage.WriteOptions{Force: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if diff := cmp.Diff(before, files(t, path)); diff != "" {
		t.Error(diff)
	}
	if _, err := mlpackage.Write(context.Background(), path, program(mlp(t, "main", 3, weight())), mlpackage.WriteOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(before["Data/com.apple.CoreML/model.mlmodel"], files(t, path)["Data/com.apple.CoreML/model.mlmodel"]) {
		t.Error("force did not replace the package")
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("%v is left behind", entries)
	}
}

func TestProgress(t *testing.T) {
	var last, total int64
	w := weight()
	p := program(mlp(t, "main", 2, w), mlp(t, "other", 3, w))
	write(t, p, mlpackage.WriteOptions{Progress: func(d, n int64) {
		if d < last || n != 64 {
			t.Errorf("progress %d of %d after %d", d, n, last)
		}
		last, total = d, n
	}})
	if last != total || total != 64 {
		t.Errorf("ended at %d of %d", last, total)
	}
}
