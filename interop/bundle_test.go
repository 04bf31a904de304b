package interop

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/runtime"
)

// form is a way to convert a fixture.
type form struct {
	name string
	opts conversion.Options
}

var forms = []form{
	{"tensor", conversion.Options{Chunks: 2}},
	{"state", conversion.Options{Chunks: 2, KV: chunking.KVState}},
	{"graph", conversion.Options{Chunks: 1, Embed: chunking.EmbedGraph, Head: chunking.Head{Token: true, Hidden: "post"}}},
	{"scaled", conversion.Options{Chunks: 3, ResidualScale: 0.125, Head: chunking.Head{Logits: true, Hidden: "pre"}}},
	{"fp32", conversion.Options{Chunks: 2, Compute: "fp32"}},
	{"decode", conversion.Options{Chunks: 1, Context: 48, Functions: []chunking.FunctionSpec{{Kind: chunking.Decode, T: 1}}}},
}

// TestBundles converts every fixture in every form, has coremltools load and
// check all packages, and has the independent evaluator repeat what our
// runtime computed, call by call.
func TestBundles(t *testing.T) {
	python(t)
	for _, name := range fixtures.Names() {
		dir, err := fixtures.Dir(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range forms {
			t.Run(name+"/"+f.name, func(t *testing.T) {
				out := filepath.Join(t.TempDir(), "bundle")
				if _, err := conversion.Convert(context.Background(), dir, out, f.opts); err != nil {
					t.Fatal(err)
				}
				e, err := engine.Open(out, engine.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				var paths []string
				for _, ch := range e.Contract().Chunks {
					paths = append(paths, filepath.Join(out, ch.File))
				}
				checkPackages(t, paths...)
				replay(t, e, out)
			})
		}
	}
}

// call is a recorded call of one chunk.
type call struct {
	fn      string
	in, out map[string]*runtime.Tensor
}

// replay drives every function from an empty cache and compares each chunk's
// outputs with the evaluator's on the same inputs.
func replay(t *testing.T, e *engine.Engine, dir string) {
	ids := make([]int32, 12)
	for i := range ids {
		ids[i] = int32(7 + 13*i)
	}
	c := e.Contract()
	for _, f := range c.Chunks[0].Functions {
		calls := map[string][]call{}
		s := e.NewSession()
		s.Trace = func(ch *chunking.Chunk, f *chunking.Function, in, out map[string]*runtime.Tensor) {
			calls[ch.Name] = append(calls[ch.Name], call{f.Name, clone(in), clone(out)})
		}
		var err error
		switch f.Kind {
		case chunking.Decode:
			for _, id := range ids[:5] {
				if _, err = s.Decode(id); err != nil {
					break
				}
			}
		case chunking.Prefill:
			_, err = s.Prefill(ids, nil)
		case chunking.Verify:
			_, err = s.Verify(ids[:f.T])
		}
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		for i := range c.Chunks {
			ch := &c.Chunks[i]
			evaluate(t, filepath.Join(dir, ch.File), len(ch.Functions), f.Name, calls[ch.Name])
		}
	}
}

func clone(m map[string]*runtime.Tensor) map[string]*runtime.Tensor {
	out := map[string]*runtime.Tensor{}
	for k, t := range m {
		out[k] = &runtime.Tensor{DType: t.DType, Shape: append([]int(nil), t.Shape...),
			F: append([]float32(nil), t.F...), I: append([]int32(nil), t.I...)}
	}
	return out
}

// evaluate runs the calls as steps of run_package.py and compares.
func evaluate(t *testing.T, pkg string, functions int, fn string, calls []call) {
	t.Helper()
	tmp := t.TempDir()
	var in []checkpoint.Tensor
	for k, c := range calls {
		for name, x := range c.in {
			in = append(in, toTensor(t, fmt.Sprintf("step%d.in.%s", k, name), x))
		}
	}
	inputs, outputs := filepath.Join(tmp, "in.safetensors"), filepath.Join(tmp, "out.safetensors")
	if err := checkpoint.WriteFile(inputs, in, nil); err != nil {
		t.Fatal(err)
	}
	if functions == 1 {
		fn = "main"
	}
	if _, err := oracle(t, "run_package.py", pkg, "--function", fn, "--inputs", inputs, "--out", outputs, "--steps", fmt.Sprint(len(calls))); err != nil {
		t.Fatalf("run_package.py %s %s: %v", filepath.Base(pkg), fn, err)
	}
	f, err := checkpoint.OpenFile(outputs)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	worst, exact, total := 0.0, 0, 0
	for k, c := range calls {
		for name, got := range c.out {
			want, ok := f.Tensor(fmt.Sprintf("step%d.out.%s", k, name))
			if !ok {
				t.Fatalf("%s %s: the evaluator has no step %d output %s", filepath.Base(pkg), fn, k, name)
			}
			if got.I != nil {
				ints, err := checkpoint.ReadInts(want)
				if err != nil {
					t.Fatal(err)
				}
				for i, x := range ints {
					if int32(x) != got.I[i] {
						t.Errorf("%s %s step %d: %s[%d] is %d, the evaluator says %d", filepath.Base(pkg), fn, k, name, i, got.I[i], x)
					}
				}
				continue
			}
			v, err := checkpoint.ReadAll(want)
			if err != nil {
				t.Fatal(err)
			}
			row := got.Shape[len(got.Shape)-1]
			for r := 0; r < len(v); r += row {
				ulp := rowUlp(v[r : r+row])
				for i := r; i < r+row; i++ {
					total++
					if v[i] == got.F[i] {
						exact++
					}
					worst = max(worst, math.Abs(float64(v[i])-float64(got.F[i]))/ulp)
				}
			}
		}
	}
	t.Logf("%s %-10s %d calls: %.2f%% of elements equal, worst %.2f ulp of the row's largest", filepath.Base(pkg), fn, len(calls), 100*float64(exact)/float64(total), worst)
	if worst > 2 {
		t.Errorf("%s %s: differs from the evaluator by %.2f ulp of the row's largest element", filepath.Base(pkg), fn, worst)
	}
}

// rowUlp is the spacing of fp16 numbers at the largest magnitude of a row.
func rowUlp(v []float32) float64 {
	top := 0.0
	for _, x := range v {
		top = max(top, math.Abs(float64(x)))
	}
	if top == 0 {
		top = math.Ldexp(1, -14)
	}
	_, e := math.Frexp(top)
	return math.Ldexp(1, max(e-11, -24))
}

func toTensor(t *testing.T, name string, x *runtime.Tensor) checkpoint.Tensor {
	t.Helper()
	if x.I != nil {
		return checkpoint.NewInt32(name, x.Shape, x.I)
	}
	f := checkpoint.NewFloat32(name, x.Shape, x.F)
	if x.DType.String() == "fp16" {
		return checkpoint.AsType(f, checkpoint.F16)
	}
	return f
}
