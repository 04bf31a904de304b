package capture

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity/reference"
)

// captured runs a model whose layers of both kinds lend their keys.
func captured(t *testing.T, o Options) (dir string, s *States, m *reference.Model) {
	t.Helper()
	model, err := fixtures.Dir("gemma3")
	if err != nil {
		t.Fatal(err)
	}
	d, err := decoder.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if m, err = reference.Open(model); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	dir = t.TempDir()
	o.DType, o.Sequences = checkpoint.F32, 2
	if _, err := Run(t.Context(), d, sequences(3), dir, o); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	return dir, s, m
}

func close32(a, b []float32) bool {
	return len(a) == len(b) && !slices.ContainsFunc(slices.Collect(func(yield func(float32) bool) {
		for i := range a {
			if !yield(a[i] - b[i]) {
				return
			}
		}
	}), func(d float32) bool { return d > 1e-4 || d < -1e-4 || d != d })
}

// Rows are what a target hands to a drafter: taps side by side, the hidden state with
// its tag, rotated keys and values of the last layer of a kind.
func TestRows(t *testing.T) {
	_, s, m := captured(t, Options{Taps: []int{2, 0}, Norms: []string{Pre, Post}, Keys: []string{"full", "sliding"}})
	needs := drafter.Needs{Hidden: s.Hidden, Vocab: s.Vocab, Layers: s.Layers, Taps: []int{0, 2}, Norm: Pre, Keys: s.Keys}
	rows, err := s.Rows(needs)
	if err != nil {
		t.Fatal(err)
	}
	final, err := s.Final()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 || len(final) != 3 {
		t.Fatalf("%d sequences, %d finals", len(rows), len(final))
	}
	for i, ids := range sequences(3) {
		if err := needs.Check(rows[i], 0); err != nil {
			t.Fatal(err)
		}
		r, err := m.Forward(t.Context(), ids, reference.Options{KV: true})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(rows[i].Tokens, ids) {
			t.Errorf("tokens %v", rows[i].Tokens)
		}
		var taps []float32
		for p := range ids {
			taps = append(append(taps, r.Hidden[1].Row(p)...), r.Hidden[3].Row(p)...)
		}
		for what, pair := range map[string][2][]float32{"taps": {rows[i].Taps, taps}, "hidden": {rows[i].Hidden, r.Hidden[len(r.Hidden)-1].Data}, "final": {final[i], r.Norm.Data},
			"full keys":   {rows[i].Keys["full"], r.KV[reference.FullAttention].K.Data},
			"full values": {rows[i].Values["full"], r.KV[reference.FullAttention].V.Data},
			"sliding":     {rows[i].Keys["sliding"], r.KV[reference.SlidingAttention].K.Data}} {
			if !close32(pair[0], pair[1]) {
				t.Errorf("sequence %d: %s are not the reference's", i, what)
			}
		}
	}
}

func TestCovers(t *testing.T) {
	dir, s, _ := captured(t, Options{Taps: []int{0}, Norms: []string{Post}})
	n := drafter.Needs{Hidden: s.Hidden, Vocab: s.Vocab}
	for name, tt := range map[string]struct {
		change func(*drafter.Needs)
		want   string
	}{
		"taps":     {func(n *drafter.Needs) { n.Taps = []int{0, 1} }, "capture with --taps 0,1"},
		"last tap": {func(n *drafter.Needs) { n.Taps = []int{s.Layers - 1} }, "cannot be tapped"},
		"norm":     {func(n *drafter.Needs) { n.Norm = Pre }, "reads pre-norm hidden states"},
		"width":    {func(n *drafter.Needs) { n.Hidden++ }, "hidden width"},
		"keys":     {func(n *drafter.Needs) { n.Keys = map[string]drafter.Shape{"full": {Heads: 1, HeadDim: 2}} }, "capture with --keys full"},
		"layers":   {func(n *drafter.Needs) { n.Layers = s.Layers + 1 }, "a target of"},
	} {
		need := n
		tt.change(&need)
		if _, err := s.Rows(need); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
	if _, err := s.Rows(drafter.Needs{Vocab: s.Vocab}); err != nil {
		t.Errorf("a drafter that reads no states: %v", err)
	}
	shard := filepath.Join(dir, s.Shards[0].File)
	data, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(shard, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "its hash is") {
		t.Errorf("a shard that was changed: %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "holds no captured states") {
		t.Errorf("an empty directory: %v", err)
	}
}
