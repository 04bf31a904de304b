package kernel

import (
	"sync"
	"unsafe"
)

// body is the part of n that the vector forms take.
func body(n int) int { return n &^ (lanes - 1) }

func ptr[T any](s []T) *T { return unsafe.SliceData(s) }

// F16ToF32 widens halves; the slices have equal length.
func F16ToF32(dst []float32, src []uint16) {
	n := len(src)
	dst = dst[:n]
	b := body(n)
	cur.f16ToF32(ptr(dst), ptr(src), b)
	genericLevel.f16ToF32(ptr(dst[b:]), ptr(src[b:]), n-b)
}

// F32ToF16 rounds to halves; the slices have equal length.
func F32ToF16(dst []uint16, src []float32) {
	n := len(src)
	dst = dst[:n]
	b := body(n)
	cur.f32ToF16(ptr(dst), ptr(src), b)
	genericLevel.f32ToF16(ptr(dst[b:]), ptr(src[b:]), n-b)
}

// RoundF16 rounds every element to the nearest fp16 value.
func RoundF16(x []float32) {
	b := body(len(x))
	cur.roundF16(ptr(x), b)
	if b < len(x) {
		genericLevel.roundF16(ptr(x[b:]), len(x)-b)
	}
}

// IsF16 reports whether RoundF16 would leave x as it is.
func IsF16(x []float32) bool {
	const chunk = 1 << 12
	for len(x) >= chunk {
		if cur.diffF16(ptr(x), chunk) != 0 {
			return false
		}
		x = x[chunk:]
	}
	b := body(len(x))
	return cur.diffF16(ptr(x), b)|genericLevel.diffF16(ptr(x[b:]), len(x)-b) == 0
}

// Add stores a+b. dst may be a or b, as in all functions below.
func Add(dst, a, b []float32) { binary(cur.add, genericLevel.add, dst, a, b) }

// Sub stores a-b.
func Sub(dst, a, b []float32) { binary(cur.sub, genericLevel.sub, dst, a, b) }

// Mul stores a·b.
func Mul(dst, a, b []float32) { binary(cur.mul, genericLevel.mul, dst, a, b) }

func binary(f, tail func(dst, a, b *float32, n int), dst, a, b []float32) {
	n := len(dst)
	a, b = a[:n], b[:n]
	k := body(n)
	f(ptr(dst), ptr(a), ptr(b), k)
	if k < n {
		tail(ptr(dst[k:]), ptr(a[k:]), ptr(b[k:]), n-k)
	}
}

// AddScalar stores a+c.
func AddScalar(dst, a []float32, c float32) {
	n := len(dst)
	k := body(n)
	cur.addScalar(ptr(dst), ptr(a[:n]), c, k)
	if k < n {
		genericLevel.addScalar(ptr(dst[k:]), ptr(a[k:]), c, n-k)
	}
}

// MulScalar stores a·c.
func MulScalar(dst, a []float32, c float32) {
	n := len(dst)
	k := body(n)
	cur.mulScalar(ptr(dst), ptr(a[:n]), c, k)
	if k < n {
		genericLevel.mulScalar(ptr(dst[k:]), ptr(a[k:]), c, n-k)
	}
}

// ScaleMul stores (a·c)·b.
func ScaleMul(dst, a, b []float32, c float32) {
	n := len(dst)
	a, b = a[:n], b[:n]
	k := body(n)
	cur.scaleMul(ptr(dst), ptr(a), ptr(b), c, k)
	if k < n {
		genericLevel.scaleMul(ptr(dst[k:]), ptr(a[k:]), ptr(b[k:]), c, n-k)
	}
}

// pads lends buffers for the ends of arrays where the Go form would not give
// the bits of the vector form.
var pads = sync.Pool{New: func() any { return new([2 * lanes]float32) }}

// unary applies f to whole vectors, the last one padded.
func unary(f func(dst, x *float32, n int), dst, x []float32) {
	n := len(dst)
	x = x[:n]
	k := body(n)
	f(ptr(dst), ptr(x), k)
	if k < n {
		p := pads.Get().(*[2 * lanes]float32)
		clear(p[copy(p[:lanes], x[k:]):lanes])
		f(&p[lanes], &p[0], lanes)
		copy(dst[k:], p[lanes:])
		pads.Put(p)
	}
}

// Silu stores x·σ(x).
func Silu(dst, x []float32) { unary(cur.silu, dst, x) }

// GeluTanh stores 0.5x(1+tanh(√(2/π)(x+0.044715x³))).
func GeluTanh(dst, x []float32) { unary(cur.geluTanh, dst, x) }

// SumSquares adds the squares of x.
func SumSquares(x []float32) float32 {
	if len(x)%lanes == 0 {
		return cur.sumSquares(ptr(x), len(x))
	}
	// A dot product pads its rows.
	p := pads.Get().(*[2 * lanes]float32)
	defer pads.Put(p)
	MulF32(p[:1], 1, x, len(x), 1, x, len(x), 1, len(x))
	return p[0]
}

// Max is the largest element of x, NaN left out; -Inf if there is none.
func Max(x []float32) float32 {
	k := body(len(x))
	m := cur.maxOf(ptr(x), k)
	if k < len(x) {
		m = max(m, genericLevel.maxOf(ptr(x[k:]), len(x)-k))
	}
	return m
}

// ArgMax is the first index of the largest element, NaN left out; 0 if there
// is none.
func ArgMax(x []float32) int {
	m := Max(x)
	for i, v := range x {
		if v == m {
			return i
		}
	}
	return 0
}
