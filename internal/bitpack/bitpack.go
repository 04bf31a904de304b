// Package bitpack packs codes as one little-endian bit stream: code i of b bits
// takes bits [i·b, (i+1)·b). Eight codes fill b bytes.
package bitpack

import "encoding/binary"

// Pack packs codes, a multiple of 8, one in a byte, of the given width. What
// lies in dst behind them may be another worker's and is not touched.
func Pack(dst, codes []byte, bits int) {
	dst = dst[:len(codes)/8*bits]
	if bits == 8 {
		copy(dst, codes)
		return
	}
	b := uint(bits)
	for len(codes) >= 8 {
		x := binary.LittleEndian.Uint64(codes)
		x = x&0x00ff00ff00ff00ff | x>>8&0x00ff00ff00ff00ff<<b
		x = x&0x0000ffff0000ffff | x>>16&0x0000ffff0000ffff<<(2*b)
		x = x&0x00000000ffffffff | x>>32<<(4*b)
		if len(dst) >= 8 {
			binary.LittleEndian.PutUint64(dst, x)
		} else {
			for i := range bits {
				dst[i] = byte(x >> (8 * i))
			}
		}
		dst, codes = dst[bits:], codes[8:]
	}
}

// Unpack is the inverse of Pack.
func Unpack(codes, src []byte, bits int) {
	if bits == 8 {
		copy(codes, src)
		return
	}
	b := uint(bits)
	one, two, four := uint64(1)<<b-1, uint64(1)<<(2*b)-1, uint64(1)<<(4*b)-1
	one |= one<<16 | one<<32 | one<<48
	two |= two << 32
	for len(codes) >= 8 {
		var x uint64
		for i := range bits {
			x |= uint64(src[i]) << (8 * i)
		}
		x = x&four | x>>(4*b)&four<<32
		x = x&two | x>>(2*b)&two<<16
		x = x&one | x>>b&one<<8
		binary.LittleEndian.PutUint64(codes, x)
		codes, src = codes[8:], src[bits:]
	}
}
