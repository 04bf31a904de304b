package engine_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fixtures"
)

// open converts a fixture and opens the bundle.
func open(t testing.TB, name string, o conversion.Options) *engine.Engine {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "bundle")
	if _, err := conversion.Convert(context.Background(), dir, out, o); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(out, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

var forms = map[string]conversion.Options{
	"tensor": {Chunks: 2, Context: 80},
	"state":  {Chunks: 2, Context: 80, KV: chunking.KVState},
	"shift":  {Chunks: 2, Context: 80, KV: chunking.KVCoreMLLLM},
}

func ids(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((i*37 + 11) % 500)
	}
	return out
}

// TestRejectedDraftsLeaveNoTrace verifies drafts and commits none or some of
// them; what follows must equal a session that never saw the others, past
// the window of 24 as well.
func TestRejectedDraftsLeaveNoTrace(t *testing.T) {
	for name, o := range forms {
		t.Run(name, func(t *testing.T) {
			e := open(t, "gemma3", o)
			plain, spec := e.NewSession(), e.NewSession()
			text := ids(60)
			for i := 0; i < len(text); {
				accept := min(i%4, len(text)-i)
				drafts := slices.Clone(text[i : i+accept])
				for len(drafts) < 4 && spec.Pos()+len(drafts) < 80 {
					drafts = append(drafts, int32(499-len(drafts)))
				}
				p, err := spec.Verify(drafts)
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Commit(accept); err != nil {
					t.Fatal(err)
				}
				i += accept
				if i == len(text) {
					break
				}
				if _, err := spec.Decode(text[i]); err != nil {
					t.Fatal(err)
				}
				i++
			}
			for _, id := range text {
				if _, err := plain.Decode(id); err != nil {
					t.Fatal(err)
				}
			}
			if spec.Pos() != plain.Pos() {
				t.Fatalf("positions %d and %d", spec.Pos(), plain.Pos())
			}
			for layer := range e.Contract().Model.Layers {
				k1, v1, p1, err := spec.KV(layer)
				if err != nil {
					t.Fatal(err)
				}
				k2, v2, p2, err := plain.KV(layer)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(p2, p1); diff != "" {
					t.Fatalf("layer %d: positions: %s", layer, diff)
				}
				if d := max(worst(k1, k2), worst(v1, v2)); d > 0.05 {
					t.Errorf("layer %d: cache differs by %g", layer, d)
				}
			}
		})
	}
}

func worst(a, b [][][]float32) float32 {
	var d float32
	for h := range a {
		for p := range a[h] {
			for i := range a[h][p] {
				d = max(d, a[h][p][i]-b[h][p][i], b[h][p][i]-a[h][p][i])
			}
		}
	}
	return d
}

// TestReset repeats a text after Reset and wants the same numbers.
func TestReset(t *testing.T) {
	for name, o := range forms {
		t.Run(name, func(t *testing.T) {
			s := open(t, "gemma3", o).NewSession()
			first, err := s.Prefill(ids(40), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Clone(first.Logits)
			s.Reset()
			again, err := s.Prefill(ids(40), nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(want, again.Logits) {
				t.Error("the text differs after Reset")
			}
		})
	}
}

// TestPrefillToTheEnd fills the context exactly, from odd offsets, where a
// padded call would write beyond the cache.
func TestPrefillToTheEnd(t *testing.T) {
	for name, o := range forms {
		t.Run(name, func(t *testing.T) {
			e := open(t, "llama-tied", o)
			whole, pieces := e.NewSession(), e.NewSession()
			text := ids(80)
			want, err := whole.Prefill(text, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, cut := range [][2]int{{0, 3}, {3, 50}, {50, 79}, {79, 80}} {
				var got engine.Row
				if got, err = pieces.Prefill(text[cut[0]:cut[1]], nil); err != nil {
					t.Fatal(err)
				}
				if cut[1] == 80 && got.Token != want.Token {
					t.Errorf("token %d, want %d", got.Token, want.Token)
				}
			}
			if _, err := whole.Decode(1); err == nil || !strings.Contains(err.Error(), "beyond the context of 80") {
				t.Errorf("decoding past the context: %v", err)
			}
		})
	}
}

func TestGenerate(t *testing.T) {
	e := open(t, fixtures.DemoName, conversion.Options{})
	gen := func(o engine.GenerateOptions) []int32 {
		t.Helper()
		out, err := e.NewSession().Generate(context.Background(), []int32{2, 300, 301}, o)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	greedy := gen(engine.GenerateOptions{MaxTokens: 12})
	if diff := cmp.Diff(greedy, gen(engine.GenerateOptions{MaxTokens: 12})); diff != "" {
		t.Errorf("greedy generation varies: %s", diff)
	}
	hot := engine.Sampling{Temperature: 1.5, Seed: 1}
	a := gen(engine.GenerateOptions{MaxTokens: 12, Sampling: hot})
	if diff := cmp.Diff(a, gen(engine.GenerateOptions{MaxTokens: 12, Sampling: hot})); diff != "" {
		t.Errorf("one seed, two texts: %s", diff)
	}
	hot.Seed = 2
	if cmp.Equal(a, gen(engine.GenerateOptions{MaxTokens: 12, Sampling: hot})) {
		t.Error("two seeds give the same text at temperature 1.5")
	}
	if k1 := gen(engine.GenerateOptions{MaxTokens: 12, Sampling: engine.Sampling{Temperature: 1, TopK: 1}}); !cmp.Equal(k1, greedy) {
		t.Error("top-k 1 is not greedy")
	}
	if stopped := gen(engine.GenerateOptions{MaxTokens: 12, Stop: greedy[:1]}); len(stopped) != 1 {
		t.Errorf("%d tokens, want to stop after the first", len(stopped))
	}
}

func TestBadTokens(t *testing.T) {
	s := open(t, "llama-tied", conversion.Options{}).NewSession()
	for _, id := range []int32{-1, 512} {
		if _, err := s.Decode(id); err == nil || !strings.Contains(err.Error(), "outside the vocabulary of 512") {
			t.Errorf("token %d: %v", id, err)
		}
	}
	if _, err := s.Verify(ids(5)); err == nil || !strings.Contains(err.Error(), "no verify function for 5 tokens") {
		t.Errorf("verify of 5: %v", err)
	}
	if _, err := s.Generate(context.Background(), nil, engine.GenerateOptions{}); err == nil {
		t.Error("an empty prompt is accepted")
	}
}
