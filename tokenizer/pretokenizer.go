package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// piece is a stretch of the text on its way to ids: still text, or already
// an added token.
type piece struct {
	text  string
	id    int32 // the added token, or notAdded
	first bool  // begins where the original text begins
}

const notAdded int32 = -1

// preTokenizer cuts pieces into words. Pieces that are added tokens are
// passed on untouched; empty pieces are dropped.
type preTokenizer interface {
	cut(pieces []piece) []piece
}

// preSequence runs its parts one after the other.
type preSequence []preTokenizer

func (p preSequence) cut(pieces []piece) []piece {
	for _, part := range p {
		pieces = part.cut(pieces)
	}
	return pieces
}

// each rewrites every text piece through f.
func each(pieces []piece, f func(out []piece, p piece) []piece) []piece {
	out := make([]piece, 0, len(pieces))
	for _, p := range pieces {
		if p.id != notAdded {
			out = append(out, p)
			continue
		}
		out = f(out, p)
	}
	return out
}

// span is a stretch [start, end) of a piece that matches a pattern or lies
// between matches.
type span struct {
	start, end int
	match      bool
}

// finder cuts s into spans that cover it in order.
type finder func(spans []span, s string) []span

// behavior says where a match goes when a piece is split by it.
type behavior string

const (
	removed            behavior = "Removed"
	isolated           behavior = "Isolated"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
	contiguous         behavior = "Contiguous"
)

// splitter splits by a finder; Split, Digits and the white space splitters
// are all made of it.
type splitter struct {
	find     finder
	behavior behavior
	invert   bool
}

func (p splitter) cut(pieces []piece) []piece {
	var spans []span
	return each(pieces, func(out []piece, in piece) []piece {
		spans = p.find(spans[:0], in.text)
		if p.invert {
			for i := range spans {
				spans[i].match = !spans[i].match
			}
		}
		for _, s := range arrange(spans, p.behavior) {
			if s.start < s.end {
				out = append(out, piece{in.text[s.start:s.end], notAdded, in.first && s.start == 0})
			}
		}
		return out
	})
}

// arrange joins spans in place as the behavior asks.
func arrange(spans []span, how behavior) []span {
	out := spans[:0]
	switch how {
	case removed:
		for _, s := range spans {
			if !s.match {
				out = append(out, s)
			}
		}
	case isolated:
		out = spans
	case contiguous:
		previous := false
		for _, s := range spans {
			if s.match == previous && len(out) > 0 {
				out[len(out)-1].end = s.end
			} else {
				out = append(out, s)
			}
			previous = s.match
		}
	case mergedWithPrevious:
		previous := false
		for _, s := range spans {
			if s.match && !previous && len(out) > 0 {
				out[len(out)-1].end = s.end
			} else {
				out = append(out, s)
			}
			previous = s.match
		}
	case mergedWithNext:
		// The mirror image: walk from the end, filling from the end.
		top, previous := len(spans), false
		for i := len(spans) - 1; i >= 0; i-- {
			s := spans[i]
			if s.match && !previous && top < len(spans) {
				spans[top].start = s.start
			} else {
				top--
				spans[top] = s
			}
			previous = s.match
		}
		out = spans[top:]
	}
	return out
}

// findLiteral matches every occurrence of a fixed string.
func findLiteral(literal string) finder {
	return func(spans []span, s string) []span {
		at := 0
		for {
			i := strings.Index(s[at:], literal)
			if i < 0 {
				break
			}
			if i > 0 {
				spans = append(spans, span{at, at + i, false})
			}
			spans = append(spans, span{at + i, at + i + len(literal), true})
			at += i + len(literal)
		}
		if at < len(s) {
			spans = append(spans, span{at, len(s), false})
		}
		return spans
	}
}

// findScan matches a word pattern, which leaves no gaps.
func findScan(next scan) finder {
	return func(spans []span, s string) []span {
		for at := 0; at < len(s); {
			end := next(s, at)
			spans = append(spans, span{at, end, true})
			at = end
		}
		return spans
	}
}

