package reference

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
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/fixtures"
)

// tapGolden is a drafter with recorded states of a target. SMELT_GOLDENS may
// name a directory with fuller recordings of the same drafters.
func tapGolden(t testing.TB, name string) *golden {
	t.Helper()
	dir, err := fixtures.Dir("drafters/" + name)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "golden.safetensors")
	if root := os.Getenv("SMELT_GOLDENS"); root != "" {
		if fuller := filepath.Join(root, name, "golden.safetensors"); exists(fuller) {
			file = fuller
		}
	}
	src, err := checkpoint.OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return &golden{name: name, dir: dir, src: src}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (g *golden) floats(t testing.TB, name string) []float32 {
	t.Helper()
	v, err := checkpoint.ReadAll(g.tensor(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (g *golden) tokens(t testing.TB, name string) []int32 {
	t.Helper()
	var out []int32
	for _, v := range g.ints(t, name) {
		out = append(out, int32(v))
	}
	return out
}

func draftSession(t testing.TB, dir string, o DraftOptions) drafter.Session {
	t.Helper()
	d, err := OpenDraftSource(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	s, err := d.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sameDraft compares a draft with a recording and returns the worst deviation of a
// logit relative to the peak.
func sameDraft(t testing.TB, what string, d drafter.Draft, tokens []int32, logits *Matrix, columns []int32) float64 {
	t.Helper()
	if !slices.Equal(d.Tokens, tokens) {
		t.Errorf("%s: drafts %v, want %v", what, d.Tokens, tokens)
		return 0
	}
	worst := 0.0
	for j := range tokens {
		got := d.Logits[j]
		if columns != nil {
			some := make([]float32, len(columns))
			for i, id := range columns {
				some[i] = got[id]
			}
			got = some
		}
		worst = max(worst, maxDiff(t, row(got), row(logits.Row(j))))
	}
	if worst /= max(1, float64(logits.MaxAbs())); !(worst <= 1e-4) {
		t.Errorf("%s: logits differ by %g of the peak", what, worst)
	}
	return worst
}

func TestEagle3Golden(t *testing.T) {
	g := tapGolden(t, "eagle3-llama")
	d, err := OpenDraftSource(g.dir, DraftOptions{TargetLayers: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if want := []int{1, 4, 6}; !slices.Equal(d.Needs().Taps, want) {
		t.Errorf("taps %v of a target of 10 layers, want %v", d.Needs().Taps, want)
	}
	s, err := d.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int32
	offsets, _ := d.src.Tensor("d2t")
	off, err := checkpoint.ReadInts(offsets)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range off {
		ids = append(ids, int32(i)+int32(o))
	}
	sequence, worst := g.tokens(t, "sequence"), 0.0
	for r := range 4 {
		name := func(what string) string { return fmt.Sprintf("r%d.%s", r, what) }
		at, next := s.Position(), g.tokens(t, name("next_ids"))
		if err := s.Commit(drafter.Rows{Position: at, Tokens: sequence[at : at+len(next)], Taps: g.matrix(t, name("taps")).Data}); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{7, 2} {
			out, err := s.Draft(next[len(next)-1], n)
			if err != nil {
				t.Fatal(err)
			}
			worst = max(worst, sameDraft(t, fmt.Sprintf("round %d", r), out, g.tokens(t, name("draft"))[:n], g.matrix(t, name("logits")), ids))
			for id, v := range out.Logits[0] {
				if known := slices.Contains(ids, int32(id)); known == math.IsInf(float64(v), -1) {
					t.Fatalf("token %d: logit %g, in the draft vocabulary: %v", id, v, known)
				}
			}
		}
	}
	t.Logf("worst deviation relative to the peak: %.2g", worst)
}

// TestMTPGolden: serially, position by position, and as the engine that shipped
// with such modules keeps its cache: one entry a round, guesses included.
func TestMTPGolden(t *testing.T) {
	g := tapGolden(t, "mtp-modules")
	s := draftSession(t, g.dir, DraftOptions{})
	tokens, trunk := g.tokens(t, "tokens"), g.matrix(t, "trunk_hidden")
	drafts, all := g.tokens(t, "serial.drafts"), &Matrix{Rows: 2 * trunk.Rows, Cols: 512, Data: g.matrix(t, "serial.draft_logits").Data}
	worst := 0.0
	for i := range trunk.Rows {
		if err := s.Commit(drafter.Rows{Position: i, Tokens: tokens[i : i+1], Hidden: trunk.Row(i), Norm: drafter.Pre}); err != nil {
			t.Fatal(err)
		}
		out, err := s.Draft(tokens[i+1], 2)
		if err != nil {
			t.Fatal(err)
		}
		want := &Matrix{Rows: 2, Cols: 512, Data: all.Data[2*i*512 : 2*(i+1)*512]}
		worst = max(worst, sameDraft(t, fmt.Sprintf("position %d", i), out, drafts[2*i:2*i+2], want, nil))
	}
	var meta struct {
		Rounds []struct {
			Row    int   `json:"hidden_row"`
			Token  int32 `json:"token"`
			Drafts []int32
		} `json:"engine_rounds"`
	}
	data, err := os.ReadFile(filepath.Join(g.dir, "golden.json"))
	if err == nil {
		err = json.Unmarshal(data, &meta)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := s.(*mtpSession).m
	tracks := m.tracks()
	for r, round := range meta.Rounds {
		sh := m.sheet()
		hidden, next := &Matrix{Rows: 1, Cols: m.Hidden, Data: trunk.Row(round.Row)}, round.Token
		var out drafter.Draft
		for k := range m.Layers {
			tracks[k] = m.step(sh, k, hidden, []int32{next}, tracks[k])
			hidden = &Matrix{Rows: 1, Cols: m.Hidden, Data: tracks[k].out.Row(r)}
			logits := m.logits(sh, hidden).Data
			next = first(logits)
			out.Tokens, out.Logits = append(out.Tokens, next), append(out.Logits, logits)
		}
		if sh.err != nil {
			t.Fatal(sh.err)
		}
		worst = max(worst, sameDraft(t, fmt.Sprintf("shipped round %d", r), out, round.Drafts, g.matrix(t, fmt.Sprintf("engine.r%d.logits", r)), nil))
	}
	// Without a window every position is that of the training form.
	if g.has("teacher.logits.0") {
		wide := *m
		wide.Window = trunk.Rows
		sh, tracks := wide.sheet(), wide.tracks()
		wide.advance(sh, trunk, tokens, tracks, wide.Layers)
		for k := range wide.Layers {
			want := g.matrix(t, fmt.Sprintf("teacher.logits.%d", k))
			if d := maxDiff(t, wide.logits(sh, tracks[k].out), want); sh.err != nil || !(d <= 1e-3) {
				t.Errorf("training form, module %d: logits differ by %g (%v)", k, d, sh.err)
			}
		}
	}
	t.Logf("worst deviation relative to the peak: %.2g", worst)
}

func TestDSparkGolden(t *testing.T) {
	g := tapGolden(t, "dspark-forward")
	full, short := draftSession(t, g.dir, DraftOptions{}), draftSession(t, g.dir, DraftOptions{ShortBlocks: true})
	worst := 0.0
	for r := range 4 {
		name := func(what string) string { return fmt.Sprintf("r%d.%s", r, what) }
		taps, anchor := g.matrix(t, name("taps")), g.tokens(t, name("anchor"))[0]
		for _, s := range []drafter.Session{full, short} {
			if err := s.Commit(drafter.Rows{Position: s.Position(), Tokens: make([]int32, taps.Rows), Taps: taps.Data}); err != nil {
				t.Fatal(err)
			}
			if s.Position() != int(g.tokens(t, name("start"))[0]) {
				t.Fatalf("round %d starts at %d", r, s.Position())
			}
		}
		out, err := full.Draft(anchor, 7)
		if err != nil {
			t.Fatal(err)
		}
		worst = max(worst, sameDraft(t, fmt.Sprintf("round %d", r), out, g.tokens(t, name("draft")), g.matrix(t, name("logits")), nil))
		for j, want := range g.floats(t, name("confidence")) {
			if math.Abs(float64(out.Confidence[j]-want)) > 1e-4 {
				t.Errorf("round %d: confidence of draft %d is %g, want %g", r, j, out.Confidence[j], want)
			}
		}
		if again, err := full.Draft(anchor, 3); err != nil || !slices.Equal(again.Tokens, out.Tokens[:3]) {
			t.Errorf("round %d: the first three of a block are %v, then %v (%v)", r, out.Tokens[:3], again.Tokens, err)
		}
		for n := 1; n < 7; n++ {
			out, err := short.Draft(anchor, n)
			if err != nil {
				t.Fatal(err)
			}
			of := name(fmt.Sprintf("short%d", n))
			if g.has(of + ".logits") {
				worst = max(worst, sameDraft(t, of, out, g.tokens(t, of+".draft"), g.matrix(t, of+".logits"), nil))
			} else if want := g.tokens(t, of+".draft"); !slices.Equal(out.Tokens, want) {
				t.Errorf("%s: drafts %v, want %v", of, out.Tokens, want)
			}
		}
	}
	t.Logf("worst deviation relative to the peak: %.2g", worst)
}

// TestAssistantSession: rounds through the session are those of Draft.
func TestAssistantSession(t *testing.T) {
	for _, g := range drafterGoldens(t) {
		d, err := OpenDraftSource(g.dir, DraftOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		s, err := d.NewSession(g.target.Embedder())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range g.record.Anchors {
			r := drafter.Rows{Position: s.Position(), Tokens: g.ids[s.Position():n], Norm: drafter.Post, Keys: map[string][]float32{}, Values: map[string][]float32{}}
			for i := s.Position(); i < n; i++ {
				r.Hidden = append(r.Hidden, g.result.Norm.Row(i)...)
				for kind, kv := range g.result.KV {
					r.Keys[kindName(kind)] = append(r.Keys[kindName(kind)], kv.K.Row(i)...)
					r.Values[kindName(kind)] = append(r.Values[kindName(kind)], kv.V.Row(i)...)
				}
			}
			if err := s.Commit(r); err != nil {
				t.Fatal(err)
			}
			out, err := s.Draft(g.ids[n], 4)
			if err != nil {
				t.Fatal(err)
			}
			if want := g.tokens(t, fmt.Sprintf("draft.n%d.tokens", n)); !slices.Equal(out.Tokens, want) {
				t.Errorf("%s after %d tokens: drafts %v, want %v", g.name, n, out.Tokens, want)
			}
		}
	}
}

func TestDraftSourceRefuses(t *testing.T) {
	eagle, mtp := tapGolden(t, "eagle3-llama").dir, tapGolden(t, "mtp-modules").dir
	for name, tt := range map[string]struct {
		dir    string
		o      DraftOptions
		change string // of config.json: "old=new"
		want   string
	}{
		"taps unknown":   {dir: eagle, want: "number of layers of the target"},
		"two taps":       {dir: eagle, o: DraftOptions{Taps: []int{1, 2}}, want: "taps three layers"},
		"hidden width":   {dir: eagle, o: DraftOptions{TargetLayers: 10}, change: `"hidden_size": 64="hidden_size": 64, "target_hidden_size": 32`, want: `tensor "fc.weight": shape is [64 192]`},
		"another class":  {dir: eagle, change: "LlamaForCausalLMEagle3=DFlashDraftModel", want: `"DFlashDraftModel" is not a drafter`},
		"unknown key":    {dir: mtp, change: `"num_modules": 2="num_modules": 2, "mystery": 1`, want: "mystery"},
		"modules absent": {dir: mtp, change: `"num_modules": 2="num_modules": 3`, want: "modules_list.2."},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tt.dir
			if old, new, ok := strings.Cut(tt.change, "="); ok {
				dir = t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(tt.dir)); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, "config.json")
				data, err := os.ReadFile(path)
				if err != nil || !strings.Contains(string(data), old) {
					t.Fatal(err, old)
				}
				if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, new, 1)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			d, err := OpenDraftSource(dir, tt.o)
			if err == nil {
				d.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}
