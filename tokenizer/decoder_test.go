package tokenizer

import (
	"testing"

	"pgregory.net/rapid"
)

func TestLossy(t *testing.T) {
	for _, c := range []struct{ in, want, rest string }{
		{"a\u00e9\U0001F600", "a\u00e9\U0001F600", ""},
		{"a\x80b", "a\ufffdb", ""},
		{"\xc0\xaf", "\ufffd\ufffd", ""},
		{"\xe2\x82x", "\ufffdx", ""},
		{"\xf0\x9f\x98", "\ufffd", "\xf0\x9f\x98"},
		{"\xed\xa0\x80", "\ufffd\ufffd\ufffd", ""}, // a surrogate
		{"\xf4\x90\x80", "\ufffd\ufffd\ufffd", ""}, // beyond U+10FFFF
		{"\xf0\x80", "\ufffd\ufffd", ""},
		{"x\xf0\x90\xf0\x90\x80\x80", "x\ufffd\U00010000", ""},
		{"\ufffd", "\ufffd", ""},
	} {
		if got, _ := lossy([]byte(c.in), true); got != c.want {
			t.Errorf("%q: %+q, want %+q", c.in, got, c.want)
		}
		head, rest := lossy([]byte(c.in), false)
		if string(rest) != c.rest {
			t.Errorf("%q leaves %q, want %q", c.in, rest, c.rest)
		}
		if tail, _ := lossy(rest, true); head+tail != c.want {
			t.Errorf("%q in two steps: %+q", c.in, head+tail)
		}
	}
}

// TestLossySplits: where the bytes are cut does not matter.
func TestLossySplits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.SampledFrom([]byte("a\x80\xbf\xc3\xe0\xa0\xed\x9f\xf0\x90\xf4\x8f\xff"))).Draw(t, "bytes")
		want, _ := lossy(b, true)
		got, pending := "", []byte(nil)
		for _, c := range b {
			text, rest := lossy(append(pending, c), false)
			got, pending = got+text, append([]byte(nil), rest...)
		}
		tail, _ := lossy(pending, true)
		if got+tail != want {
			t.Errorf("% x: %+q byte by byte, %+q at once", b, got+tail, want)
		}
	})
}

func TestByteToken(t *testing.T) {
	for token, want := range map[string]int{
		"<0x41>": 0x41, "<0xfF>": 0xff, "<0x+5>": 5, "<0x4g>": -1, "<0x4>": -1, "0x41": -1, "<0x411>": -1, "<0xé>": -1, "<0x5+>": -1,
	} {
		b, ok := byteToken(token)
		if got := int(b); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %#x %v, want %#x", token, b, ok, want)
		}
	}
}

func TestByteAlphabet(t *testing.T) {
	seen := map[rune]bool{}
	for b, r := range byteRune {
		if seen[r] || int(runeByte[r]) != b {
			t.Errorf("byte %#x: %q, back %d", b, r, runeByte[r])
		}
		seen[r] = true
	}
	if got := string(appendByteLevel(nil, " é\n")); got != "ĠÃ©Ċ" {
		t.Errorf("%q", got)
	}
	if got := string(appendFromByteLevel([]byte("x"), "Ġ世")); got != "xĠ世" {
		t.Errorf("a token outside the alphabet: %q", got)
	}
}
