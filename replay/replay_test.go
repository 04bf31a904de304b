package replay_test

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity/reference"
	"github.com/smelt-go/smelt/replay"
)

const fixtures = "../fixtures"

// drafters are all kinds, with what they need to be opened.
var drafters = []struct {
	name, dir, target string
	taps              []int
	reading           string
	slots             int
}{
	{"eagle3", "drafters/eagle3-llama", "", []int{1, 3, 6}, "", 4},
	{"mtp", "drafters/mtp-modules", "", nil, "", 2},
	{"dspark", "drafters/dspark-forward", "", nil, "", 7},
	{"dspark, masks", "drafters/dspark-forward", "", nil, models.ReadMasks, 6},
	{"assistant", "gemma4-mtp/assistant", "gemma4-mtp", nil, "", 4},
	{"assistant without clusters", "gemma4-mtp/assistant-plain", "gemma4-mtp", nil, "", 3},
}

// states makes arbitrary states of a target over tokens.
func states(n drafter.Needs, tokens []int32, seed uint64) drafter.Rows {
	rng := rand.New(rand.NewPCG(seed, 1))
	normal := func(k int) []float32 {
		x := make([]float32, k)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	T := len(tokens)
	r := drafter.Rows{Tokens: tokens, Taps: normal(T * len(n.Taps) * n.Hidden), Keys: map[string][]float32{}, Values: map[string][]float32{}}
	if n.Norm != "" {
		r.Norm, r.Hidden = n.Norm, normal(T*n.Hidden)
	}
	for _, kind := range []string{"full", "sliding"} {
		if s, ok := n.Keys[kind]; ok {
			r.Keys[kind], r.Values[kind] = normal(T*s.Heads*s.HeadDim), normal(T*s.Heads*s.HeadDim)
		}
	}
	return r
}

// first are the rows of the first n tokens.
func first(r drafter.Rows, needs drafter.Needs, n int) drafter.Rows {
	out := drafter.Rows{Tokens: r.Tokens[:n], Norm: r.Norm, Keys: map[string][]float32{}, Values: map[string][]float32{}}
	out.Taps = r.Taps[:n*len(needs.Taps)*needs.Hidden]
	if needs.Norm != "" {
		out.Hidden = r.Hidden[:n*needs.Hidden]
	}
	for k, s := range needs.Keys {
		out.Keys[k], out.Values[k] = r.Keys[k][:n*s.Heads*s.HeadDim], r.Values[k][:n*s.Heads*s.HeadDim]
	}
	return out
}

// What a text's own tokens force is what the reference drafts, where these tokens
// are its drafts.
func TestAgainstReference(t *testing.T) {
	for _, tt := range drafters {
		t.Run(tt.name, func(t *testing.T) {
			var target *decoder.Decoder
			var embed drafter.Embedder
			if tt.target != "" {
				var err error
				if target, err = decoder.Open(filepath.Join(fixtures, tt.target)); err != nil {
					t.Fatal(err)
				}
				defer target.Close()
				m, err := reference.Open(filepath.Join(fixtures, tt.target))
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				embed = m.Embedder()
			}
			dir := filepath.Join(fixtures, tt.dir)
			d, err := replay.Open(dir, replay.OpenOptions{Target: target, Taps: tt.taps, Reading: tt.reading})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			src, err := reference.OpenDraftSource(dir, reference.DraftOptions{Taps: tt.taps, SkipAnchor: tt.reading == models.ReadMasks})
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			s, err := src.NewSession(embed)
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(7, 7))
			var texts []drafter.Rows
			var bases [][]int
			var want [][][]float32
			for k, n := range []int{1, 9, 40} {
				tokens := make([]int32, n+1)
				for i := range tokens {
					tokens[i] = rng.Int32N(int32(d.Needs().Vocab))
				}
				tokens = append(tokens, make([]int32, tt.slots)...)
				rows := states(d.Needs(), tokens, uint64(k))
				s.Reset()
				if err := s.Commit(first(rows, d.Needs(), n)); err != nil {
					t.Fatal(err)
				}
				draft, err := s.Draft(tokens[n], tt.slots)
				if err != nil {
					t.Fatal(err)
				}
				copy(tokens[n+1:], draft.Tokens)
				var logits [][]float32
				for _, l := range draft.Logits {
					logits = append(logits, slices.Clone(l))
				}
				texts, bases, want = append(texts, rows), append(bases, []int{n}), append(want, logits)
			}
			run, err := d.Over(texts, bases, tt.slots)
			if err != nil {
				t.Fatal(err)
			}
			got, err := run.Draft(t.Context(), replay.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var scratch replay.Scratch
			worst := 0.0
			for row := range got.Rows {
				for slot := range got.Slots {
					z := make([]float32, got.Vocab())
					if err := got.Logits(&scratch, slot, row, nil, z); err != nil {
						t.Fatal(err)
					}
					some := []int32{0, 3, 17}
					part := make([]float32, len(some))
					if err := got.Logits(&scratch, slot, row, some, part); err != nil {
						t.Fatal(err)
					}
					for i, id := range some {
						if math.Abs(float64(part[i]-z[id])) > 1e-5 {
							t.Errorf("row %d slot %d token %d: %v alone, %v with all", row, slot, id, part[i], z[id])
						}
					}
					for i, v := range z {
						id := i
						if ids := d.TargetIDs(); ids != nil {
							id = int(ids[i])
						}
						worst = max(worst, math.Abs(float64(v-want[row][slot][id])))
					}
				}
			}
			t.Logf("largest difference of logits %.2g", worst)
			if !(worst < 1e-3) {
				t.Errorf("logits differ by up to %g from the reference's", worst)
			}
		})
	}
}

func TestModel(t *testing.T) {
	dir := "../speculate/testdata/tiny-gemma3-drafter"
	d, err := replay.Open(dir, replay.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := reference.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tokens := []int32{2, 45, 300, 7, 1999, 12, 64, 64, 900}
	run, err := d.Over([]drafter.Rows{{Tokens: tokens}}, [][]int{replay.Every(len(tokens), 3, 2)}, 3)
	if err != nil {
		t.Fatal(err)
	}
	got, err := run.Draft(t.Context(), replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := m.Forward(t.Context(), tokens, reference.Options{Head: true})
	if err != nil {
		t.Fatal(err)
	}
	var scratch replay.Scratch
	for row, n := range []int{1, 3, 5} {
		for slot := range 3 {
			z := make([]float32, got.Vocab())
			if err := got.Logits(&scratch, slot, row, nil, z); err != nil {
				t.Fatal(err)
			}
			for i, v := range res.Logits.Row(n + slot) {
				if math.Abs(float64(z[i]-v)) > 1e-4 {
					t.Fatalf("base %d slot %d token %d: %v, want %v", n, slot, i, z[i], v)
				}
			}
		}
	}
	// A module replaced alone gives the same with what came before it kept.
	path := "model.layers.1.mlp.up_proj"
	up, _ := d.Source().Tensor(path + ".weight")
	w, err := checkpoint.ReadAll(up)
	if err != nil {
		t.Fatal(err)
	}
	for i := range w {
		w[i] *= 0.5
	}
	other := checkpoint.NewFloat32(up.Name(), up.Shape(), w)
	weights := func(p string) (checkpoint.Tensor, error) {
		if p == path {
			return other, nil
		}
		return nil, nil
	}
	a, err := run.Draft(t.Context(), replay.Options{Weights: weights})
	if err != nil {
		t.Fatal(err)
	}
	b, err := run.Draft(t.Context(), replay.Options{Weights: weights, Only: path})
	if err != nil {
		t.Fatal(err)
	}
	x, y, z := make([]float32, a.Vocab()), make([]float32, a.Vocab()), make([]float32, a.Vocab())
	for _, e := range []error{a.Logits(&scratch, 1, 2, nil, x), b.Logits(&scratch, 1, 2, nil, y), got.Logits(&scratch, 1, 2, nil, z)} {
		if e != nil {
			t.Fatal(e)
		}
	}
	if !slices.Equal(x, y) || slices.Equal(x, z) {
		t.Error("a module replaced alone: what came before it was not kept, or the module not replaced")
	}
}

// Every module that can be coded is one that the drafter reads, and taps see it.
func TestModules(t *testing.T) {
	for _, tt := range drafters {
		t.Run(tt.name, func(t *testing.T) {
			var target *decoder.Decoder
			if tt.target != "" {
				var err error
				if target, err = decoder.Open(filepath.Join(fixtures, tt.target)); err != nil {
					t.Fatal(err)
				}
				defer target.Close()
			}
			d, err := replay.Open(filepath.Join(fixtures, tt.dir), replay.OpenOptions{Target: target, Taps: tt.taps, Reading: tt.reading})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			tokens := make([]int32, 12)
			run, err := d.Over([]drafter.Rows{states(d.Needs(), tokens, 3)}, [][]int{{4}}, tt.slots)
			if err != nil {
				t.Fatal(err)
			}
			asked, seen := map[string]bool{}, map[string]bool{}
			_, err = run.Draft(t.Context(), replay.Options{
				Weights: func(p string) (checkpoint.Tensor, error) { asked[p] = true; return nil, nil },
				Tap: func(in decoder.Input) error {
					for _, m := range in.Modules {
						seen[m] = true
						w, ok := d.Source().Tensor(m + ".weight")
						if !ok || w.Shape()[1] != in.X.Cols {
							t.Errorf("%s: input of %d columns", m, in.X.Cols)
						}
					}
					return nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range d.Modules() {
				if !asked[m.Path] && m.Path != "model.embed_tokens" {
					t.Errorf("nothing reads %s", m.Path)
				}
				gathered := m.Reads(2) == 0
				if seen[m.Path] == gathered {
					t.Errorf("%s: read %v times a round, its input seen: %v", m.Path, m.Reads(2), seen[m.Path])
				}
				if strings.HasPrefix(m.Path, "confidence_head") {
					t.Errorf("%s is listed", m.Path)
				}
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	d, err := replay.Open(filepath.Join(fixtures, "drafters/mtp-modules"), replay.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rows := states(d.Needs(), make([]int32, 8), 1)
	for name, tt := range map[string]struct {
		change func(*drafter.Rows)
		bases  []int
		slots  int
		want   string
	}{
		"slots":     {func(*drafter.Rows) {}, []int{1}, 3, "3 drafts asked"},
		"bases":     {func(*drafter.Rows) {}, []int{7}, 2, "no 2 drafts can follow the first 7"},
		"order":     {func(*drafter.Rows) {}, []int{2, 2}, 2, "no 2 drafts"},
		"wrong tag": {func(r *drafter.Rows) { r.Norm = drafter.Post }, []int{1}, 2, `"post"-norm`},
		"width":     {func(r *drafter.Rows) { r.Hidden = r.Hidden[1:] }, []int{1}, 2, "hidden states of 8 tokens"},
	} {
		r := rows
		tt.change(&r)
		if _, err := d.Over([]drafter.Rows{r}, [][]int{tt.bases}, tt.slots); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
	if _, err := replay.Open(filepath.Join(fixtures, "gemma4-mtp/assistant"), replay.OpenOptions{}); err == nil || !strings.Contains(err.Error(), "give the target") {
		t.Errorf("an assistant without its target: %v", err)
	}
}
