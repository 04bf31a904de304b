package parity

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity/reference"
	"github.com/smelt-go/smelt/runtime"
)

// measured is how far drafts are from recorded ones.
type measured struct {
	logit, confidence float64
	equal, drafts     int
	confidences       int
}

func (m measured) String() string {
	s := fmt.Sprintf("%d of %d drafts, logits ±%.1e", m.equal, m.drafts, m.logit)
	if m.confidences > 0 {
		s += fmt.Sprintf(", %d confidences ±%.1e", m.confidences, m.confidence)
	}
	return s
}

func answers(t *testing.T, s drafter.Session, rounds []draftRound) (m measured) {
	t.Helper()
	for _, r := range rounds {
		if err := s.Commit(r.rows); err != nil {
			t.Fatal(err)
		}
		got, err := s.Draft(r.next, len(r.want.Tokens))
		if err != nil {
			t.Fatal(err)
		}
		for j, want := range r.want.Tokens {
			m.drafts++
			if got.Tokens[j] == want {
				m.equal++
			}
			if r.want.Logits != nil {
				m.logit = math.Max(m.logit, draftDeviation(got.Logits[j], r.want.Logits[j], r.columns))
			}
		}
		for j, want := range r.want.Confidence {
			m.confidences++
			m.confidence = math.Max(m.confidence, math.Abs(float64(got.Confidence[j]-want)))
		}
	}
	return m
}

// TestDrafterRecordings: every recorded draft and confidence comes out, and
// logits within 1e-3, of the reference and of what was converted and read back.
// -v prints the numbers.
func TestDrafterRecordings(t *testing.T) {
	var b strings.Builder
	for _, name := range slices.Concat(fixtures.Drafters(), fixtures.TapDrafters()) {
		dir, err := fixtures.Dir(name)
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join(dir, "golden.safetensors")
		if root := os.Getenv("SMELT_GOLDENS"); root != "" {
			golden = filepath.Join(root, strings.TrimPrefix(name, "drafters/"), "golden.safetensors")
		}
		o, ro := conversion.DrafterOptions{Compute: "fp32", Context: 80, NoSync: true}, reference.DraftOptions{}
		var embed drafter.Embedder
		switch {
		case strings.HasPrefix(name, "gemma4-mtp/"):
			o.Target = filepath.Dir(dir)
			m, err := reference.Open(o.Target)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			embed = m.Embedder()
		case strings.HasSuffix(name, "eagle3-llama"):
			o.Taps, ro.Taps = []int{1, 3, 6}, []int{1, 3, 6}
		}
		out := filepath.Join(t.TempDir(), "drafter")
		if _, err := conversion.ConvertDrafter(t.Context(), dir, out, o); err != nil {
			t.Fatal(err)
		}
		c, err := chunking.ReadDrafter(out)
		if err != nil {
			t.Fatal(err)
		}
		d, err := engine.OpenDrafter(out, engine.Options{Mode: runtime.FP32})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		rounds, err := readDraftGolden(golden, c, d.TargetIDs())
		if err != nil {
			t.Fatal(err)
		}
		bundle, err := d.NewSession(embed)
		if err != nil {
			t.Fatal(err)
		}
		src, err := reference.OpenDraftSource(dir, ro)
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		plain, err := src.NewSession(embed)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			what string
			s    drafter.Session
		}{{"reference", plain}, {"convert, read, run", bundle}} {
			m := answers(t, x.s, rounds)
			fmt.Fprintf(&b, "%-28s %-20s %s\n", name, x.what, m)
			if m.equal != m.drafts || m.logit > 1e-3 || m.confidence > 1e-3 || m.drafts == 0 {
				t.Errorf("%s, %s: %s", name, x.what, m)
			}
		}
	}
	t.Logf("\n%s", b.String())
}
