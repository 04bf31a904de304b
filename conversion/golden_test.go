package conversion_test

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

// golden is a PyTorch recording: ids and the logits after each.
type golden struct {
	ids    []int32
	logits [][]float32
	max    float64
}

func readGolden(t *testing.T, dir string) golden {
	t.Helper()
	f, err := checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var g golden
	ids, _ := f.Tensor("input_ids")
	v, err := checkpoint.ReadInts(ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range v {
		g.ids = append(g.ids, int32(x))
	}
	lt, _ := f.Tensor("logits")
	all, err := checkpoint.ReadAll(lt)
	if err != nil {
		t.Fatal(err)
	}
	n := lt.Shape()[1]
	for i := range g.ids {
		g.logits = append(g.logits, all[i*n:(i+1)*n])
	}
	for _, x := range all {
		g.max = max(g.max, math.Abs(float64(x)))
	}
	return g
}

// run feeds the ids through one kind of function and returns all logits.
func run(t *testing.T, e *engine.Engine, ids []int32, via string) [][]float32 {
	t.Helper()
	s := e.NewSession()
	var out [][]float32
	keep := func(r engine.Row) error {
		out = append(out, append([]float32(nil), r.Logits...))
		return nil
	}
	var err error
	switch via {
	case "decode":
		for _, id := range ids {
			var r engine.Row
			if r, err = s.Decode(id); err != nil {
				break
			}
			_ = keep(r)
		}
	case "prefill":
		_, err = s.Prefill(ids, keep)
	case "verify", "verify one by one":
		for len(ids) > 0 && err == nil {
			n := min(4, len(ids))
			if via != "verify" {
				n = 1
			}
			var p *engine.Pending
			if p, err = s.Verify(ids[:n]); err != nil {
				break
			}
			for _, r := range p.Rows() {
				_ = keep(r)
			}
			err = p.Commit(n)
			ids = ids[n:]
		}
	}
	if err != nil {
		t.Fatalf("%s: %v", via, err)
	}
	return out
}

// TestGoldens converts every tiny checkpoint in several forms, reads the
// bundle back and compares all positions with PyTorch.
func TestGoldens(t *testing.T) {
	for _, name := range []string{"llama-tied", "llama3-scaled", "qwen2", "qwen3", "gemma3"} {
		dir, err := fixtures.Dir(name)
		if err != nil {
			t.Fatal(err)
		}
		g := readGolden(t, dir)
		for i, o := range []conversion.Options{
			{Compute: "fp32", Chunks: 1},
			{Compute: "fp32", Chunks: 3, Embed: chunking.EmbedGraph, Functions: functions(t, "decode,prefill:40,verify:5")},
			{Compute: "fp16", Chunks: 2},
			{Compute: "fp16", Chunks: 2, KV: chunking.KVState},
		} {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				out := filepath.Join(t.TempDir(), "bundle")
				if _, err := conversion.Convert(context.Background(), dir, out, o); err != nil {
					t.Fatal(err)
				}
				e, err := engine.Open(out, engine.Options{Mode: runtime.Typed})
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				for _, via := range []string{"decode", "prefill", "verify"} {
					worst, flips := compare(run(t, e, g.ids, via), g.logits)
					t.Logf("%-8s max |Δlogit| %.3g of %.3g, %d argmax flips", via, worst, g.max, flips)
					// Noise of fp16 arithmetic: PyTorch's own is up to 0.18 here.
					if o.Compute == "fp16" && (worst > 0.3 || flips > 2) {
						t.Errorf("%s: max |Δlogit| %g, %d flips", via, worst, flips)
					}
					if o.Compute == "fp32" && (worst > 1e-3*max(1, g.max) || flips > 0) {
						t.Errorf("%s: max |Δlogit| %g, %d flips", via, worst, flips)
					}
				}
			})
		}
	}
}

func functions(t *testing.T, s string) []chunking.FunctionSpec {
	t.Helper()
	f, err := chunking.ParseFunctions(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func compare(got, want [][]float32) (worst float64, flips int) {
	for i := range want {
		a, b := 0, 0
		for j := range want[i] {
			worst = max(worst, math.Abs(float64(got[i][j])-float64(want[i][j])))
			if got[i][j] > got[i][a] {
				a = j
			}
			if want[i][j] > want[i][b] {
				b = j
			}
		}
		if a != b {
			flips++
		}
	}
	return worst, flips
}
