package parity_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/tokenizer"
)

// TestWriteThrough measures what drafts do that are written into the cache
// before they are accepted, on trained models over held-out text: the table in
// docs/architecture.md, which is of tiny-gemma4 (SMELT_GOLDENS). Written when
// accepted, they change nothing.
func TestWriteThrough(t *testing.T) {
	demo, err := fixtures.Dir(fixtures.DemoName)
	if err != nil {
		t.Fatal(err)
	}
	models, tokens := []string{demo}, 160
	if root := os.Getenv("SMELT_GOLDENS"); root != "" {
		models, tokens = append(models, filepath.Join(root, "tiny-gemma4")), 500
	}
	for _, src := range models {
		t.Run(filepath.Base(src), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(src, "heldout.txt"))
			if err != nil {
				t.Fatal(err)
			}
			tok, err := tokenizer.Load(src)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := tok.Encode(string(text[:6*tokens]), tokenizer.EncodeOptions{AddSpecial: true})
			if err != nil || len(ids) < tokens {
				t.Fatalf("%d tokens, %v", len(ids), err)
			}
			ids = ids[:tokens]
			serial, ring := speculateThrough(t, src, chunking.KVTensor, ids)
			_, shift := speculateThrough(t, src, chunking.KVCoreMLLLM, ids)
			var b strings.Builder
			fmt.Fprintf(&b, "| drafts right | written when accepted | at once, shifting cache | at once, ring |\n|---|---|---|---|\n")
			for right := 3; right > 0; right-- {
				late, early, kept := compareRows(serial, shift(right, false)), compareRows(serial, shift(right, true)), compareRows(serial, ring(right, true))
				fmt.Fprintf(&b, "| %d of 4 | %s | %s | %s |\n", right, late, early, kept)
				if late.flips > 0 || late.kl > 1e-9 {
					t.Errorf("%d of 4 right: written when accepted: %s", right, late)
				}
				if early.flips < 0.02 {
					t.Errorf("%d of 4 right: written at once: %s, too little to show", right, early)
				}
			}
			t.Logf("%d tokens:\n%s", tokens, b.String())
		})
	}
}

// speculateThrough converts a checkpoint and returns the logits of serial
// decode, and a walk that verifies four drafts at a time of which the first
// are right.
func speculateThrough(t *testing.T, src, kv string, ids []int32) (serial [][]float32, walk func(right int, early bool) [][]float32) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bundle")
	o := conversion.Options{Chunks: 1, Compute: "fp32", KV: kv, Context: len(ids) + 4, Functions: functions(t, "decode,verify:4")}
	if _, err := conversion.Convert(context.Background(), src, dir, o); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(dir, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	keep := func(out *[][]float32, r engine.Row) { *out = append(*out, append([]float32(nil), r.Logits...)) }
	s := e.NewSession()
	for _, id := range ids {
		r, err := s.Decode(id)
		if err != nil {
			t.Fatal(err)
		}
		keep(&serial, r)
	}
	return serial, func(right int, early bool) (out [][]float32) {
		s := e.NewSession()
		s.WriteThrough = early
		for s.Pos()+4 <= len(ids) {
			block := append([]int32(nil), ids[s.Pos():s.Pos()+4]...)
			for i := right; i < 4; i++ {
				block[i] = (block[i] + 977) % int32(e.Contract().Model.Vocab)
			}
			p, err := s.Verify(block)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range p.Rows()[:right] {
				keep(&out, r)
			}
			if err := p.Commit(right); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
}

// contamination is how far rows are from those of serial decode.
type contamination struct{ flips, kl float64 }

func (c contamination) String() string { return fmt.Sprintf("%.1f %%, KL %.2g", 100*c.flips, c.kl) }

func compareRows(want, got [][]float32) (c contamination) {
	for i, g := range got {
		w := want[i]
		a, b := 0, 0
		for j := range w {
			if w[j] > w[a] {
				a = j
			}
			if g[j] > g[b] {
				b = j
			}
		}
		if a != b {
			c.flips++
		}
		lw, lg := logSum(w), logSum(g)
		for j := range w {
			p := float64(w[j]) - lw
			c.kl += math.Exp(p) * (p - float64(g[j]) + lg)
		}
	}
	n := float64(len(got))
	return contamination{c.flips / n, c.kl / n}
}

func logSum(x []float32) float64 {
	top := float64(x[0])
	for _, v := range x {
		top = math.Max(top, float64(v))
	}
	var s float64
	for _, v := range x {
		s += math.Exp(float64(v) - top)
	}
	return top + math.Log(s)
}