// findClass matches every single rune of a class.
func findClass(class uint8) finder {
	return func(spans []span, s string) []span {
		at := 0
		for i := 0; i < len(s); {
			_, c, width := runeAt(s, i)
			if c&class != 0 {
				if at < i {
					spans = append(spans, span{at, i, false})
				}
				at = i + width
				spans = append(spans, span{i, at, true})
			}
			i += width
		}
		if at < len(s) {
			spans = append(spans, span{at, len(s), false})
		}
		return spans
	}
}

// findWords matches \w+|[^\w\s]+.
func findWords(spans []span, s string) []span {
	for at := 0; at < len(s); {
		_, class, _ := runeAt(s, at)
		var end int
		switch {
		case class&classWord != 0:
			end = run(s, at, classWord, true)
		case class&classSpace != 0:
			end = run(s, at, classSpace, true)
		default:
			end = run(s, at, classWord|classSpace, false)
		}
		spans = append(spans, span{at, end, class&classWord != 0 || class&classSpace == 0})
		at = end
	}
	return spans
}

// byteLevel spells every piece in the byte-level alphabet, after splitting it
// by the GPT-2 pattern if words is set.
type byteLevel struct {
	prefixSpace bool
	words       bool
}

func (p byteLevel) cut(pieces []piece) []piece {
	if p.prefixSpace {
		pieces = each(pieces, func(out []piece, in piece) []piece {
			if !strings.HasPrefix(in.text, " ") {
				in.text = " " + in.text
			}
			return append(out, in)
		})
	}
	if p.words {
		pieces = splitter{find: findScan(scanGPT2), behavior: isolated}.cut(pieces)
	}
	// One buffer for all words: slicing it is far cheaper than a string each.
	size := 0
	for _, in := range pieces {
		size += len(in.text) * 2
	}
	buf := make([]byte, 0, size)
	ends := make([]int, 0, len(pieces))
	for _, in := range pieces {
		if in.id == notAdded {
			buf = appendByteLevel(buf, in.text)
		}
		ends = append(ends, len(buf))
	}
	all, start, i := string(buf), 0, 0
	return each(pieces, func(out []piece, in piece) []piece {
		for pieces[i].id != notAdded {
			i++
		}
		if i > 0 {
			start = ends[i-1]
		}
		in.text = all[start:ends[i]]
		i++
		return append(out, in)
	})
}

// metaspace writes spaces as a visible character and cuts before each.
type metaspace struct {
	mark    rune
	prepend string // "always", "first" or "never"
	split   bool
}

func (p metaspace) cut(pieces []piece) []piece {
	mark := string(p.mark)
	pieces = each(pieces, func(out []piece, in piece) []piece {
		in.text = strings.ReplaceAll(in.text, " ", mark)
		if (p.prepend == "always" || p.prepend == "first" && in.first) && !strings.HasPrefix(in.text, mark) {
			in.text = mark + in.text
		}
		return append(out, in)
	})
	if !p.split {
		return pieces
	}
	return splitter{find: findLiteral(mark), behavior: mergedWithNext}.cut(pieces)
}

// buildPreTokenizer reads a pre_tokenizer description; nil for null.
func buildPreTokenizer(n node) (preTokenizer, error) {
	if n.kind == nullNode {
		return nil, nil
	}
	if err := n.want(objectNode); err != nil {
		return nil, err
	}
	switch kind := n.typeName(); kind {
	case "Sequence":
		f, err := n.component("pretokenizers")
		if err != nil {
			return nil, err
		}
		parts, err := f["pretokenizers"].array()
		if err != nil {
			return nil, err
		}
		var seq preSequence
		for _, part := range parts {
			p, err := buildPreTokenizer(part)
			if err != nil {
				return nil, err
			}
			if p == nil {
				return nil, part.errorf("a Sequence cannot hold null")
			}
			seq = append(seq, p)
		}
		return seq, nil
	case "Split":
		return buildSplit(n)
	case "ByteLevel":
		prefix, words, err := byteLevelFields(n)
		return byteLevel{prefix, words}, err
	case "Digits":
		f, err := n.component("individual_digits")
		if err != nil {
			return nil, err
		}
		single, err := f["individual_digits"].boolean()
		how := contiguous
		if single {
			how = isolated
		}
		return splitter{find: findClass(classNumeric), behavior: how}, err
	case "Whitespace":
		_, err := n.component()
		return splitter{find: findWords, behavior: removed, invert: true}, err
	case "WhitespaceSplit":
		_, err := n.component()
		return splitter{find: findClass(classSpace), behavior: removed}, err
	case "Metaspace":
		return buildMetaspace(n)
	default:
		return nil, n.errorf("pre-tokenizer %q is not supported", kind)
	}
}

