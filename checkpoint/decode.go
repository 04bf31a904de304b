package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/littleendian"
)

// decodeFloat32 converts len(dst) elements of little-endian src. src may have
// any alignment. For F4, src starts at a byte boundary.
func decodeFloat32(dst []float32, dt DType, src []byte) error {
	switch dt {
	case F32:
		if s, ok := littleendian.View[float32](src); ok {
			copy(dst, s)
			return nil
		}
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case BF16:
		each16(dst, src, kernel.BF16ToF32)
	case F16:
		each16(dst, src, kernel.F16ToF32)
	case F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	case Bool:
		for i := range dst {
			dst[i] = 0
			if src[i] != 0 {
				dst[i] = 1
			}
		}
	case U8:
		for i := range dst {
			dst[i] = float32(src[i])
		}
	case I8:
		for i := range dst {
			dst[i] = float32(int8(src[i]))
		}
	case U16:
		for i := range dst {
			dst[i] = float32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case I16:
		for i := range dst {
			dst[i] = float32(int16(binary.LittleEndian.Uint16(src[2*i:])))
		}
	case U32:
		for i := range dst {
			dst[i] = float32(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case I32:
		for i := range dst {
			dst[i] = float32(int32(binary.LittleEndian.Uint32(src[4*i:])))
		}
	case U64:
		for i := range dst {
			dst[i] = float32(binary.LittleEndian.Uint64(src[8*i:]))
		}
	case I64:
		for i := range dst {
			dst[i] = float32(int64(binary.LittleEndian.Uint64(src[8*i:])))
		}
	case F8E4M3, F8E5M2, F8E8M0, F8E4M3FNUZ, F8E5M2FNUZ:
		t := float8Tables()[dt]
		for i := range dst {
			dst[i] = t[src[i]]
		}
	case F4:
		for i := range dst {
			dst[i] = float4[src[i/2]>>(4*(i&1))&15]
		}
	default:
		return fmt.Errorf("dtype %v cannot be read as float32 (only its raw bytes can)", dt)
	}
	return nil
}

// readable reports whether decodeFloat32 knows dt.
func readable(dt DType) bool {
	return dt.Valid() && dt != F6E2M3 && dt != F6E3M2 && dt != C64
}

// each16 converts 16-bit elements, through an aligned copy where needed.
func each16(dst []float32, src []byte, convert func([]float32, []uint16)) {
	if s, ok := littleendian.View[uint16](src); ok {
		convert(dst, s)
		return
	}
	var buf [512]uint16
	for len(dst) > 0 {
		n := min(len(dst), len(buf))
		for i := range buf[:n] {
			buf[i] = binary.LittleEndian.Uint16(src[2*i:])
		}
		convert(dst, buf[:n])
		dst, src = dst[n:], src[2*n:]
	}
}

// encode returns numbers as little-endian bytes, sharing memory where the host
// allows it.
func encode[T float32 | int32 | int64](data []T) []byte {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if littleendian.Host {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*size)
	}
	b, err := binary.Append(make([]byte, 0, len(data)*size), binary.LittleEndian, data)
	if err != nil {
		return nil
	}
	return b
}

// decodeInts converts integer elements and returns -1, or the index of the
// first that does not fit.
func decodeInts(dst []int64, dt DType, src []byte) int {
	le := binary.LittleEndian
	for i := range dst {
		switch dt {
		case Bool:
			if src[i] != 0 {
				dst[i] = 1
			}
		case U8:
			dst[i] = int64(src[i])
		case I8:
			dst[i] = int64(int8(src[i]))
		case U16:
			dst[i] = int64(le.Uint16(src[2*i:]))
		case I16:
			dst[i] = int64(int16(le.Uint16(src[2*i:])))
		case U32:
			dst[i] = int64(le.Uint32(src[4*i:]))
		case I32:
			dst[i] = int64(int32(le.Uint32(src[4*i:])))
		case I64:
			dst[i] = int64(le.Uint64(src[8*i:]))
		case U64:
			u := le.Uint64(src[8*i:])
			if u > math.MaxInt64 {
				return i
			}
			dst[i] = int64(u)
		}
	}
	return -1
}

// float4 lists the E2M1 values of the OCP Microscaling specification.
var float4 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

// float8Tables holds the value of every 8-bit float. E4M3 and E5M2 follow the
// OCP 8-bit floating point specification, E8M0 the OCP Microscaling one.
var float8Tables = sync.OnceValue(func() map[DType]*[256]float32 {
	nan := float32(math.NaN())
	fill := func(value func(b int) float32) *[256]float32 {
		t := new([256]float32)
		for b := range t {
			t[b] = value(b)
		}
		return t
	}
	// small decodes sign, exponent and mantissa without special values.
	small := func(b, mantissaBits, bias int) float32 {
		m := b & (1<<mantissaBits - 1)
		e := b & 0x7f >> mantissaBits
		v := math.Ldexp(float64(m), 1-bias-mantissaBits)
		if e > 0 {
			v = math.Ldexp(float64(m|1<<mantissaBits), e-bias-mantissaBits)
		}
		if b&0x80 != 0 {
			v = math.Copysign(v, -1)
		}
		return float32(v)
	}
	return map[DType]*[256]float32{
		F8E4M3: fill(func(b int) float32 {
			if b&0x7f == 0x7f {
				return nan
			}
			return small(b, 3, 7)
		}),
		F8E5M2: fill(func(b int) float32 {
			switch {
			case b&0x7f > 0x7c:
				return nan
			case b&0x7f == 0x7c:
				return float32(math.Inf(1 - b>>6&2))
			}
			return small(b, 2, 15)
		}),
		F8E8M0: fill(func(b int) float32 {
			if b == 0xff {
				return nan
			}
			return float32(math.Ldexp(1, b-127))
		}),
		F8E4M3FNUZ: fill(func(b int) float32 {
			if b == 0x80 {
				return nan
			}
			return small(b, 3, 8)
		}),
		F8E5M2FNUZ: fill(func(b int) float32 {
			if b == 0x80 {
				return nan
			}
			return small(b, 2, 16)
		}),
	}
})
