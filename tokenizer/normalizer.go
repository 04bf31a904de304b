package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// normalizer rewrites text before it is cut into words.
type normalizer func(s string) string

// buildNormalizer reads a normalizer description; nil for null.
func buildNormalizer(n node) (normalizer, error) {
	if n.kind == nullNode {
		return nil, nil
	}
	if err := n.want(objectNode); err != nil {
		return nil, err
	}
	switch kind := n.typeName(); kind {
	case "Sequence":
		return buildNormalizerSequence(n)
	case "NFC", "NFD", "NFKC", "NFKD":
		_, err := n.component()
		form := forms[kind]
		return func(s string) string { return form.apply(s) }, err
	case "Lowercase":
		_, err := n.component()
		return lowercase, err
	case "Replace":
		literal, with, err := replaceFields(n)
		return func(s string) string { return strings.ReplaceAll(s, literal, with) }, err
	case "Prepend":
		f, err := n.component("prepend")
		if err != nil {
			return nil, err
		}
		prefix, err := f["prepend"].str()
		return func(s string) string {
			if s == "" {
				return s
			}
			return prefix + s
		}, err
	case "Strip":
		f, err := n.component("strip_left", "strip_right")
		if err != nil {
			return nil, err
		}
		left, err := f["strip_left"].boolean()
		if err != nil {
			return nil, err
		}
		right, err := f["strip_right"].boolean()
		return func(s string) string {
			if left {
				s = s[run(s, 0, classSpace, true):]
			}
			if right {
				s = s[:spaceSuffix(s)]
			}
			return s
		}, err
	default:
		return nil, n.errorf("normalizer %q is not supported", kind)
	}
}

func buildNormalizerSequence(n node) (normalizer, error) {
	f, err := n.component("normalizers")
	if err != nil {
		return nil, err
	}
	parts, err := f["normalizers"].array()
	if err != nil {
		return nil, err
	}
	var seq []normalizer
	for _, part := range parts {
		p, err := buildNormalizer(part)
		if err != nil {
			return nil, err
		}
		if p == nil {
			return nil, part.errorf("a Sequence cannot hold null")
		}
		seq = append(seq, p)
	}
	return func(s string) string {
		for _, p := range seq {
			s = p(s)
		}
		return s
	}, nil
}

// replaceFields reads a Replace normalizer or decoder.
func replaceFields(n node) (literal, with string, err error) {
	f, err := n.component("pattern", "content")
	if err != nil {
		return "", "", err
	}
	literal, regex, err := f["pattern"].pattern()
	if err != nil {
		return "", "", err
	}
	if regex {
		return "", "", n.errorf("Replace by the regular expression %q is not supported, only by a string", literal)
	}
	with, err = f["content"].str()
	return literal, with, err
}

// spaceSuffix returns where the white space at the end of s starts.
func spaceSuffix(s string) int {
	for s != "" {
		r, width := utf8.DecodeLastRuneInString(s)
		if classOf(r)&classSpace == 0 {
			break
		}
		s = s[:len(s)-width]
	}
	return len(s)
}

// lowercase maps every code point by itself, without the context rule for a
// final sigma. The cases below are newer than Go's tables, or longer than
// one code point.
func lowercase(s string) string {
	ascii := true
	for i := range len(s) {
		ascii = ascii && s[i] < utf8.RuneSelf
	}
	if ascii {
		return strings.ToLower(s)
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch {
		case r == 0x130:
			b.WriteString("i\u0307")
		case r == 0x1C89, r == 0xA7CC, r == 0xA7CE, r == 0xA7D2, r == 0xA7D4, r == 0xA7DA:
			b.WriteRune(r + 1)
		case r == 0xA7CB:
			b.WriteRune(0x264)
		case r == 0xA7DC:
			b.WriteRune(0x19B)
		case r >= 0x10D50 && r <= 0x10D65:
			b.WriteRune(r + 0x20)
		case r >= 0x16EA0 && r <= 0x16EB8:
			b.WriteRune(r + 0x1B)
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}
