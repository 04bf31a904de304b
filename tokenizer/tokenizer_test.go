package tokenizer

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// fixtures are the directories of testdata; interop/tokenizer_fixtures.py
// describes and records them.
var fixtures = []string{"tiny", "llama-like", "qwen-like", "gemma-like", "llama2-like", "metaspace", "affixes"}

func load(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := Load(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// testCase is a line of cases.jsonl: an encoding or a decoding.
type testCase struct {
	Text    *string `json:"t"`
	IDs     []int32 `json:"ids"`
	Special []int32 `json:"special"`
	Decoded string  `json:"text"`
	Skipped string  `json:"skip"`
}

func readCases(t *testing.T, name string) (out []testCase) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name, "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var c testCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	if lines.Err() != nil || len(out) == 0 {
		t.Fatalf("%s: %d cases, %v", name, len(out), lines.Err())
	}
	return out
}

func TestRecordedCases(t *testing.T) {
	for _, name := range fixtures {
		t.Run(name, func(t *testing.T) {
			tok := load(t, name)
			for i, c := range readCases(t, name) {
				if c.Text == nil {
					for _, skip := range []bool{false, true} {
						want := c.Decoded
						if skip {
							want = c.Skipped
						}
						if got := tok.Decode(c.IDs, DecodeOptions{SkipSpecial: skip}); got != want {
							t.Errorf("line %d: Decode(%v, skip %v)\n got %+q\nwant %+q", i+1, c.IDs, skip, got, want)
						}
						if got := stream(tok, c.IDs, skip); got != want {
							t.Errorf("line %d: stream of %v, skip %v\n got %+q\nwant %+q", i+1, c.IDs, skip, got, want)
						}
					}
					continue
				}
				for _, add := range []bool{false, true} {
					want := c.IDs
					if add {
						want = c.Special
					}
					got, err := tok.Encode(*c.Text, EncodeOptions{AddSpecial: add})
					if err != nil || !slices.Equal(got, want) {
						t.Errorf("line %d: Encode(%+q, special %v) error %v\n got %v\nwant %v", i+1, *c.Text, add, err, got, want)
					}
				}
			}
		})
	}
}

func stream(tok *Tokenizer, ids []int32, skip bool) string {
	var b strings.Builder
	s := tok.NewStream(DecodeOptions{SkipSpecial: skip})
	for _, id := range ids {
		b.WriteString(s.Push(id))
	}
	b.WriteString(s.Flush())
	return b.String()
}

// TestStreamParts checks what a stream promises beyond its concatenation:
// parts are whole characters, come as early as they can, and byte tokens
// come when their run ends.
func TestStreamParts(t *testing.T) {
	for _, c := range []struct {
		fixture string
		tokens  []string
		want    []string // of each Push, then of Flush
	}{
		// "é" and "世" in single bytes, then a truncated one.
		{"tiny", []string{"a", "Ã", "©", "b", "ä", "¸", "ĸ", "ä", "¸"},
			[]string{"a", "", "é", "b", "", "", "世", "", "", "\ufffd"}},
		{"gemma-like", []string{"▁the", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "a", "<0xC3>", "b", "<0x41>"},
			[]string{" the", "", "", "", "", "😀a", "", "\ufffdb", "", "A"}},
		// The leading space goes, later ones stay.
		{"llama2-like", []string{"▁the", "▁", "a", "▁the"}, []string{"the", " ", "a", " the", ""}},
		{"affixes", []string{"the</w>", "of</w>"}, []string{"", "the ", "of"}},
	} {
		tok := load(t, c.fixture)
		s := tok.NewStream(DecodeOptions{})
		for round := range 2 { // Flush starts over
			var got []string
			for _, token := range c.tokens {
				id, ok := tok.TokenID(token)
				if !ok {
					t.Fatalf("%s has no token %q", c.fixture, token)
				}
				got = append(got, s.Push(id))
			}
			if got = append(got, s.Flush()); !slices.Equal(got, c.want) {
				t.Errorf("%s round %d: got %q, want %q", c.fixture, round, got, c.want)
			}
		}
	}
}

func TestStreamEqualsDecode(t *testing.T) {
	for _, name := range fixtures {
		tok := load(t, name)
		rapid.Check(t, func(t *rapid.T) {
			ids := rapid.SliceOf(rapid.Int32Range(-1, int32(tok.VocabSize()))).Draw(t, "ids")
			skip := rapid.Bool().Draw(t, "skip")
			if got, want := stream(tok, ids, skip), tok.Decode(ids, DecodeOptions{SkipSpecial: skip}); got != want {
				t.Errorf("%s: stream %+q, Decode %+q", name, got, want)
			}
		})
	}
}

// TestRoundTrip: a byte-level vocabulary without normalizer can spell
// anything.
func TestRoundTrip(t *testing.T) {
	for _, name := range []string{"tiny", "llama-like"} {
		tok := load(t, name)
		rapid.Check(t, func(t *rapid.T) {
			text := rapid.String().Draw(t, "text")
			ids, err := tok.Encode(text, EncodeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := tok.Decode(ids, DecodeOptions{}); got != text {
				t.Errorf("%s: %+q came back as %+q", name, text, got)
			}
		})
	}
}

func TestTokens(t *testing.T) {
	tok := load(t, "gemma-like")
	if id, ok := tok.TokenID("<bos>"); !ok || id != 2 || !tok.IsSpecial(id) {
		t.Errorf("<bos>: id %d, %v, special %v", id, ok, tok.IsSpecial(id))
	}
	div, ok := tok.TokenID("<div>")
	if !ok || tok.IsSpecial(div) {
		t.Errorf("<div>: %v, special %v", ok, tok.IsSpecial(div))
	}
	if s, ok := tok.Token(div); !ok || s != "<div>" {
		t.Errorf("Token(%d) = %q, %v", div, s, ok)
	}
	n := int32(tok.VocabSize())
	if _, ok := tok.Token(n - 1); !ok {
		t.Errorf("VocabSize is %d, but there is no token %d", n, n-1)
	}
	for _, id := range []int32{-1, n} {
		if s, ok := tok.Token(id); ok {
			t.Errorf("Token(%d) = %q", id, s)
		}
	}
	if _, ok := tok.TokenID("no such token"); ok {
		t.Error("TokenID finds what is not there")
	}
}

// TestIgnoreMerges: the fixture has a token that no merge reaches.
func TestIgnoreMerges(t *testing.T) {
	tok := load(t, "llama-like")
	want, ok := tok.TokenID("Ġtransformer")
	got, err := tok.Encode(" transformer", EncodeOptions{})
	if !ok || err != nil || !slices.Equal(got, []int32{want}) {
		t.Errorf("got %v, %v, want %d", got, err, want)
	}
}

func TestEncodeRefusesInvalidUTF8(t *testing.T) {
	_, err := load(t, "tiny").Encode("ab\xffc", EncodeOptions{})
	if err == nil || !strings.Contains(err.Error(), "byte 2") {
		t.Errorf("error %v does not point at byte 2", err)
	}
}

func TestLoadErrors(t *testing.T) {
	if _, err := Load(filepath.Join("testdata", "absent")); err == nil {
		t.Error("loading what is not there succeeds")
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("loading an empty directory: %v", err)
	}
}
