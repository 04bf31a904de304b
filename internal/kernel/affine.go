package kernel

import (
	"math"
	"unsafe"
)

// affineForms are kernels of quantization: the same bits at every level. n is
// a multiple of 16.
type affineForms struct {
	rang    func(x *float32, n int) (lo, hi float32)
	code    func(dst *byte, x *float32, scale, bias float32, top int32, n int)
	moments func(x *float32, bias, inv, top, center float32, n int) (q, qq, qw float32)
	errors  func(codes *byte, x *float32, scale, bias float32, n int) float32
}

// Adding magic rounds to an integer, ties to even, in the low bits.
const (
	magic     = 3 << 22
	magicBits = 0x4b400000
)

var genericAffine = affineForms{
	rang: func(x *float32, n int) (lo, hi float32) {
		lo, hi = float32(math.Inf(1)), float32(math.Inf(-1))
		for _, v := range unsafe.Slice(x, n) {
			if v < lo {
				lo = v
			}
			if v > hi {
				hi = v
			}
		}
		return lo, hi
	},
	code: func(dst *byte, x *float32, scale, bias float32, top int32, n int) {
		d := unsafe.Slice(dst, n)
		for i, v := range unsafe.Slice(x, n) {
			q := int32(math.Float32bits((v-bias)/scale+magic)) - magicBits
			d[i] = byte(min(max(q, 0), top))
		}
	},
	moments: func(x *float32, bias, inv, top, center float32, n int) (float32, float32, float32) {
		var q, qq, qw [lanes]float32
		for i, w := range unsafe.Slice(x, n) {
			v := float32((w - bias) * inv)
			if v < 0 {
				v = 0
			} else if v > top {
				v = top
			}
			v = float32(v+magic) - magic
			q[i%lanes] += v
			qq[i%lanes] += float32(v * v)
			qw[i%lanes] += float32((w - center) * v)
		}
		return sum(&q), sum(&qq), sum(&qw)
	},
	errors: func(codes *byte, x *float32, scale, bias float32, n int) float32 {
		var acc [lanes]float32
		c := unsafe.Slice(codes, n)
		for i, w := range unsafe.Slice(x, n) {
			d := float32(float32(c[i])*scale) + bias - w
			acc[i%lanes] += float32(d * d)
		}
		return sum(&acc)
	},
}

// affine are the forms of the level in use.
func affine() *affineForms {
	if cur.affine != nil {
		return cur.affine
	}
	return &genericAffine
}

// AffineRange finds the range of finite numbers; len(x) is a multiple of 16
// and not 0.
func AffineRange(x []float32) (lo, hi float32) { return affine().rang(ptr(x), len(x)) }

// AffineCode stores clip(rint((x − bias)/scale), 0, top), ties to even; quotients
// are below 2²² in magnitude. dst and x have equal length, a multiple of 16.
func AffineCode(dst []byte, x []float32, scale, bias float32, top int) {
	affine().code(ptr(dst[:len(x)]), ptr(x), scale, bias, int32(top), len(x))
}

// AffineMoments sums over the codes q = rint(clip((x − bias)·inv, 0, top)) in 16
// lanes: q, q² and q·(x − center). len(x) is a multiple of 16.
func AffineMoments(x []float32, bias, inv float32, top int, center float32) (q, qq, qw float32) {
	return affine().moments(ptr(x), bias, inv, float32(top), center, len(x))
}

// AffineError is Σ (scale·code + bias − x)², in 16 lanes, each product rounded.
// codes and x have equal length, a multiple of 16.
func AffineError(codes []byte, x []float32, scale, bias float32) float32 {
	return affine().errors(ptr(codes[:len(x)]), ptr(x), scale, bias, len(x))
}
