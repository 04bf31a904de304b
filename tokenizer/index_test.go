package tokenizer

import (
	"testing"

	"pgregory.net/rapid"
)

// The index finds what a map finds, one token at a time and many together,
// whatever order and size it grew to.
func TestTokenIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringN(0, 6, -1), 0, 200).Draw(t, "tokens")
		x := newTokenIndex(rapid.IntRange(0, 20).Draw(t, "expected"))
		var tokens []string
		want := map[string]int32{}
		for _, w := range words {
			tokens = append(tokens, w)
			id := int32(len(tokens) - 1)
			_, known := want[w]
			if x.put(w, id, tokens) == known {
				t.Fatalf("put %q: known is %v", w, known)
			}
			if known {
				tokens = tokens[:id]
			} else {
				want[w] = id
			}
		}
		if x.count != len(want) {
			t.Fatalf("%d tokens, want %d", x.count, len(want))
		}
		var all []lookup
		for _, w := range append(words, rapid.SliceOfN(rapid.StringN(0, 6, -1), 0, 50).Draw(t, "others")...) {
			all = append(all, lookup{token: w})
		}
		x.getAll(all, tokens)
		for _, w := range all {
			id, known := want[w.token]
			if !known {
				id = -1
			}
			if got, ok := x.get(w.token, tokens); got != id || ok != known || w.id != id {
				t.Fatalf("%q: id %d, %d together, want %d", w.token, got, w.id, id)
			}
		}
	})
}
