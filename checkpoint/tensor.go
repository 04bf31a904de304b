package checkpoint

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
)

// Tensor is a named, typed, shaped array whose elements are read when asked
// for. Elements are in row-major order. A scalar has an empty shape.
type Tensor interface {
	Name() string
	DType() DType
	// Shape must not be modified.
	Shape() []int
	// WriterTo writes all the elements as raw little-endian bytes.
	io.WriterTo
	// ReadFloat32 fills dst with elements [off, off+len(dst)), converted to
	// float32. Types wider than float32 are rounded to nearest even. F6 and C64
	// elements cannot be read this way.
	ReadFloat32(dst []float32, off int) error
}

// Source is a set of tensors: a [File], a [Checkpoint] or a [View].
type Source interface {
	// Names returns all the tensor names, sorted.
	Names() []string
	Tensor(name string) (Tensor, bool)
}

var (
	_ Source = (*File)(nil)
	_ Source = (*Checkpoint)(nil)
	_ Source = (*View)(nil)
)

// Optional abilities of a Tensor.
type (
	rawReader interface {
		readRaw(dst []byte, off int64) error
	}
	rawBytes interface{ raw() ([]byte, bool) }
	releaser interface{ release() }
	checker  interface{ check() error }
)

// NumElements returns the number of elements of t, 1 for a scalar.
func NumElements(t Tensor) int {
	n, err := elements(t.Shape())
	if err != nil {
		return 0
	}
	return n
}

// NumBytes returns the number of bytes t.WriteTo writes.
func NumBytes(t Tensor) int64 {
	n, err := byteSize(t.DType(), t.Shape())
	if err != nil {
		return 0
	}
	return n
}

// ReadAll returns all the elements of t as float32.
func ReadAll(t Tensor) ([]float32, error) {
	dst := make([]float32, NumElements(t))
	if err := t.ReadFloat32(dst, 0); err != nil {
		return nil, err
	}
	return dst, nil
}

// ReadInts returns all the elements of an integer or Bool tensor. A U64 element
// above the int64 range is an error.
func ReadInts(t Tensor) ([]int64, error) {
	dt := t.DType()
	switch dt {
	case Bool, U8, I8, U16, I16, U32, I32, U64, I64:
	default:
		return nil, tensorErrorf(t.Name(), "dtype %v holds no integers", dt)
	}
	raw, err := ReadBytes(t)
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(raw)/(dt.Bits()/8))
	if i := decodeInts(out, dt, raw); i >= 0 {
		return nil, tensorErrorf(t.Name(), "element %d does not fit in int64", i)
	}
	return out, nil
}

// ReadBytes returns a copy of all the elements of t as raw little-endian bytes.
func ReadBytes(t Tensor) ([]byte, error) {
	want := NumBytes(t)
	if r, ok := t.(rawReader); ok {
		b := make([]byte, want)
		if err := r.readRaw(b, 0); err != nil {
			return nil, err
		}
		return b, nil
	}
	var buf bytes.Buffer
	if _, err := t.WriteTo(&buf); err != nil {
		return nil, err
	}
	if int64(buf.Len()) != want {
		return nil, tensorErrorf(t.Name(), "wrote %d bytes, %v %v has %d", buf.Len(), t.DType(), t.Shape(), want)
	}
	return buf.Bytes(), nil
}

// Raw returns the elements of t as raw little-endian bytes without copying,
// where that is possible: tensors in memory and in mapped files. The bytes must
// not be modified; those of a file are valid until it is closed. They may start
// at any alignment. Access mapped bytes inside [Guard] where the file could be
// truncated meanwhile.
func Raw(t Tensor) ([]byte, bool) {
	if r, ok := t.(rawBytes); ok {
		return r.raw()
	}
	return nil, false
}

// ReadRaw fills dst with raw little-endian bytes of t from byte off on. It may
// be called by several goroutines at a time. A cast tensor has no raw bytes.
func ReadRaw(t Tensor, dst []byte, off int64) error {
	r, ok := t.(rawReader)
	if !ok {
		return tensorErrorf(t.Name(), "has no raw bytes to read")
	}
	if err := check(t); err != nil {
		return err
	}
	if total := NumBytes(t); off < 0 || off > total || int64(len(dst)) > total-off {
		return tensorErrorf(t.Name(), "read of bytes [%d, %d) of %d", off, off+int64(len(dst)), total)
	}
	return r.readRaw(dst, off)
}

// Release tells the system that the mapped pages of t are not needed for now,
// which takes them out of the process's resident set. The tensor stays usable.
// It does nothing for tensors that are not mapped.
func Release(t Tensor) {
	if r, ok := t.(releaser); ok {
		r.release()
	}
}

// Rename returns t under another name.
func Rename(t Tensor, name string) Tensor {
	if r, ok := t.(renamed); ok {
		t = r.Tensor
	}
	if t.Name() == name {
		return t
	}
	return renamed{t, name}
}

type renamed struct {
	Tensor
	name string
}

func (r renamed) Name() string        { return r.name }
func (r renamed) raw() ([]byte, bool) { return Raw(r.Tensor) }
func (r renamed) release()            { Release(r.Tensor) }
func (r renamed) check() error        { return check(r.Tensor) }
func (r renamed) readRaw(dst []byte, off int64) error {
	if rr, ok := r.Tensor.(rawReader); ok {
		return rr.readRaw(dst, off)
	}
	b, err := ReadBytes(r.Tensor)
	if err != nil {
		return err
	}
	copy(dst, b[off:])
	return nil
}

// check returns the error a tensor was built with, if any.
func check(t Tensor) error {
	if c, ok := t.(checker); ok {
		return c.check()
	}
	return nil
}

func tensorErrorf(name, format string, args ...any) error {
	return fmt.Errorf("checkpoint: tensor %q: "+format, append([]any{name}, args...)...)
}

func checkRange(name string, shape []int, n, off int) error {
	total, err := elements(shape)
	if err != nil {
		return tensorErrorf(name, "%w", err)
	}
	if off < 0 || off > total || n > total-off {
		return tensorErrorf(name, "read of elements [%d, %d) of %d", off, off+n, total)
	}
	return nil
}

// elements returns the product of the dimensions.
func elements(shape []int) (int, error) {
	n, zero := uint64(1), false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt {
			return 0, fmt.Errorf("shape %v overflows", shape)
		}
		n = lo
	}
	if zero {
		return 0, nil
	}
	return int(n), nil
}

// byteSize returns the size of a tensor's data.
func byteSize(dt DType, shape []int) (int64, error) {
	if !dt.Valid() {
		return 0, fmt.Errorf("invalid dtype %v", dt)
	}
	n, err := elements(shape)
	if err != nil {
		return 0, err
	}
	hi, lo := bits.Mul64(uint64(n), uint64(dt.Bits()))
	if hi != 0 {
		return 0, fmt.Errorf("shape %v of %v overflows", shape, dt)
	}
	if lo%8 != 0 {
		return 0, fmt.Errorf("shape %v of %v does not fill whole bytes", shape, dt)
	}
	return int64(lo / 8), nil
}

func cloneShape(shape []int) []int {
	if len(shape) == 0 {
		return []int{}
	}
	return slices.Clone(shape)
}
