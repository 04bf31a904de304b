package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// unicodeForm is a Unicode normalization form (UAX #15) as the reference
// implementation computes it: x/text's, with two differences.
//
//   - The reference's data is Unicode 9. Code points assigned later have no
//     decomposition, no combining class and no part in a composition.
//   - x/text breaks runs of more than 30 combining marks with a U+034F
//     (stream-safe text, UAX #15 section 13); the reference does not.
type unicodeForm struct {
	form      norm.Form
	decompose norm.Form // the form's decomposition: NFD or NFKD
	compose   bool
}

var forms = map[string]unicodeForm{
	"NFC":  {norm.NFC, norm.NFD, true},
	"NFD":  {norm.NFD, norm.NFD, false},
	"NFKC": {norm.NFKC, norm.NFKD, true},
	"NFKD": {norm.NFKD, norm.NFKD, false},
}

func (f unicodeForm) apply(s string) string {
	at := 0
	for at < len(s) && s[at] < utf8.RuneSelf {
		at++
	}
	if at == len(s) {
		return s
	}
	if f.form.IsNormalString(s) {
		return s // to the older data too: it has fewer rules to break
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		end := run(s, i, classRecent, false)
		if i < end {
			b.WriteString(f.known(s[i:end]))
		}
		i = run(s, end, classRecent, true)
		b.WriteString(s[end:i])
	}
	return b.String()
}

const graphemeJoiner = "\u034f"

// known normalizes text that has no recent code points.
func (f unicodeForm) known(s string) string {
	out := f.form.String(s)
	if strings.Count(out, graphemeJoiner) == strings.Count(s, graphemeJoiner) {
		return out
	}
	return f.plain(s)
}

type markedRune struct {
	r     rune
	class uint8 // canonical combining class
}

// plain is the textbook algorithm over x/text's tables, for the texts where
// x/text itself would insert joiners.
func (f unicodeForm) plain(s string) string {
	var runes []markedRune
	for _, r := range s {
		for _, d := range f.decompose.String(string(r)) {
			runes = append(runes, markedRune{d, norm.NFD.PropertiesString(string(d)).CCC()})
		}
	}
	for i := 0; i < len(runes); {
		end := i + 1
		for end < len(runes) && runes[i].class != 0 && runes[end].class != 0 {
			end++
		}
		slices.SortStableFunc(runes[i:end], func(a, b markedRune) int { return int(a.class) - int(b.class) })
		i = end
	}
	if f.compose {
		runes = composed(runes)
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, m := range runes {
		b.WriteRune(m.r)
	}
	return b.String()
}

// composed joins each starter with the marks after it that are not blocked.
func composed(runes []markedRune) []markedRune {
	out := runes[:0]
	starter := -1
	for _, m := range runes {
		if starter >= 0 {
			last := out[len(out)-1]
			blocked := len(out)-1 > starter && (last.class == 0 || last.class >= m.class)
			if !blocked {
				pair := norm.NFC.String(string(out[starter].r) + string(m.r))
				if r, width := utf8.DecodeRuneInString(pair); width == len(pair) {
					out[starter].r = r
					continue
				}
			}
		}
		if m.class == 0 {
			starter = len(out)
		}
		out = append(out, m)
	}
	return out
}
