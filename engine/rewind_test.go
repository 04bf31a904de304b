package engine_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRewind feeds drafts, takes all or some back and goes on; logits must be
// those of a session that never saw them, past the window of 24 as well.
func TestRewind(t *testing.T) {
	for name, o := range forms {
		t.Run(name, func(t *testing.T) {
			e := open(t, "gemma3", o)
			plain, spec := e.NewSession(), e.NewSession()
			if name == "shift" {
				if _, err := spec.Mark(3); err == nil {
					t.Error("a shifting cache can take tokens back")
				}
				return
			}
			text := ids(60)
			for i := 0; i < len(text); {
				m, err := spec.Mark(5)
				if err != nil {
					t.Fatal(err)
				}
				keep := min(i%3, len(text)-i)
				for n := range 3 + i%3 {
					id := int32(499 - n)
					if n < keep {
						id = text[i+n]
					}
					if _, err := spec.Decode(id); err != nil {
						t.Fatal(err)
					}
				}
				if err := spec.Rewind(m, keep); err != nil {
					t.Fatal(err)
				}
				i += keep
				if spec.Pos() != i {
					t.Fatalf("at position %d, want %d", spec.Pos(), i)
				}
				if i == len(text) {
					break
				}
				got, err := spec.Decode(text[i])
				if err != nil {
					t.Fatal(err)
				}
				logits := slices.Clone(got.Logits)
				for plain.Pos() < i {
					if _, err := plain.Decode(text[plain.Pos()]); err != nil {
						t.Fatal(err)
					}
				}
				want, err := plain.Decode(text[i])
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want.Logits, logits); diff != "" {
					t.Fatalf("position %d differs after tokens were taken back:\n%.400s", i, diff)
				}
				i++
			}
			m, err := spec.Mark(1)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := spec.Decode(1); err != nil {
					t.Fatal(err)
				}
			}
			if err := spec.Rewind(m, 0); err == nil {
				t.Error("two tokens taken back to a mark for one")
			}
			if err := plain.Rewind(m, 0); err == nil {
				t.Error("another session's mark was taken")
			}
		})
	}
}
