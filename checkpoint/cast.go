package checkpoint

import (
	"encoding/binary"
	"io"
	"sync"
	"unsafe"

	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/littleendian"
)

// AsType returns t cast to F16, BF16 or F32. The cast is lazy and streams: no
// element is held for longer than it takes to convert it. Values go through
// float32 and are rounded to nearest even; those beyond the range of F16
// become infinite. Any other dt, or a t whose elements cannot be read, gives a
// tensor whose reads and writes return an error. If t has the type already, it
// is returned as it is.
func AsType(t Tensor, dt DType) Tensor {
	if t.DType() == dt {
		return t
	}
	c := &cast{Tensor: t, dtype: dt}
	switch {
	case dt != F16 && dt != BF16 && dt != F32:
		c.err = tensorErrorf(t.Name(), "cast to %v is not supported (only to F16, BF16 and F32)", dt)
	case !readable(t.DType()):
		c.err = tensorErrorf(t.Name(), "cast from %v is not supported", t.DType())
	}
	return c
}

type cast struct {
	Tensor
	dtype DType
	err   error
}

func (c *cast) DType() DType { return c.dtype }
func (c *cast) release()     { Release(c.Tensor) }

func (c *cast) check() error {
	if c.err != nil {
		return c.err
	}
	return check(c.Tensor)
}

const castElements = 1 << 15

type castBuffers struct {
	f [castElements]float32
	h [castElements]uint16
}

var castPool = sync.Pool{New: func() any { return new(castBuffers) }}

func (c *cast) WriteTo(w io.Writer) (int64, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	buf := castPool.Get().(*castBuffers)
	defer castPool.Put(buf)
	var done int64
	total := NumElements(c.Tensor)
	for off := 0; off < total; off += castElements {
		x := buf.f[:min(castElements, total-off)]
		if err := c.Tensor.ReadFloat32(x, off); err != nil {
			return done, err
		}
		var b []byte
		if c.dtype == F32 {
			b = encode(x)
		} else {
			h := buf.h[:len(x)]
			if c.dtype == F16 {
				kernel.F32ToF16(h, x)
			} else {
				half.F32ToBF16(h, x)
			}
			b = bytes16(h)
		}
		n, err := w.Write(b)
		done += int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (c *cast) ReadFloat32(dst []float32, off int) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := c.Tensor.ReadFloat32(dst, off); err != nil {
		return err
	}
	switch c.dtype {
	case F16:
		kernel.RoundF16(dst)
	case BF16:
		for i, f := range dst {
			dst[i] = half.FromBF16(half.ToBF16(f))
		}
	}
	return nil
}

// bytes16 returns h as little-endian bytes, overwriting it where the host's
// byte order differs.
func bytes16(h []uint16) []byte {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(h))), 2*len(h))
	if !littleendian.Host {
		for i, v := range h {
			binary.LittleEndian.PutUint16(b[2*i:], v)
		}
	}
	return b
}