func buildSplit(n node) (preTokenizer, error) {
	f, err := n.component("pattern", "behavior", "invert")
	if err != nil {
		return nil, err
	}
	text, regex, err := f["pattern"].pattern()
	if err != nil {
		return nil, err
	}
	find := findLiteral(text)
	if regex {
		next, ok := wordPattern(text)
		if !ok {
			return nil, n.errorf("Split pattern %q is not one of the known patterns (GPT-2, Llama 3, Qwen)", text)
		}
		find = findScan(next)
	}
	how, err := f["behavior"].str()
	if err != nil {
		return nil, err
	}
	switch behavior(how) {
	case removed, isolated, mergedWithPrevious, mergedWithNext, contiguous:
	default:
		return nil, f["behavior"].errorf("unknown split behavior %q", how)
	}
	invert, err := f["invert"].boolean()
	return splitter{find: find, behavior: behavior(how), invert: invert}, err
}

// byteLevelFields reads the settings ByteLevel has in all its three roles.
// trim_offsets moves offsets only, never ids.
func byteLevelFields(n node) (prefixSpace, useRegex bool, err error) {
	f, err := n.component("add_prefix_space", "trim_offsets", "use_regex?")
	if err != nil {
		return false, false, err
	}
	if _, err = f["trim_offsets"].boolean(); err != nil {
		return false, false, err
	}
	if prefixSpace, err = f["add_prefix_space"].boolean(); err != nil {
		return false, false, err
	}
	useRegex = true
	if v, ok := f["use_regex"]; ok {
		useRegex, err = v.boolean()
	}
	return prefixSpace, useRegex, err
}

func buildMetaspace(n node) (preTokenizer, error) {
	m, err := metaspaceFields(n)
	return m, err
}

// metaspaceFields reads a Metaspace pre-tokenizer or decoder.
func metaspaceFields(n node) (m metaspace, err error) {
	f, err := n.component("replacement", "prepend_scheme?", "split?", "add_prefix_space?", "str_rep?")
	if err != nil {
		return m, err
	}
	if m.mark, err = f["replacement"].char(); err != nil {
		return m, err
	}
	m.prepend, m.split = "always", true
	if v, ok := f["prepend_scheme"]; ok {
		if m.prepend, err = v.str(); err != nil {
			return m, err
		}
		if m.prepend != "always" && m.prepend != "first" && m.prepend != "never" {
			return m, v.errorf("unknown prepend scheme %q", m.prepend)
		}
	}
	if v, ok := f["split"]; ok && v.kind != nullNode {
		if m.split, err = v.boolean(); err != nil {
			return m, err
		}
	}
	if v, ok := f["add_prefix_space"]; ok && v.kind != nullNode {
		prefix, err := v.boolean()
		if err != nil {
			return m, err
		}
		if !prefix && m.prepend != "never" {
			return m, v.errorf("false contradicts prepend_scheme %q", m.prepend)
		}
	}
	return m, nil
}

// validUTF8 returns the offset of the first invalid byte, -1 for none.
func validUTF8(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i := 0; i < len(s); {
		r, width := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && width == 1 {
			return i
		}
		i += width
	}
	return -1
}
