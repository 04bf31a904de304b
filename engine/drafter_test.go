package engine_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/runtime"
)

// recording is the golden of a drafter.
type recording struct {
	dir string
	f   *checkpoint.File
}

// record opens it. SMELT_GOLDENS may name a directory with fuller recordings of
// the same drafters.
func record(t testing.TB, name string) recording {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "golden.safetensors")
	if root := os.Getenv("SMELT_GOLDENS"); root != "" {
		fuller := filepath.Join(root, strings.TrimPrefix(name, "drafters/"), "golden.safetensors")
		if _, err := os.Stat(fuller); err == nil {
			file = fuller
		}
	}
	f, err := checkpoint.OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return recording{dir, f}
}

func (r recording) floats(t testing.TB, name string) []float32 {
	t.Helper()
	x, ok := r.f.Tensor(name)
	if !ok {
		t.Fatalf("the recording has no %s", name)
	}
	v, err := checkpoint.ReadAll(x)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (r recording) ints(t testing.TB, name string) []int32 {
	t.Helper()
	x, ok := r.f.Tensor(name)
	if !ok {
		t.Fatalf("the recording has no %s", name)
	}
	v, err := checkpoint.ReadInts(x)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]int32, len(v))
	for i, n := range v {
		out[i] = int32(n)
	}
	return out
}

