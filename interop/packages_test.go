package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/runtime"
)

// packageCase is one record of the index that make_packages.py writes.
type packageCase struct {
	Name  string   `json:"name"`
	Atol  float64  `json:"atol"`
	Rtol  float64  `json:"rtol"`
	Steps []string `json:"steps"`
}

func packageCases(t *testing.T, dir string) []packageCase {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []packageCase
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// TestCommittedPackages reads, verifies and runs the packages that coremltools
// wrote and that are kept in the repository.
func TestCommittedPackages(t *testing.T) {
	dir := filepath.Join("..", "fixtures", "packages")
	for _, c := range packageCases(t, dir) {
		t.Run(c.Name, func(t *testing.T) {
			c.check(t, dir, filepath.Join(dir, c.Name, "model.mlpackage"))
		})
	}
}

// TestCoremltoolsPackages does the same with every case of make_packages.py,
// made afresh, and again with each package after smelt wrote it.
func TestCoremltoolsPackages(t *testing.T) {
	py := python(t)
	dir := t.TempDir()
	if out, err := exec.Command(py, "make_packages.py", dir).CombinedOutput(); err != nil {
		t.Fatalf("make_packages.py: %v\n%s", err, tail(out, 2000))
	}
	var rewritten []string
	for _, c := range packageCases(t, dir) {
		t.Run(c.Name, func(t *testing.T) {
			path := filepath.Join(dir, c.Name, "model.mlpackage")
			first := c.check(t, dir, path)
			again := filepath.Join(dir, c.Name+".mlpackage")
			p, err := mlpackage.Read(path, mlpackage.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if _, err := mlpackage.Write(context.Background(), again, p.Program, p.WriteOptions()); err != nil {
				t.Fatal(err)
			}
			rewritten = append(rewritten, again)
			if second := c.check(t, dir, again); !slices.Equal(first, second) {
				t.Error("the package gives other numbers after smelt wrote it")
			}
		})
	}
	if len(rewritten) < 20 {
		t.Errorf("%d packages, want at least 20", len(rewritten))
	}
	checkPackages(t, rewritten...)
}

// check runs a package in typed mode, compares all outputs with the expected
// ones, and returns them one after the other.
func (c packageCase) check(t *testing.T, dir, path string) []float64 {
	t.Helper()
	p, err := mlpackage.Read(path, mlpackage.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := mil.Verify(p.Program); err != nil {
		t.Logf("not what smelt would write: %v", err)
	}
	prog, err := runtime.Load(p.Program, runtime.Options{Mode: runtime.Typed})
	if err != nil {
		t.Fatal(err)
	}
	io, err := checkpoint.OpenFile(filepath.Join(dir, c.Name, "io.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer io.Close()
	inst := prog.New()
	var all []float64
	steps := c.Steps
	if len(steps) == 0 {
		steps = []string{""}
	}
	for k, fn := range steps {
		prefix := ""
		if len(c.Steps) > 0 {
			prefix = fmt.Sprintf("step%d.", k)
		}
		in := map[string]*runtime.Tensor{}
		for _, name := range io.Names() {
			if n, ok := strings.CutPrefix(name, prefix+"in."); ok {
				in[n] = stored(t, io, name)
			}
		}
		got, err := inst.Run(fn, in)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, name := range io.Names() {
			n, ok := strings.CutPrefix(name, prefix+"out.")
			if !ok {
				continue
			}
			seen++
			all = append(all, c.compare(t, name, got[n], stored(t, io, name))...)
		}
		if seen != len(got) || seen == 0 {
			t.Errorf("step %d: %d outputs, want %d", k, len(got), seen)
		}
	}
	return all
}

func (c packageCase) compare(t *testing.T, name string, got, want *runtime.Tensor) []float64 {
	t.Helper()
	if got == nil || got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) {
		t.Errorf("%s is %v, want %v", name, got, want)
		return nil
	}
	values := numbers(got)
	for i, w := range numbers(want) {
		if d := math.Abs(values[i] - w); !(d <= c.Atol+c.Rtol*math.Abs(w)) {
			t.Errorf("%s[%d] is %v, want %v (tolerance %g)", name, i, values[i], w, c.Atol)
			break
		}
	}
	return values
}

func numbers(t *runtime.Tensor) []float64 {
	out := make([]float64, t.Len())
	for i := range out {
		if t.F != nil {
			out[i] = float64(t.F[i])
		} else {
			out[i] = float64(t.I[i])
		}
	}
	return out
}

// stored decodes one tensor of a safetensors file.
func stored(t *testing.T, f *checkpoint.File, name string) *runtime.Tensor {
	t.Helper()
	x, _ := f.Tensor(name)
	b, err := checkpoint.ReadBytes(x)
	if err != nil {
		t.Fatal(err)
	}
	d, ok := map[string]mil.DType{"F16": mil.Float16, "F32": mil.Float32, "I32": mil.Int32}[fmt.Sprint(x.DType())]
	if !ok {
		t.Fatalf("%s is %v", name, x.DType())
	}
	out, err := runtime.FromConst(&mil.Literal{T: mil.T(d, x.Shape()...), Data: b})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
