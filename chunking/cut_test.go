package chunking_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/chunking"
)

// drawSizes makes sizes of up to nine layers, few enough to try every cut.
func drawSizes(t *rapid.T) chunking.Sizes {
	s := chunking.Sizes{
		Layers: rapid.SliceOfN(rapid.Int64Range(1, 20), 1, 9).Draw(t, "layers"),
		Tied:   rapid.Bool().Draw(t, "tied"),
	}
	s.First = rapid.Int64Range(0, 40).Draw(t, "first")
	s.Last = rapid.Int64Range(0, 40).Draw(t, "last")
	if s.Tied && s.First > 0 {
		s.Last = s.First
	}
	return s
}

// cuts lists all ways to cut layers [from, to) into n chunks.
func cuts(from, to, n int) [][]chunking.Range {
	if n == 1 {
		return [][]chunking.Range{{{First: from, Last: to}}}
	}
	var out [][]chunking.Range
	for at := from + 1; at <= to-n+1; at++ {
		for _, rest := range cuts(at, to, n-1) {
			out = append(out, append([]chunking.Range{{First: from, Last: at}}, rest...))
		}
	}
	return out
}

// size is the size of a cut's largest chunk, counted by hand.
func size(s chunking.Sizes, cut []chunking.Range) int64 {
	var most int64
	for _, r := range cut {
		var n int64
		for i := r.First; i < r.Last; i++ {
			n += s.Layers[i]
		}
		if r.First == 0 {
			n += s.First
		}
		if r.Last == len(s.Layers) {
			switch {
			case r.First == 0 && s.Tied && s.First > 0: // one table serves both ends
			default:
				n += s.Last
			}
		}
		most = max(most, n)
	}
	return most
}

func covers(t *rapid.T, cut []chunking.Range, layers int) {
	next := 0
	for _, r := range cut {
		if r.First != next || r.Last <= r.First {
			t.Fatalf("%v does not cover the layers in order", cut)
		}
		next = r.Last
	}
	if next != layers {
		t.Fatalf("%v covers %d of %d layers", cut, next, layers)
	}
}

func TestCutIntoIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSizes(t)
		n := rapid.IntRange(1, len(s.Layers)).Draw(t, "chunks")
		cut, err := chunking.CutInto(n, s)
		if err != nil {
			t.Fatal(err)
		}
		covers(t, cut, len(s.Layers))
		if len(cut) != n {
			t.Fatalf("%d chunks, want %d", len(cut), n)
		}
		best := int64(1) << 62
		for _, c := range cuts(0, len(s.Layers), n) {
			best = min(best, size(s, c))
		}
		if got := slices.Max(s.Bytes(cut)); got != best || size(s, cut) != got {
			t.Fatalf("%v: largest chunk is %d (counted %d), the best cut has %d", cut, got, size(s, cut), best)
		}
	})
}

func TestCutUnderIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSizes(t)
		limit := rapid.Int64Range(1, 150).Draw(t, "limit")
		fewest := 0
		for n := len(s.Layers); n >= 1; n-- {
			for _, c := range cuts(0, len(s.Layers), n) {
				if size(s, c) <= limit {
					fewest = n
				}
			}
		}
		cut, err := chunking.CutUnder(chunking.Limits{Bytes: limit}, s)
		if fewest == 0 {
			if err == nil {
				t.Fatalf("%v fits a limit that no cut fits", cut)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		covers(t, cut, len(s.Layers))
		if len(cut) != fewest || size(s, cut) > limit {
			t.Fatalf("%v: %d chunks of at most %d bytes; %d chunks fit %d", cut, len(cut), size(s, cut), fewest, limit)
		}
	})
}

