package tokenizer

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// longMerges is a file with more merges than are looked up at once; last is
// appended to them.
func longMerges(last string) []byte {
	vocab, merges := []string{`"a":0`}, []string{}
	for i := 1; i <= 2*mergeBatch; i++ {
		vocab = append(vocab, fmt.Sprintf(`"%s":%d`, strings.Repeat("a", i+1), i))
		merges = append(merges, fmt.Sprintf(`["%s", "a"]`, strings.Repeat("a", i)))
	}
	return []byte(spec(map[string]string{"model": `{"type":"BPE","continuing_subword_prefix":null,"vocab":{` + strings.Join(vocab, ",") + `},"merges":[` +
		strings.Join(append(merges, last), ",") + `]}`}))
}

// What is wrong with the form of a merge is found by Parse, wherever it is;
// tokens that do not exist, behind the first batch, by Encode.
func TestLateMerges(t *testing.T) {
	for _, c := range []struct{ last, parse, encode string }{
		{`["a","aa"]`, "", ""},
		{`["a", "b"]`, "", `model.merges: byte `},
		{`["a", "b"]`, "", `merge 512: token "b" is not in the vocabulary`},
		{"[\"a\", \"\xff\"]", "", "not valid UTF-8"},
		{`"a b"`, "", `merge 512: token "b"`},
		{`["\u0061", "b"]`, "", `token "b"`},
		{`["a"]`, "merge 512 has 1 tokens", ""},
		{`"a b c"`, "one space", ""},
		{`["a", "b" "c"]`, "byte", ""},
		{`["a", "` + "\n" + `"]`, "control character", ""},
		{`7`, "merge 512 is neither", ""},
	} {
		tok, err := Parse("f", longMerges(c.last))
		if c.parse != "" {
			if err == nil || !strings.Contains(err.Error(), c.parse) {
				t.Errorf("%s: Parse gives %v, want %q", c.last, err, c.parse)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.last, err)
			continue
		}
		for range 2 { // the second call knows it too
			ids, err := tok.Encode("aaaa", EncodeOptions{})
			switch {
			case c.encode == "" && (err != nil || fmt.Sprint(ids) != "[1 1]" && fmt.Sprint(ids) != "[3]"):
				t.Errorf("%s: ids %v, %v", c.last, ids, err)
			case c.encode != "" && (err == nil || !strings.Contains(err.Error(), c.encode) || !strings.HasPrefix(err.Error(), "tokenizer: f: ")):
				t.Errorf("%s: Encode gives %v, want %q", c.last, err, c.encode)
			}
		}
	}
}

// The bytes given to Parse may change afterwards, and the first calls of
// Encode may come at the same time.
func TestMergesAreKept(t *testing.T) {
	data := longMerges(`["a","aa"]`)
	tok, err := Parse("f", data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if ids, err := tok.Encode(strings.Repeat("a", 7), EncodeOptions{}); err != nil || len(ids) == 0 || tok.Decode(ids, DecodeOptions{}) == "" {
				t.Errorf("ids %v, %v", ids, err)
			}
		})
	}
	wg.Wait()
}
