package sensitivity

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/calibration/mix"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/tokenizer"
)

func TestSequences(t *testing.T) {
	dir, err := fixtures.Dir("tiny-gemma3-target")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := ParseTexts(mix.JSONL())
	if err != nil {
		t.Fatal(err)
	}
	seq, c, warnings, err := Sequences(tok, all, TextOptions{18, 32, 5})
	if err != nil || len(seq) != 18 || len(warnings) != 0 {
		t.Fatalf("%d sequences, %v, %v", len(seq), warnings, err)
	}
	for d, n := range c.Domains {
		if n != 2 {
			t.Errorf("%s has %d sequences of 18, of nine domains", d, n)
		}
	}
	for _, s := range seq {
		if len(s) != 32 {
			t.Errorf("a sequence of %d tokens", len(s))
		}
	}
	again, c2, _, err := Sequences(tok, all, TextOptions{18, 32, 5})
	if err != nil || c2.SHA256 != c.SHA256 || !slices.EqualFunc(seq, again, slices.Equal[[]int32]) {
		t.Error("another draw from the same seed")
	}
	if _, c3, _, _ := Sequences(tok, all, TextOptions{18, 32, 6}); c3.SHA256 == c.SHA256 {
		t.Error("the same draw from another seed")
	}
	one, err := ParseTexts([]byte(strings.Repeat("A text of one domain. ", 40)))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, warnings, err = Sequences(tok, one, TextOptions{2, 16, 1}); err != nil || len(warnings) != 1 {
		t.Errorf("%v, %v: want a warning", warnings, err)
	}
	if _, _, _, err = Sequences(tok, one, TextOptions{2000, 16, 1}); err == nil || !strings.Contains(err.Error(), "want 2000") {
		t.Errorf("too little text: %v", err)
	}
}

func TestParseTexts(t *testing.T) {
	for in, want := range map[string]string{
		"  \n": "is empty", "a\xff": "not UTF-8", "{\"domain\":\"a\"}": "line 1 has no domain or no text",
		"{\"domain\":\"a\",\"text\":\"b\"}\n{\"text\":\"c\"}": "line 2 has no domain", "{\"domain\":\"a\",\"txt\":\"b\"}": "line 1: json: unknown field",
	} {
		if _, err := ParseTexts([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
	got, err := ParseTexts([]byte("{\"domain\":\"a\",\"text\":\"b\"}\n\n{\"domain\":\"c\",\"text\":\"d\"}\n"))
	if fmt.Sprint(got) != "[{a b} {c d}]" || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}
