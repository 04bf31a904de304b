package checkpoint

import (
	"io"
	"sync"
)

// chunkBytes is the unit of streaming: small enough to stay in the
// second-level cache between reading and converting.
const chunkBytes = 256 << 10

var chunks = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// readFloat32 converts elements [off, off+len(dst)) chunk by chunk.
func readFloat32(t Tensor, r rawReader, dst []float32, off int) error {
	if err := checkRange(t.Name(), t.Shape(), len(dst), off); err != nil {
		return err
	}
	dt := t.DType()
	if !readable(dt) {
		return tensorErrorf(t.Name(), "dtype %v cannot be read as float32 (only its raw bytes can)", dt)
	}
	if m, ok := t.(*memoryTensor); ok && dt != F4 {
		size := dt.Bits() / 8
		return decodeFloat32(dst, dt, m.data[off*size:(off+len(dst))*size])
	}
	buf := chunks.Get().(*[chunkBytes]byte)
	defer chunks.Put(buf)
	bits := dt.Bits()
	if off&1 == 1 && bits == 4 && len(dst) > 0 {
		if err := r.readRaw(buf[:1], int64(off/2)); err != nil {
			return err
		}
		dst[0] = float4[buf[0]>>4]
		dst, off = dst[1:], off+1
	}
	for len(dst) > 0 {
		n := min(len(dst), chunkBytes*8/bits)
		b := buf[:(n*bits+7)/8]
		if err := r.readRaw(b, int64(off)*int64(bits)/8); err != nil {
			return err
		}
		if err := decodeFloat32(dst[:n], dt, b); err != nil {
			return tensorErrorf(t.Name(), "%w", err)
		}
		dst, off = dst[n:], off+n
	}
	return nil
}

// copyBytes is the unit of copying: files take large writes faster.
const copyBytes = 1 << 20

var copies = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// writeRaw copies size bytes of r to w piece by piece.
func writeRaw(w io.Writer, r rawReader, size int64) (int64, error) {
	buf := copies.Get().(*[copyBytes]byte)
	defer copies.Put(buf)
	var done int64
	for done < size {
		b := buf[:min(size-done, copyBytes)]
		if err := r.readRaw(b, done); err != nil {
			return done, err
		}
		n, err := w.Write(b)
		done += int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
