package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// scanner reads JSON strictly: UTF-8 only, no lone surrogates, no control
// characters inside strings, no trailing commas, bounded nesting. A
// tokenizer.json is mostly two huge tables (vocab and merges), which the
// callers walk directly instead of through a tree; that is the whole reason
// this is not encoding/json.
type scanner struct {
	data []byte
	pos  int
	// buf holds the bytes of the last string that had escapes.
	buf []byte
}

// maxDepth bounds nesting; real files reach about 8.
const maxDepth = 64

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", s.pos, fmt.Sprintf(format, args...))
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next significant byte, 0 at the end of the data.
func (s *scanner) peek() byte {
	s.space()
	if s.pos >= len(s.data) {
		return 0
	}
	return s.data[s.pos]
}

func (s *scanner) expect(c byte) error {
	if got := s.peek(); got != c {
		if s.pos >= len(s.data) {
			return s.errorf("data ends where %q was expected (truncated file?)", c)
		}
		return s.errorf("found %q where %q was expected", got, c)
	}
	s.pos++
	return nil
}

// list walks the items of an object or an array: open and close are its
// brackets, item reads one.
func (s *scanner) list(open, close byte, item func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.peek() == close {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if s.peek() == ',' {
			s.pos++
			continue
		}
		return s.expect(close)
	}
}

// object calls member with each key; the key is valid until the next read.
func (s *scanner) object(member func(key []byte) error) error {
	return s.list('{', '}', func() error {
		key, err := s.string()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return member(key)
	})
}

func (s *scanner) array(item func() error) error { return s.list('[', ']', item) }

// string reads a string and returns its bytes, valid until the next read.
func (s *scanner) string() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start := s.pos
	ascii := true
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		if c == '"' {
			out := s.data[start:s.pos]
			if !ascii && !utf8.Valid(out) {
				return nil, s.errorf("string is not valid UTF-8")
			}
			s.pos++
			return out, nil
		}
		if c == '\\' {
			return s.escaped(start)
		}
		if c < 0x20 {
			return nil, s.errorf("control character %#02x inside a string", c)
		}
		ascii = ascii && c < utf8.RuneSelf
		s.pos++
	}
	return nil, s.errorf("data ends inside a string (truncated file?)")
}

// escaped continues string at its first backslash.
func (s *scanner) escaped(start int) ([]byte, error) {
	s.buf = append(s.buf[:0], s.data[start:s.pos]...)
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		switch {
		case c == '"':
			if !utf8.Valid(s.buf) {
				return nil, s.errorf("string is not valid UTF-8")
			}
			s.pos++
			return s.buf, nil
		case c < 0x20:
			return nil, s.errorf("control character %#02x inside a string", c)
		case c != '\\':
			s.buf = append(s.buf, c)
			s.pos++
			continue
		}
		if s.pos+1 >= len(s.data) {
			break
		}
		c = s.data[s.pos+1]
		switch c {
		case '"', '\\', '/':
			s.buf = append(s.buf, c)
		case 'b':
			s.buf = append(s.buf, '\b')
		case 'f':
			s.buf = append(s.buf, '\f')
		case 'n':
			s.buf = append(s.buf, '\n')
		case 'r':
			s.buf = append(s.buf, '\r')
		case 't':
			s.buf = append(s.buf, '\t')
		case 'u':
			r, err := s.unicodeEscape()
			if err != nil {
				return nil, err
			}
			s.buf = utf8.AppendRune(s.buf, r)
			continue
		default:
			return nil, s.errorf("unknown escape \\%c", c)
		}
		s.pos += 2
	}
	return nil, s.errorf("data ends inside a string (truncated file?)")
}

func (s *scanner) unicodeEscape() (rune, error) {
	hi, ok := s.hex4()
	if !ok {
		return 0, s.errorf("malformed \\u escape")
	}
	if hi < 0xD800 || hi > 0xDFFF {
		return hi, nil
	}
	if hi < 0xDC00 {
		if lo, ok := s.hex4(); ok && lo >= 0xDC00 && lo <= 0xDFFF {
			return (hi-0xD800)<<10 + (lo - 0xDC00) + 0x10000, nil
		}
	}
	return 0, s.errorf("lone surrogate in \\u escape")
}

// hex4 reads one \uXXXX and moves past it.
func (s *scanner) hex4() (rune, bool) {
	if s.pos+6 > len(s.data) || s.data[s.pos] != '\\' || s.data[s.pos+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range s.data[s.pos+2 : s.pos+6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	s.pos += 6
	return r, true
}

// number reads a number token and returns its text.
func (s *scanner) number() (string, error) {
	s.space()
	start := s.pos
	digits := func() bool {
		at := s.pos
		for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
			s.pos++
		}
		return s.pos > at
	}
	has := func(set string) bool {
		if s.pos < len(s.data) {
			for i := range len(set) {
				if s.data[s.pos] == set[i] {
					s.pos++
					return true
				}
			}
		}
		return false
	}
	has("-")
	if !has("0") && !digits() {
		return "", s.errorf("malformed number")
	}
	if has(".") && !digits() {
		return "", s.errorf("malformed number")
	}
	if has("eE") {
		has("+-")
		if !digits() {
			return "", s.errorf("malformed number")
		}
	}
	return string(s.data[start:s.pos]), nil
}

// id reads a token id: an integer in [0, 2^31).
func (s *scanner) id() (int32, error) {
	s.space()
	start, n := s.pos, int64(0)
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' && n < 1<<31 {
		n = n*10 + int64(s.data[s.pos]-'0')
		s.pos++
	}
	switch {
	case s.pos == start, s.pos < len(s.data) && (s.data[s.pos] == '.' || s.data[s.pos]|0x20 == 'e'):
		return 0, s.errorf("token id must be a non-negative integer")
	case n >= 1<<31:
		return 0, s.errorf("token id is not below 2^31")
	case s.pos-start > 1 && s.data[start] == '0':
		return 0, s.errorf("malformed number")
	}
	return int32(n), nil
}

// skip checks one value of any kind and moves past it.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return s.errorf("nested deeper than %d", maxDepth)
	}
	switch c := s.peek(); {
	case c == '{':
		return s.object(func([]byte) error { return s.skip(depth + 1) })
	case c == '[':
		return s.array(func() error { return s.skip(depth + 1) })
	case c == '"':
		_, err := s.string()
		return err
	case c == '-' || c >= '0' && c <= '9':
		_, err := s.number()
		return err
	default:
		_, err := s.literal()
		return err
	}
}

// literal reads true, false or null.
func (s *scanner) literal() (string, error) {
	s.space()
	for _, word := range []string{"true", "false", "null"} {
		if end := s.pos + len(word); end <= len(s.data) && string(s.data[s.pos:end]) == word {
			s.pos = end
			return word, nil
		}
	}
	if s.pos >= len(s.data) {
		return "", s.errorf("data ends where a value was expected (truncated file?)")
	}
	return "", s.errorf("found %q where a value was expected", s.data[s.pos])
}
