package half

import (
	"math"
	"sync"
)

const (
	signBit = 1 << 31
	absMask = signBit - 1

	// Float32 bit patterns that bound the fp16 normal range.
	minNormal = 0x38800000 // 2^-14, the least normal half
	overflow  = 0x477ff000 // 65520, halfway from 65504 to 65536: the tie goes to infinity
	infinity  = 0x7f800000

	dropBits = 13                  // mantissa bits float32 has and fp16 has not
	dropMask = 1<<dropBits - 1     //
	halfULP  = 1<<(dropBits-1) - 1 // just under half a unit: the kept last bit decides ties
	rebias   = (127 - 15) << 23    // exponent bias difference
)

// FromF32 rounds f to fp16.
func FromF32(f float32) uint16 {
	u := math.Float32bits(f)
	a := u & absMask
	sign := uint16(u >> 16 & 0x8000)
	if a-minNormal < overflow-minNormal {
		return sign | uint16((a+halfULP+(a>>dropBits&1)-rebias)>>dropBits)
	}
	return sign | fromAbnormal(a)
}

// fromAbnormal converts the magnitudes outside the fp16 normal range.
func fromAbnormal(a uint32) uint16 {
	switch {
	case a < minNormal:
		// In [0.5, 1) float32 steps by 2^-24, the fp16 subnormal step, so the
		// addition itself rounds to the right multiple.
		return uint16(math.Float32bits(math.Float32frombits(a)+0.5) - 0x3f000000)
	case a <= infinity:
		return 0x7c00
	default:
		return 0x7e00 | uint16(a>>dropBits&0x3ff)
	}
}

// ToF32 widens h exactly. A signalling NaN comes back quiet.
func ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	a := uint32(h & 0x7fff)
	switch {
	case a >= 0x7c00:
		u := infinity | (a&0x3ff)<<dropBits
		if a > 0x7c00 {
			u |= 0x400000
		}
		return math.Float32frombits(sign | u)
	case a >= 0x400:
		return math.Float32frombits(sign | (a<<dropBits + rebias))
	default:
		return math.Float32frombits(sign | math.Float32bits(float32(a)*0x1p-24))
	}
}

// table holds ToF32 of every half: a lookup is several times faster than the
// arithmetic, and 256 KiB stays in the second-level cache.
var table = sync.OnceValue(func() *[1 << 16]float32 {
	t := new([1 << 16]float32)
	for h := range t {
		t[h] = ToF32(uint16(h))
	}
	return t
})

// F16ToF32 widens fp16 values exactly.
func F16ToF32(dst []float32, src []uint16) int {
	n := min(len(dst), len(src))
	dst, src = dst[:n], src[:n]
	t := table()
	for i, h := range src {
		dst[i] = t[h]
	}
	return n
}

// F32ToF16 rounds float32 values to fp16.
func F32ToF16(dst []uint16, src []float32) int {
	n := min(len(dst), len(src))
	dst, src = dst[:n], src[:n]
	for i, f := range src {
		u := math.Float32bits(f)
		a := u & absMask
		sign := uint16(u >> 16 & 0x8000)
		if a-minNormal < overflow-minNormal {
			dst[i] = sign | uint16((a+halfULP+(a>>dropBits&1)-rebias)>>dropBits)
		} else {
			dst[i] = sign | fromAbnormal(a)
		}
	}
	return n
}
