package mlpackage_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
)

const fixtures = "../fixtures/packages"

func fixture(t *testing.T, name string) *mlpackage.Package {
	t.Helper()
	p, err := mlpackage.Read(filepath.Join(fixtures, name, "model.mlpackage"), mlpackage.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func fixtureNames(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(fixtures, "*", "model.mlpackage"))
	if err != nil || len(dirs) < 10 {
		t.Fatalf("%d fixtures, %v", len(dirs), err)
	}
	var names []string
	for _, d := range dirs {
		names = append(names, filepath.Base(filepath.Dir(d)))
	}
	return names
}

// plain is an op without pointers, for comparison.
type plain struct {
	Kind, Name string
	Args       map[string][]string
	Outputs    []string
	Blocks     [][]plain
	Value      string
}

// meaning lists the ops of a block other than const; a bound constant stands for
// its type and bytes, whether it is inline or an op of its own.
func meaning(t *testing.T, b *mil.Block) []plain {
	t.Helper()
	var out []plain
	for _, op := range b.Ops {
		if op.IsConst() {
			continue
		}
		p := plain{Kind: op.Kind, Name: op.Name, Args: map[string][]string{}}
		for _, a := range op.Args {
			for _, v := range a.Values {
				p.Args[a.Param] = append(p.Args[a.Param], operand(t, v))
			}
		}
		for _, v := range op.Outputs {
			p.Outputs = append(p.Outputs, v.Name+" "+v.Type.String())
		}
		for _, n := range op.Blocks {
			p.Blocks = append(p.Blocks, meaning(t, n))
		}
		out = append(out, p)
	}
	return out
}

func operand(t *testing.T, v *mil.Value) string {
	t.Helper()
	if v.Const == nil {
		return v.Name
	}
	b, err := mil.ConstBytes(v.Const)
	if err != nil {
		t.Fatal(err)
	}
	text := v.Type.String() + " " + string(b)
	if l, ok := v.Const.(*mil.Literal); ok {
		text += strings.Join(l.Strs, "\x00")
	}
	return text
}

func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		out[rel], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Packages that coremltools wrote keep their meaning when written again, and the
// second generation is byte-identical to the first.
func TestRewrite(t *testing.T) {
	for _, name := range fixtureNames(t) {
		t.Run(name, func(t *testing.T) {
			p := fixture(t, name)
			dir := t.TempDir()
			write := func(to string, p *mlpackage.Package) *mlpackage.Package {
				path := filepath.Join(dir, to)
				if _, err := mlpackage.Write(context.Background(), path, p.Program, p.WriteOptions()); err != nil {
					t.Fatal(err)
				}
				again, err := mlpackage.Read(path, mlpackage.ReadOptions{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { again.Close() })
				return again
			}
			again := write("one.mlpackage", p)
			write("two.mlpackage", again)
			if diff := cmp.Diff(files(t, filepath.Join(dir, "one.mlpackage")), files(t, filepath.Join(dir, "two.mlpackage"))); diff != "" {
				t.Errorf("second generation differs: %s", diff)
			}
			if again.Spec != p.Spec || again.Program.Default != p.Program.Default {
				t.Errorf("spec %d, default %q; want %d, %q", again.Spec, again.Program.Default, p.Spec, p.Program.Default)
			}
			if diff := cmp.Diff(p.Metadata, again.Metadata); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(p.Program.Names(), again.Program.Names()); diff != "" {
				t.Fatal(diff)
			}
			for _, f := range p.Program.Names() {
				a, b := p.Program.Functions[f], again.Program.Functions[f]
				if a.Opset != b.Opset {
					t.Errorf("%s: opset %v, want %v", f, b.Opset, a.Opset)
				}
				// Defaults that coremltools left out may come on top.
				got, want := meaning(t, b.Body), meaning(t, a.Body)
				trim(got, want)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: %s", f, diff)
				}
			}
		})
	}
}

// trim drops arguments from got that want does not have at all.
func trim(got, want []plain) {
	for i := range min(len(got), len(want)) {
		for param := range got[i].Args {
			if _, ok := want[i].Args[param]; !ok {
				delete(got[i].Args, param)
			}
		}
		for k := range min(len(got[i].Blocks), len(want[i].Blocks)) {
			trim(got[i].Blocks[k], want[i].Blocks[k])
		}
	}
}

func ops(f *mil.Function) map[string]int {
	n := map[string]int{}
	f.Body.Walk(func(o *mil.Op) { n[o.Kind]++ })
	return n
}

func TestReadWhatCoremltoolsWrote(t *testing.T) {
	t.Run("linear", func(t *testing.T) {
		p := fixture(t, "linear")
		f := p.Program.Functions["main"]
		if p.Spec != 9 || f.Opset != mil.CoreML8 || p.Program.Default != "" {
			t.Errorf("spec %d, opset %v, default %q", p.Spec, f.Opset, p.Program.Default)
		}
		if p.Metadata.Author != "smelt" || p.Metadata.UserDefined["case"] != "linear" {
			t.Errorf("metadata %+v", p.Metadata)
		}
		var linear *mil.Op
		f.Body.Walk(func(o *mil.Op) {
			if o.Kind == "linear" {
				linear = o
			}
		})
		w, ok := linear.In("weight").Const.(mil.RawConst)
		if !ok || w.Type().String() != "tensor<fp32, [8, 16]>" || len(w.Raw()) != 512 {
			t.Fatalf("weight is %T", linear.In("weight").Const)
		}
		if cap(w.Raw()) != 512 {
			t.Error("the slice reaches into the next blob")
		}
	})
	t.Run("multifunction", func(t *testing.T) {
		p := fixture(t, "multifunction")
		if p.Program.Default != "decode" || len(p.Program.Functions) != 2 {
			t.Fatalf("default %q of %v", p.Program.Default, p.Program.Names())
		}
		weight := func(name string) mil.Const {
			var c mil.Const
			p.Program.Functions[name].Body.Walk(func(o *mil.Op) {
				if o.Kind == "linear" {
					c = o.In("weight").Const
				}
			})
			return c
		}
		if weight("decode") != weight("prefill") {
			t.Error("a shared blob is two constants")
		}
		if s := p.Features["decode"].States; len(s) != 1 || s[0].Name != "kv" || s[0].Type.String() != "tensor<fp16, [4, 8]>" {
			t.Errorf("states %+v", s)
		}
	})
	t.Run("legacy constexpr", func(t *testing.T) {
		f := fixture(t, "affine_ios16").Program.Functions["main"]
		var op *mil.Op
		f.Body.Walk(func(o *mil.Op) {
			if o.Kind == "constexpr_affine_dequantize" {
				op = o
			}
		})
		if op == nil {
			t.Fatalf("ops %v", ops(f))
		}
		var params []string
		for _, a := range op.Args {
			params = append(params, a.Param)
		}
		if diff := cmp.Diff([]string{"quantized_data", "zero_point", "scale", "axis"}, params); diff != "" {
			t.Error(diff)
		}
		if axis, err := mil.ConstInts(op.In("axis").Const); err != nil || axis[0] != 0 {
			t.Errorf("axis %v, %v", axis, err)
		}
	})
	t.Run("control flow", func(t *testing.T) {
		f := fixture(t, "while_loop").Program.Functions["main"]
		var loop *mil.Op
		f.Body.Walk(func(o *mil.Op) {
			if o.Kind == "while_loop" {
				loop = o
			}
		})
		if loop == nil || len(loop.Blocks) != 2 || len(loop.Blocks[1].Inputs) != 2 || len(loop.Blocks[1].Outputs) != 2 {
			t.Fatalf("loop %+v", loop)
		}
	})
	t.Run("states", func(t *testing.T) {
		f := fixture(t, "state").Program.Functions["main"]
		if n := ops(f); n["write_state"] != 1 || n["read_state"] != 2 {
			t.Errorf("ops %v", n)
		}
		if _, ok := f.Input("kv").Type.(mil.StateType); !ok {
			t.Errorf("kv is %v", f.Input("kv").Type)
		}
	})
	t.Run("sub-byte immediates and blobs", func(t *testing.T) {
		f := fixture(t, "lut3_grouped").Program.Functions["main"]
		f.Body.Walk(func(o *mil.Op) {
			if o.Kind != "constexpr_lut_to_dense" {
				return
			}
			c := o.In("indices").Const
			if c.Type().String() != "tensor<uint3, [32, 64]>" {
				t.Errorf("indices %v", c.Type())
			}
			if b, err := mil.ConstBytes(c); err != nil || len(b) != 32*64*3/8 {
				t.Errorf("%d bytes, %v", len(b), err)
			}
		})
	})
}

func TestZeroCopy(t *testing.T) {
	dir := filepath.Join(fixtures, "linear", "model.mlpackage", "Data", "com.apple.CoreML")
	model, err := os.ReadFile(filepath.Join(dir, "model.mlmodel"))
	if err != nil {
		t.Fatal(err)
	}
	weights, err := os.ReadFile(filepath.Join(dir, "weights", "weight.bin"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := mlpackage.ReadModel("linear", model, weights, mlpackage.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	p.Program.Functions["main"].Body.Walk(func(o *mil.Op) {
		if o.IsConst() && o.Out().Const.Type().NumElements() == 128 {
			raw := o.Out().Const.(mil.RawConst).Raw()
			at := bytes.Index(weights, raw)
			found = at > 0 && &weights[at] == &raw[0]
		}
	})
	if !found {
		t.Error("the weight was copied")
	}
	if _, err := mlpackage.ReadModel("linear", model, nil, mlpackage.ReadOptions{}); err == nil || !strings.Contains(err.Error(), "weight file weight.bin is missing") {
		t.Errorf("without weights: %v", err)
	}
}