// json reads golden.json.
func (r recording) json(t testing.TB, v any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, "golden.json"))
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// converted converts the drafter in dir and opens what was written.
func converted(t testing.TB, dir string, o conversion.DrafterOptions, target drafter.Embedder) engine.DrafterSession {
	t.Helper()
	out := filepath.Join(t.TempDir(), "drafter")
	if o.Compute == "" {
		o.Compute = "fp32"
	}
	if _, err := conversion.ConvertDrafter(t.Context(), dir, out, o); err != nil {
		t.Fatal(err)
	}
	mode := runtime.FP32
	if o.Compute == "fp16" {
		mode = runtime.Typed
	}
	d, err := engine.OpenDrafter(out, engine.Options{Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	s, err := d.NewSession(target)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// near compares a draft with what was recorded: logits within 1e-3 of the
// largest, tokens equal.
func near(t testing.TB, what string, d drafter.Draft, tokens []int32, logits []float32) float64 {
	t.Helper()
	if !slices.Equal(d.Tokens, tokens) {
		t.Errorf("%s: drafts %v, want %v", what, d.Tokens, tokens)
	}
	worst, peak := 0.0, 1.0
	width := len(logits) / len(tokens)
	for j := range min(len(d.Logits), len(tokens)) {
		for i, w := range logits[j*width : (j+1)*width] {
			worst, peak = max(worst, math.Abs(float64(d.Logits[j][i]-w))), max(peak, math.Abs(float64(w)))
		}
	}
	if !(worst <= 1e-3*peak) {
		t.Errorf("%s: logits differ by %g of %g", what, worst, peak)
	}
	return worst / peak
}

// TestEagle3 runs the recorded rounds: rows of accepted tokens, a chain of
// drafts after each.
func TestEagle3(t *testing.T) {
	g := record(t, "drafters/eagle3-llama")
	ck, err := checkpoint.Open(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	x, _ := ck.Tensor("d2t")
	wide, err := checkpoint.ReadInts(x)
	if err != nil {
		t.Fatal(err)
	}
	reachable := map[int]bool{}
	for i, off := range wide {
		reachable[i+int(off)] = true
	}
	// known keeps the logits of the draft vocabulary; all others must be -Inf.
	known := func(d *drafter.Draft) {
		for j, all := range d.Logits {
			var some []float32
			for id, v := range all {
				switch {
				case reachable[id]:
					some = append(some, v)
				case !math.IsInf(float64(v), -1):
					t.Fatalf("token %d, which is not in the draft vocabulary, has the logit %g", id, v)
				}
			}
			d.Logits[j] = some
		}
	}
	s := converted(t, g.dir, conversion.DrafterOptions{Taps: []int{1, 3, 6}, Context: 64, Rows: []int{1, 4}}, nil)
	sequence, at := g.ints(t, "sequence"), 0
	for r := range 4 {
		name := func(what string) string { return fmt.Sprintf("r%d.%s", r, what) }
		positions, next := g.ints(t, name("positions")), g.ints(t, name("next_ids"))
		rows := drafter.Rows{Position: at, Tokens: sequence[at : at+len(positions)], Taps: g.floats(t, name("taps"))}
		if int(positions[0]) != at {
			t.Fatalf("round %d starts at %d, want %d", r, positions[0], at)
		}
		if err := s.Commit(rows); err != nil {
			t.Fatal(err)
		}
		at += len(positions)
		want, logits := g.ints(t, name("draft")), g.floats(t, name("logits"))
		for _, n := range []int{3, 7, 1, 7} { // drafting twice changes nothing
			d, err := s.Draft(next[len(next)-1], n)
			if err != nil {
				t.Fatal(err)
			}
			known(&d)
			near(t, fmt.Sprintf("round %d, %d drafts", r, n), d, want[:n], logits[:n*len(wide)])
		}
	}
}

// TestDSpark runs the recorded rounds with the full block and with shorter
// ones, which are blocks of their own.
func TestDSpark(t *testing.T) {
	g := record(t, "drafters/dspark-forward")
	s := converted(t, g.dir, conversion.DrafterOptions{Context: 64, Rows: []int{1, 4}, Blocks: []int{1, 2, 3, 4, 5, 6, 7}}, nil)
	for r := range 4 {
		name := func(what string) string { return fmt.Sprintf("r%d.%s", r, what) }
		taps, start, anchor := g.floats(t, name("taps")), g.ints(t, name("start"))[0], g.ints(t, name("anchor"))[0]
		n := len(taps) / (5 * 64)
		if int(start) != s.Position()+n {
			t.Fatalf("round %d starts at %d after %d and %d rows", r, start, s.Position(), n)
		}
		if err := s.Commit(drafter.Rows{Position: s.Position(), Tokens: make([]int32, n), Taps: taps}); err != nil {
			t.Fatal(err)
		}
		d, err := s.Draft(anchor, 7)
		if err != nil {
			t.Fatal(err)
		}
		near(t, fmt.Sprintf("round %d", r), d, g.ints(t, name("draft")), g.floats(t, name("logits")))
		for j, want := range g.floats(t, name("confidence")) {
			if math.Abs(float64(d.Confidence[j]-want)) > 1e-3 {
				t.Errorf("round %d: confidence of draft %d is %g, want %g", r, j, d.Confidence[j], want)
			}
		}
		for n := 1; n < 7; n++ {
			short := fmt.Sprintf("short%d", n)
			d, err := s.Draft(anchor, n)
			if err != nil {
				t.Fatal(err)
			}
			if want := g.ints(t, name(short+".draft")); !slices.Equal(d.Tokens, want) {
				t.Errorf("round %d, block of %d: drafts %v, want %v", r, n, d.Tokens, want)
			}
			if _, ok := g.f.Tensor(name(short + ".logits")); ok {
				near(t, name(short), d, g.ints(t, name(short+".draft")), g.floats(t, name(short+".logits")))
			}
		}
	}
}

// TestMTPModules: at every position module 0 guesses from the trunk, module 1
// from that guess; a guess that is not accepted leaves nothing behind.
func TestMTPModules(t *testing.T) {
	g := record(t, "drafters/mtp-modules")
	for _, step := range []int{1, 5} {
		s := converted(t, g.dir, conversion.DrafterOptions{Context: 64, Rows: []int{1, 4}}, nil)
		tokens, hidden := g.ints(t, "tokens"), g.floats(t, "trunk_hidden")
		drafts, logits := g.ints(t, "serial.drafts"), g.floats(t, "serial.draft_logits")
		for at := 0; at < len(hidden)/64; {
			n := min(step, len(hidden)/64-at)
			if err := s.Commit(drafter.Rows{Position: at, Tokens: tokens[at : at+n], Hidden: hidden[at*64 : (at+n)*64], Norm: drafter.Pre}); err != nil {
				t.Fatal(err)
			}
			at += n
			for range 2 {
				d, err := s.Draft(tokens[at], 2)
				if err != nil {
					t.Fatal(err)
				}
				i := at - 1
				near(t, fmt.Sprintf("position %d", i), d, drafts[2*i:2*i+2], logits[i*2*512:(i+1)*2*512])
			}
			if _, err := s.Draft((tokens[at]+1)%512, 2); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestGemma4Assistant feeds the recorded keys, values and hidden states.
func TestGemma4Assistant(t *testing.T) {
	for _, name := range fixtures.Drafters() {
		t.Run(filepath.Base(name), func(t *testing.T) {
			g := record(t, name)
			var meta struct{ Anchors []int }
			g.json(t, &meta)
			target := filepath.Dir(g.dir)
			src, err := conversion.OpenSource(target)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			s := converted(t, g.dir, conversion.DrafterOptions{Context: 80, Target: target}, table{src.Model.Embedding(), src.Model.Config().EmbedScale})
			ids := g.ints(t, "input_ids")
			rows := func(lo, hi int) drafter.Rows {
				r := drafter.Rows{Position: lo, Tokens: ids[lo:hi], Hidden: g.floats(t, "target.hidden_norm")[lo*80 : hi*80], Norm: drafter.Post,
					Keys: map[string][]float32{}, Values: map[string][]float32{}}
				for kind, shape := range s.Needs().Keys {
					w := shape.Heads * shape.HeadDim
					r.Keys[kind] = g.floats(t, "target."+kind+"_attention.k")[lo*w : hi*w]
					r.Values[kind] = g.floats(t, "target."+kind+"_attention.v")[lo*w : hi*w]
				}
				return r
			}
			for _, n := range meta.Anchors {
				if err := s.Commit(rows(s.Position(), n)); err != nil {
					t.Fatal(err)
				}
				d, err := s.Draft(ids[n], 4)
				if err != nil {
					t.Fatal(err)
				}
				worst := near(t, fmt.Sprintf("after %d tokens", n), d, g.ints(t, fmt.Sprintf("draft.n%d.tokens", n)), g.floats(t, fmt.Sprintf("draft.n%d.logits", n)))
				t.Logf("after %d tokens: %.2g of the peak", n, worst)
			}
		})
	}
}

// table is a target's table of embeddings.
type table struct {
	t     checkpoint.Tensor
	scale float64
}

func (e table) Embed(dst []float32, id int32) error {
	if err := e.t.ReadFloat32(dst, int(id)*len(dst)); err != nil {
		return err
	}
	for i := range dst {
		dst[i] *= float32(e.scale)
	}
	return nil
}

// TestDrafterSessionRefuses: what a host may get wrong.
func TestDrafterSessionRefuses(t *testing.T) {
	g := record(t, "drafters/mtp-modules")
	s := converted(t, g.dir, conversion.DrafterOptions{Context: 8, Rows: []int{1}}, nil)
	hidden := g.floats(t, "trunk_hidden")
	good := drafter.Rows{Tokens: []int32{1, 2}, Hidden: hidden[:128], Norm: drafter.Pre}
	if _, err := s.Draft(1, 1); err == nil || !strings.Contains(err.Error(), "nothing has been committed") {
		t.Errorf("draft before any row: %v", err)
	}
	post := good
	post.Norm = drafter.Post
	if err := s.Commit(post); err == nil || !strings.Contains(err.Error(), `"post"-norm`) {
		t.Errorf("post-norm states: %v", err)
	}
	if err := s.Commit(good); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(good); err == nil || !strings.Contains(err.Error(), "start at position 0, want 2") {
		t.Errorf("the same rows twice: %v", err)
	}
	if _, err := s.Draft(1, 3); err == nil || !strings.Contains(err.Error(), "gives 1 to 2") {
		t.Errorf("too many drafts: %v", err)
	}
	if _, err := s.Draft(512, 1); err == nil || !strings.Contains(err.Error(), "outside the vocabulary") {
		t.Errorf("token outside: %v", err)
	}
	long := drafter.Rows{Position: 2, Tokens: make([]int32, 7), Hidden: hidden[:7*64], Norm: drafter.Pre}
	if err := s.Commit(long); err == nil || !strings.Contains(err.Error(), "beyond the drafter's context of 8") {
		t.Errorf("beyond the context: %v", err)
	}
	s.Reset()
	if s.Position() != 0 {
		t.Error("Reset keeps the position")
	}
}
