package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// spec writes a minimal file, with some of its sections replaced.
func spec(replace map[string]string) string {
	sections := map[string]string{
		"version": `"1.0"`, "truncation": "null", "padding": "null", "added_tokens": "[]",
		"normalizer": "null", "pre_tokenizer": "null", "post_processor": "null", "decoder": "null",
		"model": `{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<u>":3},"merges":[["a","b"]]}`,
	}
	for k, v := range replace {
		sections[k] = v
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, k := range []string{"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
		"post_processor", "decoder", "model"} {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", k, sections[k])
	}
	b.WriteByte('}')
	return b.String()
}

func TestParseErrors(t *testing.T) {
	token := func(fields string) string {
		return `[{"id":4,"content":"<x>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true` +
			fields + `}]`
	}
	bpe := func(rest string) string { return `{"type":"BPE",` + rest + `}` }
	const vocab, merges = `"vocab":{"a":0,"b":1,"ab":2}`, `"merges":["a b"]`
	for _, c := range []struct{ section, value, want string }{
		// Components and settings that are not known.
		{"model", `{"type":"Unigram","vocab":[["a",0.5]],"unk_id":0}`, "only BPE"},
		{"model", `{"type":"WordPiece","vocab":{"a":0},"unk_token":"a"}`, `model type "WordPiece"`},
		{"model", bpe(vocab + `,` + merges + `,"novelty":1`), `"novelty"`},
		{"model", bpe(vocab + `,` + merges + `,"dropout":0.1`), "dropout"},
		{"normalizer", `{"type":"Precompiled","precompiled_charsmap":""}`, `normalizer "Precompiled"`},
		{"normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Nmt"}]}`, `normalizer.normalizers[1]: normalizer "Nmt"`},
		{"normalizer", `{"type":"Replace","pattern":{"Regex":"a+"},"content":"b"}`, `regular expression "a+"`},
		{"normalizer", `{"type":"NFC","form":"D"}`, `unknown field "form"`},
		{"pre_tokenizer", `{"type":"UnicodeScripts"}`, `pre-tokenizer "UnicodeScripts"`},
		{"pre_tokenizer", `{"type":"Split","pattern":{"Regex":"\\d"},"behavior":"Isolated","invert":false}`, "known patterns"},
		{"pre_tokenizer", `{"type":"Split","pattern":{"String":"a"},"behavior":"Merged","invert":false}`, `"Merged"`},
		{"pre_tokenizer", `{"type":"Split","pattern":{"String":""},"behavior":"Isolated","invert":false}`, "empty pattern"},
		{"pre_tokenizer", `{"type":"Digits"}`, `no field "individual_digits"`},
		{"pre_tokenizer", `{"type":"Metaspace","replacement":"__","prepend_scheme":"always"}`, "one character"},
		{"pre_tokenizer", `{"type":"Metaspace","replacement":"_","prepend_scheme":"first","add_prefix_space":false}`, "contradicts"},
		{"pre_tokenizer", `{"pretokenizers":[]}`, `pre-tokenizer ""`},
		{"pre_tokenizer", `[]`, "pre_tokenizer: is an array"},
		{"post_processor", `{"type":"BertProcessing","sep":["a",0],"cls":["b",1]}`, `"BertProcessing"`},
		{"decoder", `{"type":"WordPiece","prefix":"##","cleanup":true}`, `decoder "WordPiece"`},
		{"decoder", `{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"CTC"}]}`, `decoder.decoders[1]: decoder "CTC"`},
		{"version", `"2.0"`, `"2.0"`},
		{"truncation", `{"max_length":512}`, `"strategy"`},
		{"padding", `{"strategy":"Longest","direction":"Right","pad_id":0,"pad_type_id":0,"pad_token":"a"}`, "padding strategy"},
		// Tables that contradict themselves.
		{"model", bpe(`"vocab":{"a":0,"a":1},"merges":[]`), `duplicate token "a"`},
		{"model", bpe(`"vocab":{"a":0,"b":0},"merges":[]`), `both have id 0`},
		{"model", bpe(`"vocab":{"a":-1},"merges":[]`), "non-negative"},
		{"model", bpe(`"vocab":{"a":1.5},"merges":[]`), "integer"},
		{"model", bpe(`"vocab":{"a":2000000000},"merges":[]`), "far beyond"},
		{"model", bpe(`"vocab":{"a":99999999999},"merges":[]`), "2^31"},
		{"model", bpe(vocab + `,"merges":["a c"]`), `merge 0: token "c"`},
		{"model", bpe(vocab + `,"merges":["a b","b a"]`), `merge 1: token "ba"`},
		{"model", bpe(vocab + `,"merges":["a  b"]`), "one space"},
		{"model", bpe(vocab + `,"merges":[["a","b","c"]]`), "3 tokens"},
		{"model", bpe(vocab + `,"merges":[7]`), "neither a string nor a pair"},
		{"model", bpe(vocab), "both vocab and merges"},
		{"model", bpe(vocab + `,` + merges + `,` + merges), `duplicate field "merges"`},
		{"added_tokens", strings.Replace(token(""), `"id":4`, `"id":7`, 1), "says id 7, but loads as id 4"},
		{"added_tokens", strings.Replace(token(""), "<x>", "", 1), "content is empty"},
		{"added_tokens", strings.Replace(token(""), `"lstrip":false,`, "", 1), `no field "lstrip"`},
		{"added_tokens", token(`,"weight":1`), `unknown field "weight"`},
		{"added_tokens", "[" + token("")[1:len(token(""))-1] + "," + token("")[1:], `duplicate added token "<x>"`},
		{"post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}],"pair":[],"special_tokens":{}}`,
			`"x" is not among special_tokens`},
		{"post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}],"pair":[],"special_tokens":{}}`,
			`Sequence "B"`},
		{"post_processor", `{"type":"TemplateProcessing","single":[],"pair":[],"special_tokens":{"x":{"id":"x","ids":[9],"tokens":["x"]}}}`,
			"id 9 is no token"},
		// Not JSON.
		{"model", bpe(vocab+`,"merges":[]`) + "x", "byte"},
		{"model", bpe(`"vocab":{"\ud800":0},"merges":[]`), "lone surrogate"},
		{"model", bpe("\"vocab\":{\"\xff\":0},\"merges\":[]"), "UTF-8"},
		{"model", bpe("\"vocab\":{\"\n\":0},\"merges\":[]"), "control character"},
		{"model", bpe(`"vocab":{"\x":0},"merges":[]`), "escape"},
		{"model", bpe(`"vocab":{"a":01},"merges":[]`), "malformed number"},
		{"model", bpe(`"vocab":{"a":0,},"merges":[]`), "byte"},
		{"normalizer", strings.Repeat("[", 100) + strings.Repeat("]", 100), "deeper than 64"},
		{"decoder", `{"type":"Fuse","type":"Fuse"}`, `duplicate key "type"`},
	} {
		_, err := Parse("some/tokenizer.json", []byte(spec(map[string]string{c.section: c.value})))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "tokenizer: some/tokenizer.json: ") {
			t.Errorf("%s %s:\nerror %v\n does not say %q", c.section, c.value, err, c.want)
		}
	}
}

