package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// A decoder turns token strings into text, one step of a chain that tokens
// pass through. The same steps serve Decode and Stream, so what a stream
// yields is what Decode returns, by construction.
type decoder struct {
	steps []func() decodeStep
}

// decodeStep handles one token at a time. emit hands on to the next step;
// what a step cannot hand on yet it keeps until flush, the end of the input.
type decodeStep interface {
	push(token string, emit func(string))
	flush(emit func(string))
}

// decoding is one pass through a chain.
type decoding struct {
	steps []decodeStep
	emits []func(string)
	text  strings.Builder
}

func (d decoder) start() *decoding {
	p := &decoding{emits: make([]func(string), len(d.steps)+1)}
	p.emits[len(d.steps)] = func(s string) { p.text.WriteString(s) }
	for _, step := range d.steps {
		p.steps = append(p.steps, step())
	}
	for i := len(d.steps) - 1; i >= 0; i-- {
		step, next := p.steps[i], p.emits[i+1]
		p.emits[i] = func(s string) { step.push(s, next) }
	}
	return p
}

func (p *decoding) push(token string) { p.emits[0](token) }

func (p *decoding) flush() {
	for i, step := range p.steps {
		step.flush(p.emits[i+1])
	}
}

// take returns the text so far and forgets it.
func (p *decoding) take() string {
	s := p.text.String()
	p.text.Reset()
	return s
}

// mapStep is a step that looks at single tokens only.
type mapStep func(token string) string

func (f mapStep) push(token string, emit func(string)) { emit(f(token)) }
func (mapStep) flush(func(string))                     {}

// spacedStep stands in for a missing decoder: tokens separated by spaces.
type spacedStep struct{ started bool }

func (s *spacedStep) push(token string, emit func(string)) {
	if s.started {
		token = " " + token
	}
	s.started = true
	emit(token)
}
func (*spacedStep) flush(func(string)) {}

// fuseStep makes one token of all.
type fuseStep struct{ all strings.Builder }

func (s *fuseStep) push(token string, _ func(string)) { s.all.WriteString(token) }
func (s *fuseStep) flush(emit func(string))           { emit(s.all.String()) }

// byteFallbackStep turns runs of <0xNN> tokens into text: the characters if
// the whole run is valid UTF-8, else a replacement character for each byte.
type byteFallbackStep struct{ pending []byte }

func (s *byteFallbackStep) push(token string, emit func(string)) {
	if b, ok := byteToken(token); ok {
		s.pending = append(s.pending, b)
		return
	}
	s.flush(emit)
	emit(token)
}

func (s *byteFallbackStep) flush(emit func(string)) {
	if len(s.pending) == 0 {
		return
	}
	if utf8.Valid(s.pending) {
		emit(string(s.pending))
	} else {
		for range s.pending {
			emit("\ufffd")
		}
	}
	s.pending = s.pending[:0]
}

func byteToken(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	digit := func(c byte) int {
		switch {
		case c >= '0' && c <= '9':
			return int(c - '0')
		case c >= 'a' && c <= 'f':
			return int(c-'a') + 10
		case c >= 'A' && c <= 'F':
			return int(c-'A') + 10
		}
		return -1
	}
	hi, lo := digit(token[3]), digit(token[4])
	if token[3] == '+' {
		hi = 0 // the reference's number parser takes a sign
	}
	return byte(hi<<4 | lo), hi >= 0 && lo >= 0
}

// byteLevelStep reads the byte-level alphabet back. Tokens may end inside a
// character, so it works on the bytes of all tokens together.
type byteLevelStep struct{ pending []byte }

func (s *byteLevelStep) push(token string, emit func(string)) {
	s.pending = appendFromByteLevel(s.pending, token)
	text, rest := lossy(s.pending, false)
	if text != "" {
		emit(text)
	}
	s.pending = s.pending[:copy(s.pending, rest)]
}

