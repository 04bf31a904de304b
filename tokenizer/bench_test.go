package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// BenchmarkLoad and BenchmarkEncode measure the files that
// SMELT_TOKENIZER_FILES names; see TestOracleCorpus.
func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"gemma3", "llama3_1", "qwen3"} {
		b.Run(name, func(b *testing.B) {
			path := benchFile(b, name)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Load(path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over 12 lazy dogs; straße, naïve, 你好世界.\n", 2000)
	for _, name := range []string{"gemma3", "llama3_1", "qwen3", "synth"} {
		b.Run(name, func(b *testing.B) {
			t, err := Load(benchFile(b, name))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.Encode(text, EncodeOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchFile(b *testing.B, name string) string {
	dir := os.Getenv("SMELT_TOKENIZER_FILES")
	if dir == "" {
		b.Skip("set SMELT_TOKENIZER_FILES to run")
	}
	return filepath.Join(dir, name)
}

// TestLongWord guards against a merge loop that is quadratic in the length of
// a word: such a loop would take minutes here.
func TestLongWord(t *testing.T) {
	tok, err := Load("testdata/gemma-like")
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"a", "ab", "the ", "é", "\U0001F600", " "} {
		text := strings.Repeat(unit, 400_000/len(unit))
		start := time.Now()
		ids, err := tok.Encode(text, EncodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%d bytes of %q took %v", len(text), unit, took)
		}
		if got := tok.Decode(ids, DecodeOptions{}); got != text {
			t.Errorf("%d times %q does not survive a round trip", len(text)/len(unit), unit)
		}
	}
}
