package reference

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/fixtures"
)

// golden is a PyTorch recording next to its checkpoint.
type golden struct {
	name   string
	dir    string
	src    *checkpoint.File
	ids    []int32
	logits *Matrix
	info   struct {
		LatePositions [2]int                        `json:"late_positions"`
		Sensitivity   map[string]map[string]float64 `json:"sensitivity_of_golden"`
	}
}

func loadGolden(t testing.TB, name string) *golden {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	return loadGoldenDir(t, name, dir)
}

// goldens are those of all decoders. SMELT_GOLDENS may name a directory with
// more, one checkpoint with its golden in each directory of it.
func goldens(t testing.TB) []*golden {
	t.Helper()
	var all []*golden
	names := slices.Concat(fixtures.Names(), fixtures.Gemma4())
	for _, name := range names {
		all = append(all, loadGolden(t, name))
	}
	root := os.Getenv("SMELT_GOLDENS")
	if root == "" {
		return all
	}
	files, err := filepath.Glob(filepath.Join(root, "*", "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		config, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil {
			continue
		}
		if _, err := ParseConfig(config); err == nil && !slices.Contains(names, filepath.Base(dir)) {
			all = append(all, loadGoldenDir(t, filepath.Base(dir), dir))
		}
	}
	return all
}

func loadGoldenDir(t testing.TB, name, dir string) *golden {
	t.Helper()
	src, err := checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	g := &golden{name: name, dir: dir, src: src}
	data, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &g.info); err != nil {
		t.Fatal(err)
	}
	for _, id := range g.ints(t, "input_ids") {
		g.ids = append(g.ids, int32(id))
	}
	g.logits = g.matrix(t, "logits")
	return g
}

func (g *golden) has(name string) bool {
	_, ok := g.src.Tensor(name)
	return ok
}

func (g *golden) tensor(t testing.TB, name string) checkpoint.Tensor {
	t.Helper()
	x, ok := g.src.Tensor(name)
	if !ok {
		t.Fatalf("golden has no %s", name)
	}
	return x
}

func (g *golden) matrix(t testing.TB, name string) *Matrix {
	t.Helper()
	x := g.tensor(t, name)
	data, err := checkpoint.ReadAll(x)
	if err != nil {
		t.Fatal(err)
	}
	return &Matrix{Rows: x.Shape()[0], Cols: len(data) / x.Shape()[0], Data: data}
}

func (g *golden) ints(t testing.TB, name string) []int64 {
	t.Helper()
	v, err := checkpoint.ReadInts(g.tensor(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func openModel(t testing.TB, dir string) *Model {
	t.Helper()
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func maxDiff(t testing.TB, got, want *Matrix) float64 {
	t.Helper()
	if got.Rows != want.Rows || got.Cols != want.Cols {
		t.Fatalf("shape [%d %d], want [%d %d]", got.Rows, got.Cols, want.Rows, want.Cols)
	}
	var peak float64
	for i, x := range got.Data {
		d := math.Abs(float64(x) - float64(want.Data[i]))
		if !(d <= peak) {
			peak = d
		}
	}
	return peak
}

func argmax(row []float32) int {
	best := 0
	for i, x := range row {
		if x > row[best] {
			best = i
		}
	}
	return best
}

// TestGoldens compares every hidden state and every logit with PyTorch's.
func TestGoldens(t *testing.T) {
	// Two fp32 programs that sum in different orders stay far below this.
	const tolerance = 1e-4
	for _, g := range goldens(t) {
		t.Run(g.name, func(t *testing.T) {
			m := openModel(t, g.dir)
			r, err := m.Forward(t.Context(), g.ids, Options{Head: true})
			if err != nil {
				t.Fatal(err)
			}
			check := func(what string, got, want *Matrix, tolerance float64) {
				bound := tolerance * max(1, float64(want.MaxAbs()))
				d := maxDiff(t, got, want)
				t.Logf("%s: max |Δ| %.2g (peak %.3g)", what, d, want.MaxAbs())
				if !(d <= bound) {
					t.Errorf("%s: max |Δ| %g, want ≤ %g", what, d, bound)
				}
			}
			if len(r.Hidden) != m.Config().Layers+1 {
				t.Fatalf("%d hidden states for %d layers", len(r.Hidden), m.Config().Layers)
			}
			for i, h := range r.Hidden {
				check(fmt.Sprintf("hidden.%d", i), h, g.matrix(t, fmt.Sprintf("hidden.%d", i)), tolerance)
			}
			check("hidden.norm", r.Norm, g.matrix(t, "hidden.norm"), tolerance)

			if g.has("per_layer_inputs") {
				check("per_layer_inputs", r.PerLayerInputs, g.matrix(t, "per_layer_inputs"), tolerance)
			}

			wantArgmax := make([]int, len(g.ids))
			for i := range wantArgmax {
				wantArgmax[i] = argmax(g.logits.Row(i))
			}
			if g.has("logits.sample") {
				// The full logits are stored in fp16 here.
				check("logits (fp16)", r.Logits, g.logits, 0x1p-11)
				sample := g.matrix(t, "logits.sample")
				rows := NewMatrix(sample.Rows, sample.Cols)
				for i, p := range g.ints(t, "logits.sample_positions") {
					copy(rows.Row(i), r.Logits.Row(int(p)))
				}
				check("logits.sample", rows, sample, tolerance)
				for i, id := range g.ints(t, "argmax") {
					wantArgmax[i] = int(id)
				}
			} else {
				check("logits", r.Logits, g.logits, tolerance)
			}
			for i, want := range wantArgmax {
				if got := argmax(r.Logits.Row(i)); got != want {
					t.Errorf("argmax at position %d: %d, want %d", i, got, want)
				}
			}
		})
	}
}
