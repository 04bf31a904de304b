package checkpoint

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// maxHeaderBytes is the format's limit.
const maxHeaderBytes = 100_000_000

// maxRank bounds what a hostile header can make a reader allocate; no
// framework that writes the format goes beyond it.
const maxRank = 64

const metadataKey = "__metadata__"

// entry describes one tensor of a file; offsets are from the data section's
// start.
type entry struct {
	name       string
	dtype      DType
	shape      []int
	begin, end int64
}

// header is a checked file header.
type header struct {
	entries   []entry // in file order
	metadata  map[string]string
	dataStart int64
}

// readHeader reads and checks the header of a file of the given size.
func readHeader(r io.ReaderAt, size int64) (*header, error) {
	if size < 8 {
		return nil, fmt.Errorf("file has %d bytes, too few for a safetensors header (truncated download, or a Git LFS pointer?)", size)
	}
	var prefix [8]byte
	if err := readFull(r, prefix[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > maxHeaderBytes {
		return nil, fmt.Errorf("header of %d bytes exceeds the limit of %d (not a safetensors file?)", n, maxHeaderBytes)
	}
	if int64(n) > size-8 {
		return nil, fmt.Errorf("file ends at byte %d, header should end at %d (truncated download?)", size, 8+n)
	}
	text := make([]byte, n)
	if err := readFull(r, text, 8); err != nil {
		return nil, err
	}
	h, err := parseHeader(text)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	h.dataStart = 8 + int64(n)
	if err := h.checkLayout(size - h.dataStart); err != nil {
		return nil, err
	}
	return h, nil
}

// parseHeader decodes the JSON and checks each entry by itself.
func parseHeader(text []byte) (*header, error) {
	s, err := newScanner(text)
	if err != nil {
		return nil, err
	}
	h := &header{}
	err = s.object(func(key string) error {
		if key == metadataKey {
			if h.metadata, err = parseMetadata(s); err != nil {
				return fmt.Errorf("%s: %w", metadataKey, err)
			}
			return nil
		}
		e, err := parseEntry(s, key)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
		h.entries = append(h.entries, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, s.end()
}

func parseMetadata(s *scanner) (map[string]string, error) {
	if s.peek() != '{' {
		return nil, s.errorf("no object of strings")
	}
	m := make(map[string]string)
	err := s.object(func(key string) error {
		if s.peek() != '"' {
			return s.errorf("value of %q is not a string", key)
		}
		v, err := s.str()
		m[key] = v
		return err
	})
	return m, err
}

func parseEntry(s *scanner, name string) (entry, error) {
	e := entry{name: name, shape: []int{}}
	var hasShape, hasOffsets bool
	err := s.object(func(key string) error {
		switch key {
		case "dtype":
			spelling, err := s.str()
			if err != nil {
				return fmt.Errorf("dtype: %w", err)
			}
			if e.dtype, err = ParseDType(spelling); err != nil {
				return fmt.Errorf("unknown dtype %q", spelling)
			}
		case "shape":
			hasShape = true
			return s.array(func() error {
				d, err := s.uint()
				if err != nil {
					return fmt.Errorf("shape: %w", err)
				}
				if d > math.MaxInt {
					return errors.New("shape overflows")
				}
				if len(e.shape) == maxRank {
					return fmt.Errorf("shape has more than %d dimensions", maxRank)
				}
				e.shape = append(e.shape, int(d))
				return nil
			})
		case "data_offsets":
			hasOffsets = true
			var pair [2]int64
			n := 0
			err := s.array(func() error {
				if n == len(pair) {
					return errors.New("data_offsets has more than two numbers")
				}
				var err error
				pair[n], err = s.uint()
				n++
				if err != nil {
					return fmt.Errorf("data_offsets: %w", err)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if n != len(pair) {
				return errors.New("data_offsets has fewer than two numbers")
			}
			e.begin, e.end = pair[0], pair[1]
		default:
			return fmt.Errorf("unknown key %q (dtype, shape and data_offsets are known)", key)
		}
		return nil
	})
	switch {
	case err != nil:
		return e, err
	case e.dtype == 0:
		return e, errors.New("dtype is missing")
	case !hasShape:
		return e, errors.New("shape is missing")
	case !hasOffsets:
		return e, errors.New("data_offsets is missing")
	case e.begin > e.end:
		return e, fmt.Errorf("data_offsets [%d, %d] run backwards", e.begin, e.end)
	}
	n, err := byteSize(e.dtype, e.shape)
	if err != nil {
		return e, err
	}
	if n != e.end-e.begin {
		return e, fmt.Errorf("%v %v needs %d bytes, data_offsets span %d", e.dtype, e.shape, n, e.end-e.begin)
	}
	return e, nil
}

// checkLayout sorts the entries by offset and checks that they cover the data
// section exactly.
func (h *header) checkLayout(dataBytes int64) error {
	slices.SortFunc(h.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name))
	})
	var at int64
	prev := ""
	for _, e := range h.entries {
		switch {
		case e.begin > at:
			return fmt.Errorf("tensor %q: data starts at byte %d, leaving a hole from byte %d", e.name, h.dataStart+e.begin, h.dataStart+at)
		case e.begin < at:
			return fmt.Errorf("tensor %q: data starts at byte %d, inside the data of tensor %q", e.name, h.dataStart+e.begin, prev)
		case e.end > dataBytes:
			return fmt.Errorf("tensor %q: data ends at byte %d, header says %d (truncated download?)", e.name, h.dataStart+dataBytes, h.dataStart+e.end)
		}
		at, prev = e.end, e.name
	}
	if at != dataBytes {
		return fmt.Errorf("file has %d bytes after the last tensor, which ends at byte %d", dataBytes-at, h.dataStart+at)
	}
	return nil
}

// readFull is ReadAt with a short read as an error.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("data ends at byte %d, header says %d (file truncated while open?)", off+int64(n), off+int64(len(b)))
	}
	return err
}
