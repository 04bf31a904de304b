package tokenizer

import (
	"regexp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func words(p preTokenizer, text string) (out []string) {
	for _, w := range p.cut([]piece{{text, notAdded, true}}) {
		out = append(out, w.text)
	}
	return out
}

func TestBehaviors(t *testing.T) {
	for _, c := range []struct {
		how    behavior
		invert bool
		want   []string
	}{
		{removed, false, []string{"the", "final", "countdown"}},
		{isolated, false, []string{"the", "-", "final", "-", "-", "countdown"}},
		{mergedWithPrevious, false, []string{"the-", "final-", "-", "countdown"}},
		{mergedWithNext, false, []string{"the", "-final", "-", "-countdown"}},
		{contiguous, false, []string{"the", "-", "final", "--", "countdown"}},
		{removed, true, []string{"-", "-", "-"}},
		{isolated, true, []string{"the", "-", "final", "-", "-", "countdown"}},
		{mergedWithPrevious, true, []string{"the", "-final", "-", "-countdown"}},
		{mergedWithNext, true, []string{"the-", "final-", "-", "countdown"}},
	} {
		got := words(splitter{find: findLiteral("-"), behavior: c.how, invert: c.invert}, "the-final--countdown")
		if !slices.Equal(got, c.want) {
			t.Errorf("%s, invert %v: %q, want %q", c.how, c.invert, got, c.want)
		}
	}
}

func TestWordPatterns(t *testing.T) {
	llama, ok := wordPattern(`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`)
	if !ok {
		t.Fatal("the Llama 3 pattern is not known")
	}
	for _, c := range []struct {
		next scan
		text string
		want []string
	}{
		{llama, "I'LL say'ſt 12345 x", []string{"I", "'LL", " say", "'ſ", "t", " ", "123", "45", " x"}},
		{llama, "a  \n\n  b\t!?\r\n\r\n.", []string{"a", "  \n\n", " ", " b", "\t", "!?\r\n\r\n", "."}},
		{llama, "e\u0301x(y", []string{"e", "\u0301x", "(y"}},
		{llama, "  ", []string{"  "}},
		{llama, "\u00a0\u3000a", []string{"\u00a0", "\u3000a"}},
		{scanGPT2, "I'LL say's 12345 x", []string{"I", "'", "LL", " say", "'s", " 12345", " x"}},
		{scanGPT2, "a  \n b !? ", []string{"a", "  \n", " b", " !?", " "}},
		{scanGPT2, "\t\tx", []string{"\t", "\t", "x"}},
	} {
		if got := words(splitter{find: findScan(c.next), behavior: isolated}, c.text); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

// TestScannersAgainstRegexp compares the scanners with Go's regexp on ASCII,
// where Go's tables are the same and its missing look-ahead, a(?!\S), can be
// replaced by trying the two alternatives by hand.
func TestScannersAgainstRegexp(t *testing.T) {
	spaces := regexp.MustCompile(`^\s+`)
	reference := func(before string) scan {
		re := regexp.MustCompile(`^(?:` + before + `)`)
		return func(s string, i int) int {
			if m := re.FindString(s[i:]); m != "" {
				return i + len(m)
			}
			n := len(spaces.FindString(s[i:]))
			if i+n < len(s) && n > 1 {
				n--
			}
			return i + n
		}
	}
	for _, c := range []struct {
		name   string
		next   scan
		before string
	}{
		{"gpt2", scanGPT2, `'s|'t|'re|'ve|'m|'ll|'d| ?\pL+| ?\pN+| ?[^\s\pL\pN]+`},
		{"llama3", tiktokenScan{3, classLetter}.next,
			`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\pL\pN]?\pL+|\pN{1,3}| ?[^\s\pL\pN]+[\r\n]*|\s*[\r\n]+`},
		{"qwen", tiktokenScan{1, classLetter}.next,
			`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\pL\pN]?\pL+|\pN| ?[^\s\pL\pN]+[\r\n]*|\s*[\r\n]+`},
	} {
		want := splitter{find: findScan(reference(c.before)), behavior: isolated}
		got := splitter{find: findScan(c.next), behavior: isolated}
		rapid.Check(t, func(t *rapid.T) {
			text := rapid.StringOf(rapid.SampledFrom([]rune("aAsStTlLdDvVeErRmM019''' \t\n\r.,(_~"))).Draw(t, "text")
			if a, b := words(got, text), words(want, text); !slices.Equal(a, b) {
				t.Errorf("%s: %q cut as %q, want %q", c.name, text, a, b)
			}
		})
	}
}

func TestMetaspace(t *testing.T) {
	for _, c := range []struct {
		prepend string
		split   bool
		first   bool
		want    []string
	}{
		{"always", true, true, []string{"▁a", "▁", "▁b"}},
		{"first", true, true, []string{"▁a", "▁", "▁b"}},
		{"first", true, false, []string{"a", "▁", "▁b"}},
		{"never", true, true, []string{"a", "▁", "▁b"}},
		{"always", false, true, []string{"▁a▁▁b"}},
	} {
		var got []string
		for _, w := range (metaspace{'▁', c.prepend, c.split}).cut([]piece{{"a  b", notAdded, c.first}}) {
			got = append(got, w.text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestByteLevelPrefix(t *testing.T) {
	for _, c := range []struct {
		p    byteLevel
		text string
		want []string
	}{
		{byteLevel{prefixSpace: true, words: true}, "a b", []string{"Ġa", "Ġb"}},
		{byteLevel{prefixSpace: true, words: true}, " a", []string{"Ġa"}},
		{byteLevel{prefixSpace: true}, "a b", []string{"ĠaĠb"}},
		{byteLevel{words: true}, "a é", []string{"a", "ĠÃ©"}},
	} {
		if got := words(c.p, c.text); !slices.Equal(got, c.want) {
			t.Errorf("%+v %q: %q, want %q", c.p, c.text, got, c.want)
		}
	}
}
