package tokenizer

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// TestClassesAgainstGo: the tables are newer than Go's, so they agree on
// every code point that Go's Unicode 15 assigns.
func TestClassesAgainstGo(t *testing.T) {
	if unicode.Version != "15.0.0" {
		t.Skipf("compares with Unicode 15.0.0, this Go has %s", unicode.Version)
	}
	bad := 0
	for r := rune(0); r <= unicode.MaxRune && bad < 20; r++ {
		if !utf8.ValidRune(r) || !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co) {
			continue
		}
		class := classOf(r)
		word := unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
		for _, c := range []struct {
			bit  uint8
			want bool
		}{
			{classLetter, unicode.IsLetter(r)}, {classNumber, unicode.IsNumber(r)}, {classMark, unicode.IsMark(r)},
			{classSpace, unicode.IsSpace(r)}, {classNumeric, unicode.IsNumber(r)}, {classWord, word},
		} {
			if (class&c.bit != 0) != c.want {
				bad++
				t.Errorf("%U: class %#x is %v, Go says %v", r, c.bit, class&c.bit != 0, c.want)
			}
		}
	}
}

// TestPlainForms: the textbook algorithm gives what x/text gives, wherever
// x/text does not insert joiners.
func TestPlainForms(t *testing.T) {
	texts := []string{
		"e\u0301\u0323", "\u1EBF\u0323", "a\u0323\u0302\u0301", "\u1100\u1161\u11A8", "\uAC00\u11A8", "\u1100\u1161\u1161",
		"\u09C7\u09BE", "ﬁ①ｱﾞ", "\u0344", "\u2126\u212B", "\u0958", "\u0301a", "a\u0334\u0301", "\u1D15E", "\u0F73\u0F71",
	}
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		if utf8.ValidRune(r) && classOf(r)&classRecent == 0 && !norm.NFKD.IsNormalString(string(r)) {
			texts = append(texts, string(r), "a"+string(r)+"\u0301\u0345")
		}
	}
	for name, form := range forms {
		for _, text := range texts {
			if got, want := form.plain(text), form.form.String(text); got != want {
				t.Fatalf("%s(%+q) = %+q, want %+q", name, text, got, want)
			}
		}
	}
}

// TestForms pins the two ways in which the forms differ from x/text's.
func TestForms(t *testing.T) {
	acute := strings.Repeat("\u0301", 40)
	for _, c := range []struct{ form, in, want string }{
		{"NFC", "e" + acute, "é" + acute[2:]},
		{"NFD", "é" + acute, "e\u0301" + acute},
		{"NFC", "\U00011935\U00011930", "\U00011935\U00011930"}, // composes since Unicode 13
		{"NFKC", "\u32FF", "\u32FF"},                            // decomposes since 12.1
		{"NFD", "a\u0345\u08D3", "a\u0345\u08D3"},               // reorders since 11
		{"NFC", "e\u0301\u32FFe\u0301", "é\u32FFé"},
		{"NFC", "plain", "plain"},
	} {
		if got := forms[c.form].apply(c.in); got != c.want {
			t.Errorf("%s(%+q) = %+q, want %+q", c.form, c.in, got, c.want)
		}
	}
}

func TestLowercase(t *testing.T) {
	for in, want := range map[string]string{
		"ABC": "abc", "İI": "i\u0307i", "ΣΑΣ": "σασ", "ẞ": "ß", "Ꟙ": "ꟙ", "\u1C89": "\u1C8A", "\uA7DC": "\u019B", "\U00010D50": "\U00010D70",
	} {
		if got := lowercase(in); got != want {
			t.Errorf("lowercase(%+q) = %+q, want %+q", in, got, want)
		}
	}
}
