package half

import "math"

// ToBF16 rounds f to bfloat16.
func ToBF16(f float32) uint16 {
	u := math.Float32bits(f)
	if u&absMask > infinity {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// FromBF16 widens b exactly.
func FromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// BF16ToF32 widens bfloat16 values exactly; NaN payloads are kept as they are.
func BF16ToF32(dst []float32, src []uint16) int {
	n := min(len(dst), len(src))
	dst, src = dst[:n], src[:n]
	for i, b := range src {
		dst[i] = math.Float32frombits(uint32(b) << 16)
	}
	return n
}

// F32ToBF16 rounds float32 values to bfloat16.
func F32ToBF16(dst []uint16, src []float32) int {
	n := min(len(dst), len(src))
	dst, src = dst[:n], src[:n]
	for i, f := range src {
		dst[i] = ToBF16(f)
	}
	return n
}
