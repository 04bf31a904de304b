package speculate_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/speculate"
	"github.com/smelt-go/smelt/tokenizer"
)

func prompts(ids [][]int32) (out []speculate.Prompt) {
	for _, p := range ids {
		out = append(out, speculate.Prompt{IDs: p})
	}
	return out
}

// TestUnsettledReading: where a checkpoint says both that the anchor's slot is
// read and that it is not, both readings are measured, and nothing is guessed.
func TestUnsettledReading(t *testing.T) {
	dir := t.TempDir()
	src := fixture(t, "drafters/dspark-forward")
	if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data = []byte(strings.Replace(string(data), `"block_size"`, `"sample_from_anchor": false, "block_size"`, 1))
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	w := &speculate.Workshop{Gamma: 4, Context: 80, Sample: prompts(randomPrompts(8, 512))}
	defer w.Close()
	if err := w.Target(randomLlama(t)); err != nil {
		t.Fatal(err)
	}
	_, err = w.Arm(t.Context(), dir)
	if err == nil || !strings.Contains(err.Error(), "do not settle which token a slot guesses") || !strings.Contains(err.Error(), "anchor 0.") || !strings.Contains(err.Error(), "masks ") {
		t.Fatalf("got %v, want both readings", err)
	}
	w.Reading = "masks"
	a, err := w.Arm(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := a.Source.MaxDraft(); n != 6 {
		t.Errorf("%d drafts of a block of 7 whose first slot is not read, want 6", n)
	}
	if a.BlockBytes == 0 || a.DraftBytes != 0 {
		t.Errorf("a block drafter reads %g bytes a block and %g a draft", a.BlockBytes, a.DraftBytes)
	}
}

// late is a drafter one position off: its labels were shifted, so that it says
// what it was given, or what comes after the next.
type late struct {
	speculate.Source
	by   int
	text map[int32][]int32 // by first token of the prompt
	at   []int32
}

func (l *late) Reset() { l.Source.Reset(); l.at = l.at[:0] }

func (l *late) Commit(r drafter.Rows) error {
	l.at = append(l.at, r.Tokens...)
	return l.Source.Commit(r)
}

func (l *late) Draft(next int32, n int) (drafter.Draft, error) {
	text := l.text[l.at[1]]
	if i := len(l.at) + 1 + l.by; i < len(text) {
		return drafter.Draft{Tokens: text[i : i+1]}, nil
	}
	return drafter.Draft{}, nil
}

// TestLabelShift: acceptance near nothing with the right token one position
// away is no bad drafter but a wrong one.
func TestLabelShift(t *testing.T) {
	b := trained(t, 8, conversion.Options{Compute: "fp32"})
	text := map[int32][]int32{}
	for _, p := range b.prompts {
		s, err := speculate.Serial(t.Context(), b.target, p, speculate.WalkDecode, speculate.Options{MaxTokens: 24, IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		text[p[1]] = append(append([]int32{}, p...), s.Output...)
	}
	for by, want := range map[int]string{-1: "the token it was given", 0: "", 1: "the token after the next"} {
		arm := &speculate.Arm{Name: "late", Target: b.target, Source: &late{Source: speculate.Lookup("late", speculate.RecentMatch{N: 3}), by: by, text: text}}
		_, err := speculate.Compare(t.Context(), []*speculate.Arm{arm}, prompts(b.prompts), speculate.CompareOptions{Options: speculate.Options{Gamma: 1, MaxTokens: 20, IgnoreEOS: true}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("labels shifted by %d: got %v, want %q", by, err, want)
		}
	}
}

// TestPromptFiles: lines, lists, and texts to be cut.
func TestPromptFiles(t *testing.T) {
	tok, err := tokenizer.Load(fixture(t, fixtures.DemoName))
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "prompts")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		text string
		cut  int
		want int
		bad  string
	}{
		{"one line\n\nanother\n", 0, 2, ""},
		{`[[1, 2, 3], "a text"]`, 0, 2, ""},
		{strings.Repeat("The database file. ", 100), 20, 15, ""},
		{"\n \n", 0, 0, "no prompts"},
		{`[1, 2]`, 0, 0, "element 0 is neither"},
		{`[[1, 2`, 0, 0, "not a JSON list"},
		{"short", 50, 0, "no prompts"},
	} {
		p, err := speculate.ReadPrompts(write(tt.text), tok, tt.cut)
		if tt.bad != "" {
			if err == nil || !strings.Contains(err.Error(), tt.bad) {
				t.Errorf("%.30q: got %v, want an error with %q", tt.text, err, tt.bad)
			}
			continue
		}
		if err != nil || len(p) < tt.want {
			t.Errorf("%.30q: %d prompts, %v, want %d", tt.text, len(p), err, tt.want)
		}
		for _, x := range p {
			if tt.cut > 0 && len(x.IDs) != tt.cut {
				t.Errorf("a prompt has %d tokens, want %d", len(x.IDs), tt.cut)
			}
		}
	}
}
