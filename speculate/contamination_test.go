package speculate_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/speculate"
	"github.com/smelt-go/smelt/tokenizer"
)

// wrong drafts tokens that nobody wants: by what it is poisoned with.
type wrong struct {
	vocab  int32
	poison int32
}

func (w wrong) Draft(history []int32, gamma int) (out []int32) {
	for i := range gamma {
		out = append(out, (history[len(history)-1]*31+w.poison+int32(i)*7)%w.vocab)
	}
	return out
}

// cached are the keys and values of every layer at all positions that are still
// there.
func cached(t *testing.T, b *speculate.BundleTarget, layers int) (all [][]float32) {
	t.Helper()
	for l := range layers {
		k, v, _, err := b.Session().KV(l)
		if err != nil {
			t.Fatal(err)
		}
		var flat []float32
		for _, x := range [][][][]float32{k, v} {
			for _, head := range x {
				for _, row := range head {
					flat = append(flat, row...)
				}
			}
		}
		all = append(all, flat)
	}
	return all
}

// TestCacheIsClean: keys and values of drafts that were rejected never get into
// the cache. Two hosts that draft different nonsense end with the same cache bit
// by bit, and it is that of serial decoding. A host that writes drafts through
// is found out: at the layers whose cache is a ring or shifts, where drafts take
// the place of tokens that are still to be seen.
func TestCacheIsClean(t *testing.T) {
	tok, err := tokenizer.Load(fixture(t, fixtures.DemoName))
	if err != nil {
		t.Fatal(err)
	}
	prompts, gammas := heldout(t, tok, 2, 40), []int{1, 3, 7}
	if wide() {
		prompts, gammas = heldout(t, tok, 8, 40), []int{1, 2, 3, 4, 5, 6, 7}
	}
	const layers = 6
	for form, x := range map[string]struct {
		compute string
		off     float64 // from serial decoding, which adds up in another order
	}{"tensor": {"fp32", 1e-5}, "state": {"fp16", 0.05}, "coreml-llm": {"fp32", 1e-5}} {
		t.Run(form, func(t *testing.T) {
			b := target(t, converted(t, fixture(t, fixtures.DemoName), allFunctions, conversion.Options{Compute: x.compute, Context: 160, KV: form}))
			run := func(prompt []int32, gamma int, poison int32, through bool) ([][]float32, *speculate.Record) {
				t.Helper()
				b.SetWriteThrough(through)
				defer b.SetWriteThrough(false)
				r, err := speculate.Run(t.Context(), b, speculate.Lookup("wrong", wrong{2048, poison}), prompt, speculate.Options{Gamma: gamma, MaxTokens: 24, IgnoreEOS: true})
				if err != nil {
					t.Fatal(err)
				}
				return cached(t, b, layers), r
			}
			found, rejected := 0, 0
			for i, prompt := range prompts {
				serial, err := speculate.Serial(t.Context(), b, prompt, speculate.WalkDecode, speculate.Options{MaxTokens: 24, IgnoreEOS: true})
				if err != nil {
					t.Fatal(err)
				}
				want := cached(t, b, layers)
				for _, gamma := range gammas {
					one, r := run(prompt, gamma, 100, false)
					two, _ := run(prompt, gamma, 911, false)
					rejected += r.Drafted - r.Accepted
					what := fmt.Sprintf("prompt %d, γ = %d", i, gamma)
					if r.Accepted > 0 {
						continue // two runs of other rounds
					}
					if d := speculate.NewDrift(serial, r.Output); d.First >= 0 {
						if x.compute == "fp32" || !d.Tie(serial, speculate.FP16Ties) {
							t.Errorf("%s: the text differs from token %d on", what, d.First)
						}
						continue
					}
					if off := apart(one, two); off != 0 {
						t.Errorf("%s: what was drafted changes the cache, by %g", what, off)
					}
					if off := apart(one, want); off > x.off {
						t.Errorf("%s: the cache is off serial decoding's by %g", what, off)
					}
					dirty, _ := run(prompt, gamma, 100, true)
					if apart(dirty, want) > 2*x.off+1e-3 {
						found++
					}
				}
			}
			t.Logf("%d rejected drafts left nothing behind; written through they did in %d of %d texts", rejected, found, len(prompts)*len(gammas))
			if rejected == 0 || found == 0 {
				t.Errorf("%d drafts rejected, %d caches contaminated: nothing was tried", rejected, found)
			}
		})
	}
}

// apart is the largest difference, relative to the largest magnitude of a layer.
func apart(a, b [][]float32) (worst float64) {
	for l := range a {
		if len(a[l]) != len(b[l]) {
			return math.Inf(1)
		}
		size, off := 1.0, 0.0
		for i := range a[l] {
			size = max(size, math.Abs(float64(a[l][i])))
			off = max(off, math.Abs(float64(a[l][i])-float64(b[l][i])))
		}
		worst = max(worst, off/size)
	}
	return worst
}
