package speculate_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/runtime"
	"github.com/smelt-go/smelt/speculate"
)

const tinyDrafter = "testdata/tiny-gemma3-drafter"

// converted converts a checkpoint to fp32 and opens the bundle without
// rounding.
func converted(t testing.TB, dir, functions string, o conversion.Options) *engine.Engine {
	t.Helper()
	var err error
	if o.Functions, err = chunking.ParseFunctions(functions); err != nil {
		t.Fatal(err)
	}
	o.NoSync = true
	mode := runtime.Typed
	if o.Compute == "fp32" {
		mode = runtime.FP32
	}
	out := filepath.Join(t.TempDir(), "bundle")
	if _, err := conversion.Convert(t.Context(), dir, out, o); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(out, engine.Options{Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func fixture(t testing.TB, name string) string {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// pair is what PyTorch recorded of the trained pair: greedy text and accepted
// drafts by round, γ = 3.
type pair struct{ prompts, greedy, accepted [][]int32 }

func readPair(t testing.TB) pair {
	t.Helper()
	f, err := checkpoint.OpenFile(filepath.Join(tinyDrafter, "pair.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read := func(name string) (rows [][]int32) {
		x, ok := f.Tensor(name)
		if !ok {
			t.Fatalf("no tensor %s", name)
		}
		v, err := checkpoint.ReadInts(x)
		if err != nil {
			t.Fatal(err)
		}
		for r := range slices.Chunk(v, x.Shape()[1]) {
			var row []int32
			for _, n := range r {
				if n >= 0 { // rows are padded with -1
					row = append(row, int32(n))
				}
			}
			rows = append(rows, row)
		}
		return rows
	}
	return pair{read("prompts"), read("greedy"), read("accepted_per_round")}
}

func target(t testing.TB, e *engine.Engine) *speculate.BundleTarget {
	t.Helper()
	x, err := speculate.NewBundleTarget(e)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestRecordedPair: the trained pair accepts, round by round, what PyTorch
// recorded, and the text is the target's greedy one.
func TestRecordedPair(t *testing.T) {
	p := readPair(t)
	fp32 := conversion.Options{Compute: "fp32", Context: 160}
	tgt := target(t, converted(t, fixture(t, fixtures.DemoName), "decode,prefill:16,verify:4", fp32))
	src := speculate.NewModel("tiny", converted(t, tinyDrafter, "decode,prefill:16", fp32))
	rounds, accepted := 0, 0
	var records []speculate.Record
	for i, prompt := range p.prompts {
		r, err := speculate.Run(t.Context(), tgt, src, prompt, speculate.Options{Gamma: 3, MaxTokens: 64, IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Output, p.greedy[i]) {
			t.Errorf("prompt %d: output %v, want %v", i, r.Output, p.greedy[i])
		}
		var got []int32
		for _, x := range r.Rounds {
			got = append(got, int32(x.Accepted))
		}
		if !slices.Equal(got, p.accepted[i]) {
			t.Errorf("prompt %d: accepted by round %v, want %v", i, got, p.accepted[i])
		}
		rounds += r.TargetCalls
		accepted += r.Accepted
		records = append(records, *r)
	}
	tau := 1 + float64(accepted)/float64(rounds)
	t.Logf("%d rounds, τ = %.5f", rounds, tau)
	if rounds != 939 || tau < 2.2119 || tau > 2.2120 {
		t.Errorf("%d rounds with τ = %.5f, want 939 with 2.21193", rounds, tau)
	}
	s, err := speculate.Summarize("tiny", records, speculate.WallSeconds, speculate.Bootstrap{})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(s.Tau.Value-tau) > 1e-12 {
		t.Errorf("the summary has τ = %.5f, the rounds %.5f", s.Tau.Value, tau)
	}
	for k, want := range []float64{0.56337, 0.40256, 0.24601} {
		if got := s.Slots[k].Rate; got < want-1e-5 || got > want+1e-5 {
			t.Errorf("slot %d: %.5f accepted, want %.5f", k, got, want)
		}
	}
}
