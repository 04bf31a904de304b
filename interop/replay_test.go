package interop

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/runtime"
)

// jobs are runs of the independent evaluator, all in one process.
type jobs struct {
	dir string
	all []*job
}

// job repeats the calls of one function of one package.
type job struct {
	pkg, fn         string
	layers          int
	inputs, outputs string
	calls           []call
}

func (j *jobs) add(t *testing.T, pkg, fn string, layers int, calls []call) {
	t.Helper()
	base := filepath.Join(j.dir, fmt.Sprint(len(j.all)))
	x := &job{pkg: pkg, fn: fn, layers: layers, calls: calls, inputs: base + "-in.safetensors", outputs: base + "-out.safetensors"}
	var in []checkpoint.Tensor
	for k, c := range calls {
		for name, v := range c.in {
			in = append(in, toTensor(fmt.Sprintf("step%d.in.%s", k, name), v))
		}
	}
	if err := checkpoint.WriteFile(x.inputs, in, nil); err != nil {
		t.Fatal(err)
	}
	j.all = append(j.all, x)
}

func (j *jobs) run(t *testing.T) {
	t.Helper()
	var lines [][]string
	for _, x := range j.all {
		lines = append(lines, []string{x.pkg, "--function", x.fn, "--inputs", x.inputs, "--out", x.outputs, "--steps", fmt.Sprint(len(x.calls))})
	}
	data, err := json.Marshal(lines)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(j.dir, "jobs.json")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := oracle(t, "batch.py", path); err != nil {
		t.Fatalf("batch.py: %v", err)
	}
}

// compare holds our outputs against the evaluator's. Slack multiplies the share
// of elements that may be beyond 2 units in the last place.
func (x *job) compare(t *testing.T, slack float64) {
	t.Helper()
	f, err := checkpoint.OpenFile(x.outputs)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	worst, exact, beyond, total := 0.0, 0, 0, 0
	for k, c := range x.calls {
		for name, got := range c.out {
			want, ok := f.Tensor(fmt.Sprintf("step%d.out.%s", k, name))
			if !ok {
				t.Fatalf("%s %s: the evaluator has no step %d output %s", filepath.Base(x.pkg), x.fn, k, name)
			}
			v, err := checkpoint.ReadAll(want)
			if err != nil {
				t.Fatal(err)
			}
			if got.I != nil {
				for i := range v {
					if int32(v[i]) != got.I[i] {
						t.Errorf("%s %s step %d: %s[%d] is %d, the evaluator says %g", filepath.Base(x.pkg), x.fn, k, name, i, got.I[i], v[i])
					}
				}
				continue
			}
			row := got.Shape[len(got.Shape)-1]
			for r := 0; r < len(v); r += row {
				ulp := rowUlp(v[r : r+row])
				for i := r; i < r+row; i++ {
					total++
					if v[i] == got.F[i] {
						exact++
					}
					d := math.Abs(float64(v[i])-float64(got.F[i])) / ulp
					if d > 2 {
						beyond++
					}
					worst = max(worst, d)
				}
			}
		}
	}
	share := func(n int) float64 { return 100 * float64(n) / float64(max(total, 1)) }
	t.Logf("%s %-10s %d layers, %d calls: %.2f%% of elements equal, %.3f%% beyond 2 ulp of the row's largest, worst %.2f",
		filepath.Base(x.pkg), x.fn, x.layers, len(x.calls), share(exact), share(beyond), worst)
	if share(beyond) > 0.5*slack*float64(x.layers) || worst > 6*float64(x.layers) {
		t.Errorf("%s %s: differs from the evaluator", filepath.Base(x.pkg), x.fn)
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

func toTensor(name string, x *runtime.Tensor) checkpoint.Tensor {
	if x.I != nil {
		return checkpoint.NewInt32(name, x.Shape, x.I)
	}
	f := checkpoint.NewFloat32(name, x.Shape, x.F)
	if x.DType.String() == "fp16" {
		return checkpoint.AsType(f, checkpoint.F16)
	}
	return f
}
