package runtime_test

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nlpodyssey/safetensors"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/runtime"
)

// conformanceCase is one record of a corpus zip's index.json. The zip holds
// <case>/model.mlmodel, <case>/weights/weight.bin and <case>/io.safetensors.
type conformanceCase struct {
	Case   string          `json:"case"`
	Family string          `json:"family"`
	Ops    []string        `json:"ops"`
	Notes  json.RawMessage `json:"notes"`
	Steps  []string        `json:"steps"`
	Tol    struct {
		Atol float64 `json:"atol"`
		Rtol float64 `json:"rtol"`
	} `json:"tol"`
}

// refusedOps are operators that the project leaves out: a program with one of
// them must be refused by an error that names it.
var refusedOps = map[string]bool{
	"affine": true, "crop_resize": true, "resample": true, "resize": true,
	"resize_bilinear": true, "resize_nearest_neighbor": true,
	"upsample_bilinear": true, "upsample_nearest_neighbor": true,
	"gru": true, "lstm": true, "rnn": true,
	"random_bernoulli": true, "random_categorical": true, "random_normal": true, "random_uniform": true,
	"make_list": true, "list_gather": true, "list_length": true, "list_read": true, "list_scatter": true, "list_write": true,
	"non_maximum_suppression": true,
}

// tally counts verdicts, in all and by operator.
type tally map[string]*[3]int

const (
	passed = iota
	refused
	failed
)

func (c tally) add(ops []string, verdict int) {
	for _, op := range append([]string{""}, ops...) {
		if c[op] == nil {
			c[op] = &[3]int{}
		}
		c[op][verdict]++
	}
}

func (c tally) String() string {
	var b strings.Builder
	var names []string
	for op := range c {
		names = append(names, op)
	}
	slices.Sort(names)
	fmt.Fprintf(&b, "%-42s %8s %8s %8s\n", "operator", "passed", "refused", "failed")
	for _, op := range names {
		name := op
		if op == "" {
			name = "all cases"
		}
		fmt.Fprintf(&b, "%-42s %8d %8d %8d\n", name, c[op][passed], c[op][refused], c[op][failed])
	}
	return b.String()
}

// TestConformance runs recorded op cases through the reader and the
// interpreter: every zip in $SMELT_CONFORMANCE, or the project's own subset.
func TestConformance(t *testing.T) {
	dir := os.Getenv("SMELT_CONFORMANCE")
	if dir == "" {
		dir = filepath.Join("..", "fixtures", "conformance")
	}
	zips, err := filepath.Glob(filepath.Join(dir, "*.zip"))
	if err != nil || len(zips) == 0 {
		t.Fatalf("no zips in %s (%v)", dir, err)
	}
	counts := tally{"": new([3]int)}
	for _, path := range zips {
		z, err := zip.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		var index []conformanceCase
		if err := json.Unmarshal(member(t, z, "index.json"), &index); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, rec := range index {
			t.Run(rec.Family+"/"+rec.Case, func(t *testing.T) {
				verdict := failed
				defer func() { counts.add(rec.Ops, verdict) }()
				err := rec.run(t, z)
				if banned := slices.IndexFunc(rec.Ops, func(op string) bool { return refusedOps[op] }); banned >= 0 {
					if err == nil || errors.As(err, new(mismatch)) {
						t.Fatalf("a program with %s was executed", rec.Ops[banned])
					}
					if !slices.ContainsFunc(rec.Ops, func(op string) bool { return refusedOps[op] && strings.Contains(err.Error(), op) }) {
						t.Fatalf("refused for another reason: %v", err)
					}
					verdict = refused
					return
				}
				if err != nil {
					t.Fatalf("%v (%s)", err, strings.Join(rec.Ops, ", "))
				}
				verdict = passed
			})
		}
	}
	t.Logf("\n%v", counts)
	all := counts[""]
	t.Logf("conformance: %d passed, %d refused, %d failed", all[passed], all[refused], all[failed])
}

// member reads one file of a zip, nil if it is not there.
func member(t *testing.T, z *zip.ReadCloser, name string) []byte {
	t.Helper()
	f, err := z.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b
}

// mismatch is a wrong result, as opposed to a program that does not run.
type mismatch struct{ msg string }

