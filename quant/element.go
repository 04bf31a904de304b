package quant

import (
	"encoding/binary"
	"math"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/half"
)

// round is x as an element of type dt holds it.
func round(x float32, dt checkpoint.DType) float32 {
	switch dt {
	case checkpoint.BF16:
		return half.FromBF16(half.ToBF16(x))
	case checkpoint.F16:
		return half.ToF32(half.FromF32(x))
	}
	return x
}

// putElement stores element i of type dt.
func putElement(dst []byte, i int, x float32, dt checkpoint.DType) {
	switch dt {
	case checkpoint.BF16:
		binary.LittleEndian.PutUint16(dst[2*i:], half.ToBF16(x))
	case checkpoint.F16:
		binary.LittleEndian.PutUint16(dst[2*i:], half.FromF32(x))
	default:
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
	}
}

// element loads element i of type dt.
func element(src []byte, i int, dt checkpoint.DType) float32 {
	switch dt {
	case checkpoint.BF16:
		return half.FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
	case checkpoint.F16:
		return half.ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
}

// neighbour is the element of type dt next to x, away from zero (by 1) or
// towards it (by −1). x is such an element.
func neighbour(x float32, by int32, dt checkpoint.DType) float32 {
	switch dt {
	case checkpoint.BF16:
		return half.FromBF16(uint16(int32(half.ToBF16(x)) + by))
	case checkpoint.F16:
		return half.ToF32(uint16(int32(half.FromF32(x)) + by))
	}
	return math.Float32frombits(uint32(int32(math.Float32bits(x)) + by))
}
