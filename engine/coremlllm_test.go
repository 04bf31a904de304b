package engine_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// coreMLLLM is a bundle in the CoreML-LLM form.
func coreMLLLM(t testing.TB) *engine.Engine {
	return open(t, "gemma4-e2b", conversion.Options{Topology: chunking.Topology3, Context: 80, KV: chunking.KVCoreMLLLM, Compute: "fp32"})
}

// TestShiftedCaches: after any mixture of calls the sliding cache holds the
// last positions right-aligned, zeros before and beside them, and the full one
// every position in its slot.
func TestShiftedCaches(t *testing.T) {
	e := coreMLLLM(t)
	s := e.NewSession()
	text := ids(70)
	steps := []func() (int, error){
		func() (int, error) { _, err := s.Decode(text[s.Pos()]); return 1, err },
		func() (int, error) {
			p, err := s.Verify(text[s.Pos() : s.Pos()+4])
			if err != nil {
				return 0, err
			}
			return 3, p.Commit(3)
		},
		func() (int, error) {
			n := min(30, 70-s.Pos())
			_, err := s.Prefill(text[s.Pos():s.Pos()+n], nil)
			return n, err
		},
		func() (int, error) {
			p, err := s.Verify(text[s.Pos() : s.Pos()+2])
			if err != nil {
				return 0, err
			}
			return 0, p.Commit(0)
		},
	}
	checked := 0
	for i := 0; s.Pos() < 64; i++ {
		at := s.Pos()
		n, err := steps[i%len(steps)]()
		if err != nil {
			t.Fatal(err)
		}
		if s.Pos() != at+n {
			t.Fatalf("position %d after %d tokens at %d", s.Pos(), n, at)
		}
		pos := s.Pos()
		s.Adjust = func(_ *chunking.Chunk, f *chunking.Function, in map[string]*runtime.Tensor) {
			for _, p := range f.Inputs {
				if p.Role != models.KeyCache && p.Role != models.ValueCache {
					continue
				}
				a, x := e.Contract().Attention[p.Kind], in[p.Name]
				checked++
				for row := range p.Shape[0] * p.Shape[1] {
					for slot := range a.Slots {
						r := x.F[(row*a.Slots+slot)*a.Stride() : (row*a.Slots+slot+1)*a.Stride()]
						held := slot < pos
						if p.Kind == models.Sliding {
							held = slot >= a.Slots-pos
						}
						if any := slices.ContainsFunc(r[:a.HeadDim], func(v float32) bool { return v != 0 }); any != held {
							t.Fatalf("%s at position %d: slot %d filled: %v, want %v", p.Name, pos, slot, any, held)
						}
						if slices.ContainsFunc(r[a.HeadDim:], func(v float32) bool { return v != 0 }) {
							t.Fatalf("%s at position %d: slot %d has more than a head of %d", p.Name, pos, slot, a.HeadDim)
						}
					}
				}
			}
		}
		if _, err := s.Verify(text[pos : pos+1]); err != nil {
			t.Fatal(err)
		}
		s.Adjust = nil
	}
	if checked < 40 {
		t.Fatalf("%d caches seen", checked)
	}
}

// TestFormsAgree: both forms of tensor caches hold the same keys and values.
func TestFormsAgree(t *testing.T) {
	a := coreMLLLM(t).NewSession()
	b := open(t, "gemma4-e2b", conversion.Options{Chunks: 2, Context: 80, Compute: "fp32"}).NewSession()
	for _, s := range []*engine.Session{a, b} {
		if _, err := s.Prefill(ids(40), nil); err != nil {
			t.Fatal(err)
		}
		p, err := s.Verify([]int32{7, 8, 9})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Commit(2); err != nil {
			t.Fatal(err)
		}
	}
	for layer := range 10 {
		k1, v1, p1, err := a.KV(layer)
		if err != nil {
			t.Fatal(err)
		}
		k2, v2, p2, err := b.KV(layer)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p2, p1); d != "" || len(p1) < 24 {
			t.Fatalf("layer %d: positions %s", layer, d)
		}
		if d := max(worst(k1, k2), worst(v1, v2)); !(d < 1e-3) {
			t.Errorf("layer %d: caches differ by %g", layer, d)
		}
	}
}

// TestWriteThrough: writing drafts before they are accepted changes what the
// model says after a rejection; delayed writing does not.
func TestWriteThrough(t *testing.T) {
	for name, o := range map[string]conversion.Options{
		"coreml-llm": {Topology: chunking.Topology3, Context: 80, KV: chunking.KVCoreMLLLM, Compute: "fp32"},
		"tensor":     {Chunks: 1, Context: 80, Compute: "fp32"},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, "gemma4-e2b", o)
			text := ids(60)
			walk := func(speculate, early bool) [][]float32 {
				s := e.NewSession()
				s.WriteThrough = early
				var out [][]float32
				for s.Pos() < 60 {
					if speculate && s.Pos() > 0 && s.Pos()%5 == 0 { // all drafts are wrong
						p, err := s.Verify([]int32{3, 5, 7, 11})
						if err != nil {
							t.Fatal(err)
						}
						if err := p.Commit(0); err != nil {
							t.Fatal(err)
						}
					}
					r, err := s.Decode(text[s.Pos()])
					if err != nil {
						t.Fatal(err)
					}
					out = append(out, slices.Clone(r.Logits))
				}
				return out
			}
			plain := walk(false, false)
			differ := func(got [][]float32) (flips int, most float32) {
				for i := range plain {
					for j := range plain[i] {
						most = max(most, plain[i][j]-got[i][j], got[i][j]-plain[i][j])
					}
					if slices.Index(plain[i], slices.Max(plain[i])) != slices.Index(got[i], slices.Max(got[i])) {
						flips++
					}
				}
				return flips, most
			}
			if flips, most := differ(walk(true, false)); flips != 0 || most != 0 {
				t.Errorf("delayed: %d flips, logits differ by up to %g", flips, most)
			}
			flips, most := differ(walk(true, true))
			t.Logf("write-through: %d of 60 argmax flips, logits differ by up to %g", flips, most)
			if flips == 0 {
				t.Errorf("write-through: no flips, logits differ by up to %g", most)
			}
		})
	}
}

// TestTopK: the largest logits and their ids, in order, the head's token
// first.
func TestTopK(t *testing.T) {
	o := conversion.Options{Chunks: 2, Context: 80, Head: chunking.Head{Token: true, Logits: true, TopK: 5}}
	e := open(t, "gemma3", o)
	if _, err := e.NewSession().Prefill(ids(20), func(r engine.Row) error {
		order := make([]int32, len(r.Logits))
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortStableFunc(order, func(a, b int32) int {
			switch {
			case r.Logits[a] > r.Logits[b]:
				return -1
			case r.Logits[a] < r.Logits[b]:
				return 1
			}
			return 0
		})
		if d := cmp.Diff(order[:5], r.TopIDs); d != "" {
			t.Errorf("position %d: top_ids %s", r.Position, d)
		}
		for i, id := range r.TopIDs {
			if r.TopLogits[i] != r.Logits[id] {
				t.Errorf("position %d: logit %d is %g, top_logits say %g", r.Position, id, r.Logits[id], r.TopLogits[i])
			}
		}
		if r.TopIDs[0] != r.Token {
			t.Errorf("position %d: token %d, top_ids %v", r.Position, r.Token, r.TopIDs)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
