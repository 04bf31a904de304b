package milblob

import "fmt"

// Pack writes the low bits of each code as one stream, least significant bit
// first. Unused bits of the last byte are zero. Signed codes are passed in two's
// complement. bits is 1, 2, 3, 4, 6 or 8.
func Pack(codes []byte, bits int) []byte {
	if bits == 8 {
		return append([]byte(nil), codes...)
	}
	out := make([]byte, (len(codes)*bits+7)/8)
	mask := byte(1)<<bits - 1
	at := 0
	for _, c := range codes {
		v := uint16(c&mask) << (at & 7)
		out[at>>3] |= byte(v)
		if v>>8 != 0 {
			out[at>>3+1] |= byte(v >> 8)
		}
		at += bits
	}
	return out
}

// Unpack reads len(dst) codes, starting with element first of a packed stream.
// Codes are unsigned; see SignExtend4 for int4.
func Unpack(dst, packed []byte, bits, first int) error {
	if need := ((first+len(dst))*bits + 7) / 8; first < 0 || need > len(packed) {
		return fmt.Errorf("milblob: unpack: elements %d to %d of %d bits need %d bytes, have %d",
			first, first+len(dst), bits, need, len(packed))
	}
	switch bits {
	case 8:
		copy(dst, packed[first:])
		return nil
	case 1, 2, 3, 4, 6:
	default:
		return fmt.Errorf("milblob: unpack: no %d-bit elements (1, 2, 3, 4, 6, 8)", bits)
	}
	mask := byte(1)<<bits - 1
	at := first * bits
	for i := range dst {
		v := uint16(packed[at>>3])
		if at&7+bits > 8 {
			v |= uint16(packed[at>>3+1]) << 8
		}
		dst[i] = byte(v>>(at&7)) & mask
		at += bits
	}
	return nil
}

// SignExtend4 turns 4-bit codes into int8 values in place.
func SignExtend4(codes []byte) {
	for i, c := range codes {
		codes[i] = byte(int8(c<<4) >> 4)
	}
}