func TestParseWhole(t *testing.T) {
	whole := spec(nil)
	if _, err := Parse("x", []byte(whole)); err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if _, err := Parse("x", []byte(whole[:n])); err == nil {
			t.Errorf("the first %d bytes load", n)
		}
	}
	for _, c := range []struct{ data, want string }{
		{whole + "{}", "after the end"},
		{`{"model":1}`, "byte"},
		{`{}`, `no field "model"`},
		{`{"models":{}}`, `unknown field "models"`},
		{`[]`, "byte"},
	} {
		if _, err := Parse("x", []byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40s: error %v does not say %q", c.data, err, c.want)
		}
	}
}

// TestModelOrder: merges may come before the vocabulary, in either spelling.
func TestModelOrder(t *testing.T) {
	for _, model := range []string{
		`{"merges":["a b","ab a"],"vocab":{"a":0,"b":1,"ab":2,"aba":3},"type":"BPE"}`,
		`{"vocab":{"a":0,"b":1,"ab":2,"aba":3},"merges":[["a","b"],["ab","a"]]}`,
		`{"vocab":{"a":0,"b":1,"ab":2,"aba":3},"merges":["#version: 0.2","a b",["ab","a"]],"dropout":0.0}`,
		`{"vocab":{"\u0061":0,"b":1,"ab":2,"aba":3},"merges":[["a","\u0062"],["ab","a"]],"unk_token":null}`,
	} {
		tok, err := Parse("x", []byte(spec(map[string]string{"model": model})))
		if err != nil {
			t.Fatal(err)
		}
		got, err := tok.Encode("abaabb", EncodeOptions{})
		if want := []int32{3, 2, 1}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", model, got, err, want)
		}
	}
}

