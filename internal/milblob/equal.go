package milblob

import (
	"bytes"
	"errors"
	"hash/maphash"
)

// sketch tells most blobs apart without reading much of them. Blobs with equal
// sketches are compared byte by byte.
type sketch struct {
	dtype    DType
	elements int64
	sum      uint64
}

// sampleBytes is how much of the start, the middle and the end of a blob goes
// into its sketch.
const sampleBytes = 4096

var seed = maphash.MakeSeed()

func sketchOf(b *blob, read ReadRange) (sketch, error) {
	var h maphash.Hash
	h.SetSeed(seed)
	var buf [sampleBytes]byte
	last := int64(-sampleBytes)
	for _, off := range []int64{0, b.size / 2 / alignment * alignment, max(0, b.size-sampleBytes+alignment-1) / alignment * alignment} {
		if off < last+sampleBytes {
			off = last + sampleBytes
		}
		p := buf[:max(0, min(b.size-off, sampleBytes))]
		if err := read(p, off); err != nil {
			return sketch{}, err
		}
		_, _ = h.Write(p) // never fails
		last = off
		if off+int64(len(p)) >= b.size {
			break
		}
	}
	return sketch{b.dtype, b.elements, h.Sum64()}, nil
}

// equal compares size bytes.
func equal(a, b ReadRange, size int64) (bool, error) {
	n := min(size, pieceBytes/4)
	p, q := make([]byte, n), make([]byte, n)
	for off := int64(0); off < size; off += n {
		k := min(n, size-off)
		if err := errors.Join(a(p[:k], off), b(q[:k], off)); err != nil {
			return false, err
		}
		if !bytes.Equal(p[:k], q[:k]) {
			return false, nil
		}
	}
	return true, nil
}