func TestCuts(t *testing.T) {
	equal := func(n int) []int64 { return slices.Repeat([]int64{10}, n) }
	for _, tt := range []struct {
		name string
		s    chunking.Sizes
		n    int
		want string
	}{
		{"one", chunking.Sizes{Layers: equal(4), First: 5, Last: 7}, 1, "0-4"},
		{"equal layers", chunking.Sizes{Layers: equal(5)}, 2, "0-3,3-5"},
		{"a heavy head", chunking.Sizes{Layers: equal(6), Last: 30}, 2, "0-5,5-6"},
		{"a heavy table", chunking.Sizes{Layers: equal(6), First: 30}, 2, "0-2,2-6"},
		{"one heavy layer", chunking.Sizes{Layers: []int64{1, 1, 90, 1, 1}}, 3, "0-2,2-3,3-5"},
		{"a layer each", chunking.Sizes{Layers: equal(3)}, 3, "0-1,1-2,2-3"},
	} {
		cut, err := chunking.CutInto(tt.n, tt.s)
		if err != nil {
			t.Fatal(err)
		}
		if got := format(cut); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	tied := chunking.Sizes{Layers: equal(2), First: 100, Last: 100, Tied: true}
	if got := tied.Bytes([]chunking.Range{{First: 0, Last: 2}}); got[0] != 120 {
		t.Errorf("a table used at both ends counts %d bytes, want 120", got[0])
	}
	if got := tied.Bytes([]chunking.Range{{First: 0, Last: 1}, {First: 1, Last: 2}}); got[0] != 110 || got[1] != 110 {
		t.Errorf("a table in two chunks counts %v, want 110 each", got)
	}
}

func format(cut []chunking.Range) string {
	var s []string
	for _, r := range cut {
		s = append(s, fmt.Sprintf("%d-%d", r.First, r.Last))
	}
	return strings.Join(s, ",")
}

func TestParseRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layers := rapid.IntRange(1, 40).Draw(t, "layers")
		cut, err := chunking.CutInto(rapid.IntRange(1, layers).Draw(t, "chunks"), chunking.Sizes{Layers: make([]int64, layers)})
		if err != nil {
			t.Fatal(err)
		}
		back, err := chunking.ParseRanges(strings.ReplaceAll(format(cut), ",", " , "), layers)
		if err != nil || !slices.Equal(back, cut) {
			t.Fatalf("%v reads back as %v (%v)", cut, back, err)
		}
	})
	for s, want := range map[string]string{
		"":             `layers "": want half-open ranges such as 0-8,8-16`,
		"0":            `layers "0": want half-open ranges`,
		"0-8,":         `layers "": want half-open ranges`,
		"a-8":          `layers "a-8": want half-open ranges`,
		"0..8":         `layers "0..8": want half-open ranges`,
		"1-8":          `expected one that starts at 0`,
		"0-4,5-8":      `layers "5-8": the ranges must cover 0-8 in order; expected one that starts at 4`,
		"0-4,3-8":      `expected one that starts at 4`,
		"0-4,4-4":      `layers "4-4"`,
		"0-4,4-9":      `layers "4-9": the ranges must cover 0-8`,
		"0-4":          `layers "0-4" cover 4 of 8 layers`,
		"4-8,0-4":      `expected one that starts at 0`,
		"0-8,8-16":     `layers "8-16"`,
		"-1-8":         `want half-open ranges`,
		"0-9999999999": `layers "0-9999999999"`,
	} {
		if _, err := chunking.ParseRanges(s, 8); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "chunking: ") {
			t.Errorf("%q: got %v, want %q", s, err, want)
		}
	}
}

func TestCutErrors(t *testing.T) {
	s := chunking.Sizes{Layers: []int64{5, 50, 5}, First: 10, Last: 1}
	for _, n := range []int{-1, 0, 4} {
		if _, err := chunking.CutInto(n, s); err == nil || !strings.Contains(err.Error(), "the model has 3 layers") {
			t.Errorf("%d chunks: %v", n, err)
		}
	}
	if _, err := chunking.CutUnder(chunking.Limits{Bytes: 49}, s); err == nil || !strings.Contains(err.Error(), "the largest single layer, with what must go along, takes 50") {
		t.Errorf("limit 49: %v", err)
	}
	if _, err := chunking.CutUnder(chunking.Limits{Bytes: 49}, chunking.Sizes{}); err == nil {
		t.Error("no layers: no error")
	}
}

func TestParseFunctions(t *testing.T) {
	fs, err := chunking.ParseFunctions(" decode:1, prefill:64 ,prefill:128,verify:4,verify:1")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range fs {
		names = append(names, fmt.Sprintf("%s/%d", f.Name(), f.T))
	}
	if got := strings.Join(names, " "); got != "decode/1 prefill_64/64 prefill_128/128 verify_4/4 verify_1/1" {
		t.Error(got)
	}
	for s, want := range map[string]string{
		"":                            `function "" is not known`,
		"prefill:64":                  `functions "prefill:64" lack decode`,
		"decode,decode":               `function "decode" is listed twice`,
		"decode,prefill:8,prefill:08": `function "prefill:08" is listed twice`,
		"decode:2":                    `decode takes one token`,
		"decode,prefill":              `want prefill:N with N tokens`,
		"decode,prefill:0":            `want prefill:N`,
		"decode,prefill:x":            `want prefill:N`,
		"decode,verify:0":             `want verify:N`,
		"decode,draft:4":              `function "draft:4" is not known (want decode, prefill:N, verify:K)`,
	} {
		if _, err := chunking.ParseFunctions(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", s, err, want)
		}
	}
}

func TestParseHead(t *testing.T) {
	for s, want := range map[string]chunking.Head{
		"token":                {Token: true},
		"logits":               {Logits: true},
		"token, logits":        {Token: true, Logits: true},
		"logits,hidden":        {Logits: true, Hidden: "pre"},
		"token,logits,normed":  {Token: true, Logits: true, Hidden: "post"},
		"token,topk:4":         {Token: true, TopK: 4},
		"normed,token,logits ": {Token: true, Logits: true, Hidden: "post"},
	} {
		if got, err := chunking.ParseHead(s); err != nil || got != want {
			t.Errorf("%q: %+v (%v), want %+v", s, got, err, want)
		}
	}
	for s, want := range map[string]string{
		"":              `head "" is not known`,
		"topk":          `head "topk": want topk:K with K tokens`,
		"token,top":     `head "top" is not known (want token, logits, hidden, normed or topk:K)`,
		"token,topk:0":  `head "topk:0": want topk:K`,
		"token:3":       `head "token:3" takes no number`,
		"topk:4":        `head "topk:4" yields no token`,
		"hidden":        `head "hidden" yields no token (add token or logits)`,
		"hidden,normed": `hidden and normed`,
		"token,token":   `listed twice`,
	} {
		if _, err := chunking.ParseHead(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", s, err, want)
		}
	}
}
