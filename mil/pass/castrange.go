package pass

import (
	"io"
	"sync"

	"github.com/smelt-go/smelt/mil"
)

// storedConst is a constant whose elements are exactly those of a narrower
// one, which is quicker to read. It alone checks its elements.
type storedConst interface {
	Stored() (mil.Const, bool)
}

// Ranges reads converted elements, if parts of Src can be read: pieces of a
// weight are cast by as many goroutines as want them.
func (c *CastConst) Ranges() (mil.ReadRange, bool) {
	checked, ok := mil.Ranges(c.Src)
	if !ok || c.check() != nil {
		return nil, false
	}
	read, from := checked, c.Src.Type().DType
	if s, ok := c.Src.(storedConst); ok {
		if narrow, ok := s.Stored(); ok {
			if r, ok := mil.Ranges(narrow); ok {
				read, from = r, narrow.Type().DType
			}
		}
	}
	size, out := from.Bits()/8, c.To.Bits()/8
	return func(dst []byte, off int64) error {
		buf := scratchPool.Get().(*scratch)
		defer scratchPool.Put(buf)
		for at := int(off) / out; len(dst) > 0; {
			n := min(len(dst)/out, len(buf.src)/size)
			src := buf.src[:n*size]
			if size == out {
				src = dst[:n*size] // cast in place
			}
			if err := read(src, int64(at)*int64(size)); err != nil {
				return err
			}
			if !c.convert(dst[:n*out], src, from, &buf.f) {
				return c.complain(checked, at, n)
			}
			dst, at = dst[n*out:], at+n
		}
		return nil
	}, true
}

// complain says what is wrong with one of n elements from element at on.
func (c *CastConst) complain(read mil.ReadRange, at, n int) error {
	from := c.Src.Type().DType
	b := make([]byte, n*from.Bits()/8)
	if err := read(b, int64(at)*int64(from.Bits()/8)); err != nil {
		return err
	}
	f := make([]float32, n)
	decode(f, b, from)
	return c.fault(f, int64(at))
}

func (c *CastConst) writeRanges(w io.Writer, read mil.ReadRange) (int64, error) {
	buf := piecePool.Get().(*[pieceBytes]byte)
	defer piecePool.Put(buf)
	var done int64
	for left := c.Type().NumBytes(); left > 0; {
		b := buf[:min(left, pieceBytes)]
		if err := read(b, done); err != nil {
			return done, err
		}
		n, err := w.Write(b)
		done, left = done+int64(n), left-int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// pieceBytes is read and cast at a time: it stays in the second-level cache.
const pieceBytes = 256 << 10

// scratch are the buffers of one conversion.
type scratch struct {
	src [pieceBytes]byte
	f   floats
}

var (
	scratchPool = sync.Pool{New: func() any { return new(scratch) }}
	piecePool   = sync.Pool{New: func() any { return new([pieceBytes]byte) }}
)
