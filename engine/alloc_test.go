package engine_test

import (
	"math"
	"testing"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/internal/alloctest"
	"github.com/smelt-go/smelt/runtime"
)

// TestDecodeAllocatesNothing is about steps after the first few: sessions
// resolve ports and make buffers when a function first runs.
func TestDecodeAllocatesNothing(t *testing.T) {
	for name, o := range map[string]conversion.Options{
		"one chunk":  {Context: 64},
		"two chunks": {Chunks: 2, Context: 64},
		"state":      {Context: 64, KV: chunking.KVState},
	} {
		for _, model := range []string{"gemma3", "llama-tied"} {
			t.Run(name+"/"+model, func(t *testing.T) {
				s := open(t, model, o).NewSession()
				step := func() {
					if _, err := s.Decode(7); err != nil {
						t.Fatal(err)
					}
				}
				step()
				alloctest.Zero(t, 20, step)
			})
		}
	}
}

// TestPrefillWithoutRowsSaysTheSame compares prompts of many lengths fed with
// and without a callback: the last row differs by the order of sums only.
func TestPrefillWithoutRowsSaysTheSame(t *testing.T) {
	for name, o := range forms {
		o.Functions = []chunking.FunctionSpec{{Kind: chunking.Decode, T: 1}, {Kind: chunking.Prefill, T: 16}, {Kind: chunking.Prefill, T: 4}}
		t.Run(name, func(t *testing.T) {
			e, err := engine.Open(open(t, "gemma3", o).Dir(), engine.Options{Mode: runtime.FP32})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			for _, n := range []int{1, 2, 3, 5, 16, 17, 20, 37} {
				a, b := e.NewSession(), e.NewSession()
				rows := 0
				with, err := a.Prefill(ids(n), func(engine.Row) error { rows++; return nil })
				if err != nil {
					t.Fatal(err)
				}
				without, err := b.Prefill(ids(n), nil)
				if err != nil {
					t.Fatal(err)
				}
				if rows != n || a.Pos() != n || b.Pos() != n || with.Position != n-1 || without.Position != n-1 {
					t.Fatalf("%d tokens: %d rows, positions %d and %d, last rows at %d and %d", n, rows, a.Pos(), b.Pos(), with.Position, without.Position)
				}
				for i, v := range with.Logits {
					if d := math.Abs(float64(v - without.Logits[i])); !(d <= 1e-3) {
						t.Fatalf("%d tokens: logit %d is %g with rows, %g without", n, i, v, without.Logits[i])
					}
				}
			}
		})
	}
}