// TestRepeatedMerge: of two ranks for a pair the last one counts.
func TestRepeatedMerge(t *testing.T) {
	tok, err := Parse("x", []byte(spec(map[string]string{
		"model": `{"vocab":{"a":0,"b":1,"c":2,"ab":3,"bc":4},"merges":["a b","b c","a b"]}`,
	})))
	if err != nil {
		t.Fatal(err)
	}
	got, err := tok.Encode("abc", EncodeOptions{})
	if want := []int32{0, 4}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestSettings(t *testing.T) {
	tok, err := Parse("x", []byte(spec(map[string]string{
		"truncation": `{"direction":"Left","max_length":3,"strategy":"LongestFirst","stride":0}`,
		"padding":    `{"strategy":{"Fixed":8},"direction":"Right","pad_to_multiple_of":null,"pad_id":1,"pad_type_id":0,"pad_token":"b"}`,
	})))
	if err != nil {
		t.Fatal(err)
	}
	if tr := tok.Truncation(); tr == nil || *tr != (Truncation{MaxLength: 3, Direction: "Left"}) {
		t.Errorf("truncation %+v", tr)
	}
	if p := tok.Padding(); p == nil || *p != (Padding{ID: 1, Token: "b", Length: 8}) {
		t.Errorf("padding %+v", p)
	}
	// Neither cuts nor fills.
	for _, text := range []string{"a", "aaaaaa"} {
		if ids, err := tok.Encode(text, EncodeOptions{AddSpecial: true}); err != nil || len(ids) != len(text) {
			t.Errorf("%q gives %v, %v", text, ids, err)
		}
	}
}

// TestUnknownCharacter: without an unknown token characters go, with a
// missing one they are an error.
func TestUnknownCharacter(t *testing.T) {
	model := func(unk string) string {
		return spec(map[string]string{"model": `{"type":"BPE",` + unk +
			`,"vocab":{"a":0,"b":1,"ab":2,"<u>":3},"merges":[["a","b"]]}`})
	}
	for _, c := range []struct {
		unk  string
		want []int32
	}{
		{`"unk_token":null`, []int32{2, 0}},
		{`"unk_token":"<u>"`, []int32{2, 3, 3, 0}},
		{`"unk_token":"<u>","fuse_unk":true`, []int32{2, 3, 0}},
		{`"unk_token":"<none>"`, nil},
	} {
		tok, err := Parse("x", []byte(model(c.unk)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := tok.Encode("ab?!a", EncodeOptions{})
		if !slices.Equal(got, c.want) || (err != nil) != (c.want == nil) {
			t.Errorf("%s: got %v, %v, want %v", c.unk, got, err, c.want)
		}
	}
}

// FuzzParse: whatever the bytes, Parse returns, and what it accepts works.
func FuzzParse(f *testing.F) {
	// Seeds are small: minimizing inputs of the fixtures' size takes forever.
	f.Add([]byte(spec(nil)))
	for _, parts := range []map[string]string{
		{
			"normalizer":     `{"type":"Sequence","normalizers":[{"type":"NFKD"},{"type":"Strip","strip_left":true,"strip_right":true}]}`,
			"pre_tokenizer":  `{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithNext","invert":true}`,
			"post_processor": `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}}`,
			"decoder":        `{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":1}]}`,
		}, {
			"added_tokens": `[{"id":4,"content":"<x>","single_word":true,"lstrip":true,"rstrip":true,"normalized":true,"special":true}]`,
			"normalizer":   `{"type":"Lowercase"}`,
			"pre_tokenizer": `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},` +
				`{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true}]}`,
			"decoder": `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`,
			"model": `{"unk_token":"b","byte_fallback":true,"continuing_subword_prefix":"a","end_of_word_suffix":"b",` +
				`"fuse_unk":true,"ignore_merges":true,"vocab":{"a":0,"b":1,"ab":2,"<0x41>":3},"merges":["a ab"]}`,
		}, {
			"pre_tokenizer": `{"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":true}`,
			"decoder":       `{"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":true}`,
			"truncation":    `{"direction":"Left","max_length":3,"strategy":"LongestFirst","stride":0}`,
		},
	} {
		f.Add([]byte(spec(parts)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse("fuzz", data)
		if err != nil {
			if tok != nil {
				t.Error("a tokenizer and an error")
			}
			return
		}
		for _, text := range []string{"", "ab <x>  é\n\n12", "  a\u0301\u0323\U0001F600b's "} {
			ids, err := tok.Encode(text, EncodeOptions{AddSpecial: true})
			if err != nil {
				continue
			}
			for _, id := range ids {
				if _, ok := tok.Token(id); !ok {
					t.Errorf("Encode(%q) yields id %d, which is no token", text, id)
				}
			}
			if stream(tok, ids, false) != tok.Decode(ids, DecodeOptions{}) {
				t.Errorf("stream and Decode differ on %v", ids)
			}
		}
	})
}
