package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads JSON where encoding/json is too lenient: it keeps duplicate
// keys apart and refuses invalid UTF-8 and lone surrogates instead of
// replacing them. The input must be valid UTF-8 already.
type scanner struct {
	data []byte
	pos  int
}

func newScanner(data []byte) (*scanner, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not valid UTF-8")
	}
	return &scanner{data: data}, nil
}

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf(format+" at byte %d", append(args, s.pos)...)
}

// peek returns the next byte after white space, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if got := s.peek(); got != c {
		if s.pos >= len(s.data) {
			return s.errorf("JSON ends where %q should be", c)
		}
		return s.errorf("JSON has %q where %q should be", got, c)
	}
	s.pos++
	return nil
}

// end checks that nothing but white space follows.
func (s *scanner) end() error {
	if s.peek(); s.pos < len(s.data) {
		return s.errorf("extra characters after the JSON value")
	}
	return nil
}

// object calls member for every key, with the scanner at the value. Duplicate
// keys are an error.
func (s *scanner) object(member func(key string) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	seen := make(map[string]struct{})
	for {
		key, err := s.str()
		if err != nil {
			return err
		}
		if _, dup := seen[key]; dup {
			return s.errorf("duplicate key %q", key)
		}
		seen[key] = struct{}{}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if s.peek() == '}' {
			s.pos++
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

// array calls item for every element, with the scanner at it.
func (s *scanner) array(item func() error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if s.peek() == ']' {
			s.pos++
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

// uint reads a non-negative integer that fits in int64.
func (s *scanner) uint() (int64, error) {
	c := s.peek()
	start := s.pos
	if c < '0' || c > '9' {
		return 0, s.errorf("no non-negative integer")
	}
	var v int64
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		if c < '0' || c > '9' {
			break
		}
		d := int64(c - '0')
		if v > (math.MaxInt64-d)/10 {
			return 0, s.errorf("integer overflows")
		}
		v = v*10 + d
		s.pos++
	}
	if s.pos-start > 1 && s.data[start] == '0' {
		return 0, s.errorf("integer with a leading zero")
	}
	if s.pos < len(s.data) && strings.IndexByte(".eE+-", s.data[s.pos]) >= 0 {
		return 0, s.errorf("no integer")
	}
	return v, nil
}

// str reads a string.
func (s *scanner) str() (string, error) {
	if err := s.expect('"'); err != nil {
		return "", err
	}
	start := s.pos
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return string(s.data[start : s.pos-1]), nil
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			return "", s.errorf("control character in a string")
		}
		s.pos++
	}
	return "", s.errorf("JSON ends inside a string")
}

// escaped goes on with a string from its first backslash.
func (s *scanner) escaped(start int) (string, error) {
	out := append([]byte(nil), s.data[start:s.pos]...)
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		switch {
		case c == '"':
			s.pos++
			return string(out), nil
		case c < ' ':
			return "", s.errorf("control character in a string")
		case c != '\\':
			out = append(out, c)
			s.pos++
			continue
		}
		s.pos++
		if s.pos >= len(s.data) {
			break
		}
		c = s.data[s.pos]
		s.pos++
		if c != 'u' {
			i := strings.IndexByte(`"\/bfnrt`, c)
			if i < 0 {
				return "", s.errorf("unknown escape \\%c in a string", c)
			}
			out = append(out, "\"\\/\b\f\n\r\t"[i])
			continue
		}
		r, err := s.hex4()
		if err != nil {
			return "", err
		}
		if utf16.IsSurrogate(r) {
			if s.pos+1 >= len(s.data) || s.data[s.pos] != '\\' || s.data[s.pos+1] != 'u' {
				return "", s.errorf("lone surrogate in a string")
			}
			s.pos += 2
			low, err := s.hex4()
			if err != nil {
				return "", err
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				return "", s.errorf("lone surrogate in a string")
			}
		}
		out = utf8.AppendRune(out, r)
	}
	return "", s.errorf("JSON ends inside a string")
}

func (s *scanner) hex4() (rune, error) {
	if len(s.data)-s.pos < 4 {
		return 0, s.errorf("JSON ends inside a string")
	}
	var r rune
	for _, c := range s.data[s.pos : s.pos+4] {
		i := strings.IndexByte("0123456789abcdef", c|0x20)
		if i < 0 || c < '0' {
			return 0, s.errorf("bad \\u escape in a string")
		}
		r = r<<4 | rune(i)
	}
	s.pos += 4
	return r, nil
}

// skip reads over any value.
func (s *scanner) skip() error {
	s.peek()
	dec := json.NewDecoder(bytes.NewReader(s.data[s.pos:]))
	var v json.RawMessage
	if err := dec.Decode(&v); err != nil {
		return s.errorf("bad JSON value (%v)", err)
	}
	s.pos += int(dec.InputOffset())
	return nil
}
