package half

import (
	"math"
	"unsafe"
)

// Two float32 lanes in one 64-bit word.
const (
	lanes    = 1<<32 | 1
	laneSign = signBit * lanes
)

// RoundF16 rounds every element of x to the nearest fp16 value, in place:
// x[i] = ToF32(FromF32(x[i])).
func RoundF16(x []float32) {
	i := 0
	if len(x) >= 2 {
		if uintptr(unsafe.Pointer(&x[0]))&7 != 0 {
			x[0] = roundF16(x[0])
			x = x[1:]
		}
		pairs := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(x))), len(x)/2)
		for j, u := range pairs {
			a := u &^ laneSign
			// Neither sum can carry out of its lane: magnitudes are below 2^31.
			// The top bit of each says "at least minNormal" and "at least overflow".
			normal := a + (signBit-minNormal)*lanes
			tooBig := a + (signBit-overflow)*lanes
			if normal&^tooBig&laneSign == laneSign {
				r := (a + halfULP*lanes + (a >> dropBits & lanes)) &^ (dropMask * lanes)
				pairs[j] = u&laneSign | r
				continue
			}
			x[2*j] = roundF16(x[2*j])
			x[2*j+1] = roundF16(x[2*j+1])
		}
		i = len(pairs) * 2
	}
	for ; i < len(x); i++ {
		x[i] = roundF16(x[i])
	}
}

// roundF16 rounds one value through fp16.
func roundF16(f float32) float32 {
	u := math.Float32bits(f)
	a := u & absMask
	switch {
	case a-minNormal < overflow-minNormal:
		a = (a + halfULP + (a >> dropBits & 1)) &^ dropMask
	case a < minNormal:
		// See fromAbnormal: the addition rounds to a multiple of 2^-24.
		a = math.Float32bits(math.Float32frombits(a) + 0.5 - 0.5)
	case a <= infinity:
		a = infinity
	default:
		a = a&^dropMask | 0x400000
	}
	return math.Float32frombits(u&signBit | a)
}
