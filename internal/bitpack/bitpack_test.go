package bitpack

import (
	"bytes"
	"testing"
)

// Workers write neighbouring rows at the same time.
func TestPackStaysInside(t *testing.T) {
	codes := make([]byte, 24)
	for bits := 1; bits <= 8; bits++ {
		for i := range codes {
			codes[i] = byte(i*37) & (1<<bits - 1)
		}
		size := len(codes) / 8 * bits
		dst := bytes.Repeat([]byte{0xa5}, size+16)
		Pack(dst, codes, bits)
		if rest := dst[size:]; !bytes.Equal(rest, bytes.Repeat([]byte{0xa5}, len(rest))) {
			t.Errorf("%d bits: what lies behind %d bytes became %x", bits, size, rest)
		}
		back := make([]byte, len(codes))
		Unpack(back, dst[:size], bits)
		if !bytes.Equal(back, codes) {
			t.Errorf("%d bits: %v, want %v", bits, back, codes)
		}
	}
}