func (m mismatch) Error() string { return m.msg }

func (rec conformanceCase) run(t *testing.T, z *zip.ReadCloser) error {
	pkg, err := mlpackage.ReadModel(rec.Case, member(t, z, rec.Case+"/model.mlmodel"), member(t, z, rec.Case+"/weights/weight.bin"), mlpackage.ReadOptions{})
	if err != nil {
		return err
	}
	defer pkg.Close()
	io, err := tensors(member(t, z, rec.Case+"/io.safetensors"))
	if err != nil {
		return err
	}
	prog, err := runtime.Load(pkg.Program, runtime.Options{Mode: runtime.Typed})
	if err != nil {
		return err
	}
	inst := prog.New()
	if len(rec.Steps) == 0 {
		return rec.step(inst, "", "", io)
	}
	for k, fn := range rec.Steps {
		if err := rec.step(inst, fn, fmt.Sprintf("step%d.", k), io); err != nil {
			return err
		}
	}
	return nil
}

// step runs one prediction and compares outputs and states.
func (rec conformanceCase) step(inst *runtime.Instance, fn, prefix string, io map[string]*runtime.Tensor) error {
	in := map[string]*runtime.Tensor{}
	for name, x := range io {
		if n, ok := strings.CutPrefix(name, prefix+"in."); ok {
			in[n] = x
		}
	}
	got, err := inst.Run(fn, in)
	if err != nil {
		return err
	}
	want := 0
	for name, w := range io {
		var g *runtime.Tensor
		if n, ok := strings.CutPrefix(name, prefix+"out."); ok {
			want++
			g = got[n]
		} else if n, ok := strings.CutPrefix(name, prefix+"state."); ok {
			g, _ = inst.State(n)
		} else {
			continue
		}
		if d := rec.differ(g, w); d != "" {
			return mismatch{name + ": " + d}
		}
	}
	if want != len(got) {
		return mismatch{fmt.Sprintf("%d outputs, want %d", len(got), want)}
	}
	return nil
}

// differ describes how got misses want, or returns "".
func (rec conformanceCase) differ(got, want *runtime.Tensor) string {
	if got == nil {
		return "missing"
	}
	if got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) {
		return fmt.Sprintf("is %v, want %v", got, want)
	}
	bad, first, gap := 0, -1, 0.0
	for i := range got.Len() {
		g, w := element(got, i), element(want, i)
		if g == w || g != g && w != w || math.Abs(g-w) <= rec.Tol.Atol+rec.Tol.Rtol*math.Abs(w) && !math.IsInf(w, 0) {
			continue
		}
		if bad++; first < 0 {
			first = i
		}
		gap = max(gap, math.Abs(g-w))
	}
	if bad == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d elements of %v differ by up to %.3g, element %d is %v, want %v (atol %g, rtol %g)",
		bad, got.Len(), want, gap, first, element(got, first), element(want, first), rec.Tol.Atol, rec.Tol.Rtol)
}

func element(t *runtime.Tensor, i int) float64 {
	if t.F != nil {
		return float64(t.F[i])
	}
	return float64(t.I[i])
}

// tensors decodes a safetensors file.
func tensors(b []byte) (map[string]*runtime.Tensor, error) {
	st, err := safetensors.Deserialize(b)
	if err != nil {
		return nil, err
	}
	dtypes := map[safetensors.DType]mil.DType{
		safetensors.F16: mil.Float16, safetensors.F32: mil.Float32, safetensors.I32: mil.Int32, safetensors.BOOL: mil.Bool,
		safetensors.I8: mil.Int8, safetensors.U8: mil.UInt8, safetensors.I16: mil.Int16, safetensors.U16: mil.UInt16,
	}
	out := map[string]*runtime.Tensor{}
	for _, name := range st.Names() {
		v, _ := st.Tensor(name)
		d, ok := dtypes[v.DType()]
		if !ok {
			return nil, fmt.Errorf("tensor %s has type %v", name, v.DType())
		}
		shape := []int{}
		for _, n := range v.Shape() {
			shape = append(shape, int(n))
		}
		if out[name], err = runtime.FromConst(&mil.Literal{T: mil.T(d, shape...), Data: v.Data()}); err != nil {
			return nil, err
		}
	}
	return out, nil
}