func (s *byteLevelStep) flush(emit func(string)) {
	text, _ := lossy(s.pending, true)
	s.pending = s.pending[:0]
	if text != "" {
		emit(text)
	}
}

// lossy makes text of b with one replacement character for every maximal
// part of an ill-formed sequence (Unicode 16, section 3.9, table 3-8). Unless
// b is the end of the input, a sequence that more bytes could complete is
// left over.
func lossy(b []byte, end bool) (text string, rest []byte) {
	var out []byte
	start := 0
	for i := 0; i < len(b); {
		r, width := utf8.DecodeRune(b[i:])
		if r != utf8.RuneError || width > 1 {
			i += width
			continue
		}
		n, whole := illFormed(b[i:])
		if !whole && !end {
			return string(append(out, b[start:i]...)), b[i:]
		}
		out = append(out, b[start:i]...)
		out = append(out, "\ufffd"...)
		i += n
		start = i
	}
	return string(append(out, b[start:]...)), nil
}

// illFormed returns the length of the maximal part that starts the
// ill-formed b, and whether a byte follows that ends it.
func illFormed(b []byte) (n int, whole bool) {
	lo, hi, want := byte(0x80), byte(0xBF), 0
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		want = 1
	case c >= 0xE0 && c <= 0xEF:
		want = 2
		if c == 0xE0 {
			lo = 0xA0
		} else if c == 0xED {
			hi = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		want = 3
		if c == 0xF0 {
			lo = 0x90
		} else if c == 0xF4 {
			hi = 0x8F
		}
	}
	n = 1
	for ; n <= want; n++ {
		if n == len(b) {
			return n, false
		}
		if b[n] < lo || b[n] > hi {
			return n, true
		}
		lo, hi = 0x80, 0xBF
	}
	return n, true
}

// metaspaceStep writes the mark as a space, but not at the very start if the
// encoder put it there.
type metaspaceStep struct {
	mark    string
	drop    bool // of the first token
	started bool
}

func (s *metaspaceStep) push(token string, emit func(string)) {
	space := " "
	if !s.started && s.drop {
		space = ""
	}
	s.started = true
	emit(strings.ReplaceAll(token, s.mark, space))
}
func (*metaspaceStep) flush(func(string)) {}

// suffixStep turns the end-of-word suffix into a space, except on the last
// token; it keeps one token back to know which that is.
type suffixStep struct {
	suffix string
	held   string
	has    bool
}

func (s *suffixStep) push(token string, emit func(string)) {
	if s.has {
		emit(strings.ReplaceAll(s.held, s.suffix, " "))
	}
	s.held, s.has = token, true
}

func (s *suffixStep) flush(emit func(string)) {
	if s.has {
		emit(strings.ReplaceAll(s.held, s.suffix, ""))
	}
}

// strip takes up to start and stop occurrences of c off the ends of token.
func strip(token string, c rune, start, stop int) string {
	char := string(c)
	for range start {
		var ok bool
		if token, ok = strings.CutPrefix(token, char); !ok {
			break
		}
	}
	for range stop {
		var ok bool
		if token, ok = strings.CutSuffix(token, char); !ok {
			break
		}
	}
	return token
}

// fusedStripStep is Fuse followed by Strip, for text as it comes in: start
// occurrences are taken off the beginning, stop off the end.
type fusedStripStep struct {
	char        string
	start, stop int
	tail        string // trailing occurrences that the end may still take
}

func (s *fusedStripStep) push(token string, emit func(string)) {
	for s.start > 0 && token != "" {
		rest, ok := strings.CutPrefix(token, s.char)
		if !ok {
			s.start = 0
			break
		}
		token = rest
		s.start--
	}
	token = s.tail + token
	keep := token
	for range s.stop {
		rest, ok := strings.CutSuffix(keep, s.char)
		if !ok {
			break
		}
		keep = rest
	}
	s.tail = token[len(keep):]
	if keep != "" {
		emit(keep)
	}
}

func (s *fusedStripStep) flush(func(string)) {}
