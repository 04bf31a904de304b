package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// A scan function returns the end of the match that starts at byte i of s.
// The known word patterns match at every position of every text, so a scan
// covers s without gaps.
type scan func(s string, i int) int

// wordPatterns are the regular expressions a Split may carry, by their exact
// text. Go's regexp has neither look-ahead nor the reference's Unicode
// tables, so each is a hand-written scanner; any other pattern is refused.
func wordPattern(regex string) (scan, bool) {
	switch regex {
	case gpt2Pattern:
		return scanGPT2, true
	case `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:
		return tiktokenScan{digits: 3, letters: classLetter}.next, true
	case `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:
		return tiktokenScan{digits: 1, letters: classLetter}.next, true
	case `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:
		return tiktokenScan{digits: 1, letters: classLetter | classMark}.next, true
	}
	return nil, false
}

// gpt2Pattern is also what ByteLevel splits by when use_regex is set.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// runeAt is utf8.DecodeRuneInString with the classes of the rune; past the
// end of s it returns no class and width 0.
func runeAt(s string, i int) (r rune, class uint8, width int) {
	if i >= len(s) {
		return 0, 0, 0
	}
	r, width = rune(s[i]), 1
	if r >= utf8.RuneSelf {
		r, width = utf8.DecodeRuneInString(s[i:])
	}
	return r, classOf(r), width
}

// run returns the end of the longest run from i of runes that have one of the
// classes in mask (or none of them, if want is false).
func run(s string, i int, mask uint8, want bool) int {
	for i < len(s) {
		_, class, width := runeAt(s, i)
		if (class&mask != 0) != want {
			break
		}
		i += width
	}
	return i
}

// beforeWord is \s+(?!\S)|\s+ at i, where a white space run [i, end) starts:
// the whole run at the end of the text, else all but its last rune, unless
// that leaves nothing.
func beforeWord(s string, i, end int) int {
	if end == len(s) {
		return end
	}
	_, width := utf8.DecodeLastRuneInString(s[i:end])
	if end-width > i {
		return end - width
	}
	return end
}

func scanGPT2(s string, i int) int {
	if s[i] == '\'' {
		for _, suffix := range [...]string{"s", "t", "re", "ve", "m", "ll", "d"} {
			if strings.HasPrefix(s[i+1:], suffix) {
				return i + 1 + len(suffix)
			}
		}
	}
	at := i
	_, class, width := runeAt(s, at)
	if s[i] == ' ' && i+1 < len(s) {
		if _, next, w := runeAt(s, i+1); next&classSpace == 0 {
			at, class, width = i+1, next, w
		}
	}
	switch {
	case class&classLetter != 0:
		return run(s, at+width, classLetter, true)
	case class&classNumber != 0:
		return run(s, at+width, classNumber, true)
	case class&classSpace == 0:
		return run(s, at+width, classSpace|classLetter|classNumber, false)
	}
	return beforeWord(s, i, run(s, i, classSpace, true))
}

// tiktokenScan is the family of patterns that Llama 3 and Qwen took over from
// tiktoken's cl100k: it differs in how many digits stay together and in
// whether combining marks count as letters.
type tiktokenScan struct {
	digits  int
	letters uint8
}

func (p tiktokenScan) next(s string, i int) int {
	if s[i] == '\'' {
		if end := contraction(s, i+1); end > 0 {
			return end
		}
	}
	other := classSpace | classNumber | p.letters
	r, class, width := runeAt(s, i)

	// [^\r\n\p{L}\p{N}]?\p{L}+
	if class&p.letters != 0 {
		return run(s, i+width, p.letters, true)
	}
	if r != '\r' && r != '\n' && class&classNumber == 0 {
		if _, next, w := runeAt(s, i+width); next&p.letters != 0 {
			return run(s, i+width+w, p.letters, true)
		}
	}
	// \p{N}{1,digits}
	if class&classNumber != 0 {
		end := i + width
		for range p.digits - 1 {
			_, next, w := runeAt(s, end)
			if next&classNumber == 0 {
				break
			}
			end += w
		}
		return end
	}
	// ` ?[^\s\p{L}\p{N}]+[\r\n]*`
	at := i
	if r == ' ' && i+1 < len(s) {
		_, class, _ = runeAt(s, i+1)
		at = i + 1
	}
	if class&other == 0 {
		end := run(s, at, other, false)
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	// \s*[\r\n]+ takes the run up to its last line break.
	end := run(s, i, classSpace, true)
	if last := strings.LastIndexAny(s[i:end], "\r\n"); last >= 0 {
		return i + last + 1
	}
	return beforeWord(s, i, end)
}

// contraction matches (?i:s|t|re|ve|m|ll|d) at i and returns its end, 0 if
// there is none. The long s folds to s, the only such case in the set.
func contraction(s string, i int) int {
	if i >= len(s) {
		return 0
	}
	switch s[i] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 1
	case 'r', 'v':
		if i+1 < len(s) && s[i+1]|0x20 == 'e' {
			return i + 2
		}
	case 'l':
		if i+1 < len(s) && s[i+1]|0x20 == 'l' {
			return i + 2
		}
	}
	if strings.HasPrefix(s[i:], "ſ") {
		return i + len("ſ")
	}
	return 0
}
