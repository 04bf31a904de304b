package kernel

import (
	"math"
	"unsafe"

	"github.com/smelt-go/smelt/internal/half"
)

// castForms are kernels with the same bits at every level, whatever they do:
// what they give decides bytes of files. n is a multiple of 16.
type castForms struct {
	bf16ToF32 func(dst *float32, src *uint16, n int)
	bf16ToF16 func(dst, src *uint16, scale float32, n int) uint32
	maxBits   func(x *float32, n int) uint32
	maxBits16 func(x *uint16, n int) uint32
	exact     dotTiles[float32]
}

const absMask = 1<<31 - 1

// genericCast is the specification in Go, for any n. It has no tiles: the
// exact product falls back on dot.
var genericCast = castForms{
	bf16ToF32: func(dst *float32, src *uint16, n int) {
		half.BF16ToF32(unsafe.Slice(dst, n), unsafe.Slice(src, n))
	},
	bf16ToF16: func(dst, src *uint16, scale float32, n int) (peak uint32) {
		d := unsafe.Slice(dst, n)
		for i, b := range unsafe.Slice(src, n) {
			x := half.FromBF16(b) * scale
			peak = max(peak, math.Float32bits(x)&absMask)
			d[i] = half.FromF32(x)
		}
		return peak
	},
	maxBits: func(x *float32, n int) (peak uint32) {
		for _, v := range unsafe.Slice(x, n) {
			peak = max(peak, math.Float32bits(v)&absMask)
		}
		return peak
	},
	maxBits16: func(x *uint16, n int) (peak uint32) {
		for _, v := range unsafe.Slice(x, n) {
			peak = max(peak, uint32(v&0x7fff))
		}
		return peak
	},
}

// forms are those of the level in use, or the Go forms where it has none.
func forms() *castForms {
	if cur.cast != nil {
		return cur.cast
	}
	return &genericCast
}

// BF16ToF32 widens bfloat16 values; the slices have equal length.
func BF16ToF32(dst []float32, src []uint16) {
	n := len(src)
	dst = dst[:n]
	b := body(n)
	forms().bf16ToF32(ptr(dst), ptr(src), b)
	genericCast.bf16ToF32(ptr(dst[b:]), ptr(src[b:]), n-b)
}

// BF16ToF16 rounds bfloat16 values times scale to halves; the slices have
// equal length. It returns the largest magnitude before rounding, as MaxBits.
func BF16ToF16(dst, src []uint16, scale float32) uint32 {
	n := len(src)
	dst = dst[:n]
	b := body(n)
	peak := forms().bf16ToF16(ptr(dst), ptr(src), scale, b)
	return max(peak, genericCast.bf16ToF16(ptr(dst[b:]), ptr(src[b:]), scale, n-b))
}

// MaxBits is the largest magnitude of x as the bits of a float32, 0 if x is
// empty. Among magnitudes, bits are ordered like numbers; those of infinities
// and NaN come last.
func MaxBits(x []float32) uint32 {
	b := body(len(x))
	return max(forms().maxBits(ptr(x), b), genericCast.maxBits(ptr(x[b:]), len(x)-b))
}

// MaxBits16 is the largest magnitude of halves or bfloat16 values, as their
// bits, 0 if x is empty; see MaxBits.
func MaxBits16(x []uint16) uint16 {
	b := body(len(x))
	return uint16(max(forms().maxBits16(ptr(x), b), genericCast.maxBits16(ptr(x[b:]), len(x)-b)))
}

// MulExact is MulF32 with the bits of the Go form at every level: each
// product is rounded before it is added.
func MulExact(dst []float32, ldd int, x []float32, ldx, t int, w []float32, ldw, n, k int) {
	mulRows(&forms().exact, nil, dst, ldd, x, ldx, t, w, ldw, n, k)
}
