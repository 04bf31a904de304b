package checkpoint

import (
	"io"
)

// NewFloat32 returns an F32 tensor over data, which it shares: later changes of
// data show. If shape does not describe len(data) elements, every read and
// write of the tensor returns an error.
func NewFloat32(name string, shape []int, data []float32) Tensor {
	return newMemory(name, F32, shape, encode(data))
}

// NewInt32 is NewFloat32 for I32.
func NewInt32(name string, shape []int, data []int32) Tensor {
	return newMemory(name, I32, shape, encode(data))
}

// NewInt64 is NewFloat32 for I64.
func NewInt64(name string, shape []int, data []int64) Tensor {
	return newMemory(name, I64, shape, encode(data))
}

// NewRaw returns a tensor over raw little-endian bytes, which it shares.
func NewRaw(name string, dt DType, shape []int, data []byte) (Tensor, error) {
	t := newMemory(name, dt, shape, data)
	if t.err != nil {
		return nil, t.err
	}
	return t, nil
}

func newMemory(name string, dt DType, shape []int, data []byte) *memoryTensor {
	t := &memoryTensor{name: name, dtype: dt, shape: cloneShape(shape), data: data}
	n, err := byteSize(dt, shape)
	switch {
	case err != nil:
		t.err = tensorErrorf(name, "%w", err)
	case n != int64(len(data)):
		t.err = tensorErrorf(name, "%v %v needs %d bytes, data has %d", dt, t.shape, n, len(data))
	}
	return t
}

type memoryTensor struct {
	name  string
	dtype DType
	shape []int
	data  []byte
	err   error
}

func (t *memoryTensor) Name() string        { return t.name }
func (t *memoryTensor) DType() DType        { return t.dtype }
func (t *memoryTensor) Shape() []int        { return t.shape }
func (t *memoryTensor) check() error        { return t.err }
func (t *memoryTensor) raw() ([]byte, bool) { return t.data, t.err == nil }

func (t *memoryTensor) WriteTo(w io.Writer) (int64, error) {
	if t.err != nil {
		return 0, t.err
	}
	n, err := w.Write(t.data)
	return int64(n), err
}

func (t *memoryTensor) readRaw(dst []byte, off int64) error {
	if t.err != nil {
		return t.err
	}
	copy(dst, t.data[off:])
	return nil
}

func (t *memoryTensor) ReadFloat32(dst []float32, off int) error {
	if t.err != nil {
		return t.err
	}
	return readFloat32(t, t, dst, off)
}
