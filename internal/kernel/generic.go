package kernel

import (
	"math"
	"unsafe"

	"github.com/smelt-go/smelt/internal/half"
)

const lanes = 16

// genericLevel is the specification in Go. It has no tiles: the products fall
// back on dot and outer below.
var genericLevel = level{
	name: "generic",
	f16ToF32: func(dst *float32, src *uint16, n int) {
		half.F16ToF32(unsafe.Slice(dst, n), unsafe.Slice(src, n))
	},
	f32ToF16: func(dst *uint16, src *float32, n int) {
		half.F32ToF16(unsafe.Slice(dst, n), unsafe.Slice(src, n))
	},
	roundF16: func(x *float32, n int) { half.RoundF16(unsafe.Slice(x, n)) },
	diffF16: func(x *float32, n int) (d uint32) {
		for _, v := range unsafe.Slice(x, n) {
			d |= math.Float32bits(v) ^ math.Float32bits(half.ToF32(half.FromF32(v)))
		}
		return d
	},
	add:       func(dst, a, b *float32, n int) { zip(dst, a, b, n, func(x, y float32) float32 { return x + y }) },
	sub:       func(dst, a, b *float32, n int) { zip(dst, a, b, n, func(x, y float32) float32 { return x - y }) },
	mul:       func(dst, a, b *float32, n int) { zip(dst, a, b, n, func(x, y float32) float32 { return x * y }) },
	addScalar: func(dst, a *float32, c float32, n int) { each(dst, a, n, func(x float32) float32 { return x + c }) },
	mulScalar: func(dst, a *float32, c float32, n int) { each(dst, a, n, func(x float32) float32 { return x * c }) },
	scaleMul: func(dst, a, b *float32, c float32, n int) {
		zip(dst, a, b, n, func(x, y float32) float32 { return float32(x*c) * y })
	},
	sumSquares: func(x *float32, n int) float32 {
		v := unsafe.Slice(x, n)
		return dot(v, v)
	},
	maxOf: func(x *float32, n int) float32 {
		m := float32(math.Inf(-1))
		for _, v := range unsafe.Slice(x, n) {
			if v > m {
				m = v
			}
		}
		return m
	},
	expShift: func(dst, x *float32, c float32, n int) float32 {
		each(dst, x, n, func(v float32) float32 { return exp(v - c) })
		var acc [lanes]float32
		for i, v := range unsafe.Slice(dst, n) {
			acc[i%lanes] += v
		}
		return sum(&acc)
	},
	silu: func(dst, x *float32, n int) {
		each(dst, x, n, func(v float32) float32 { return v / (1 + exp(-v)) })
	},
	geluTanh: func(dst, x *float32, n int) {
		each(dst, x, n, func(v float32) float32 { return v / (1 + exp(-geluArg(v))) })
	},
}

func zip(dst, a, b *float32, n int, op func(x, y float32) float32) {
	d, y := unsafe.Slice(dst, n), unsafe.Slice(b, n)
	for i, x := range unsafe.Slice(a, n) {
		d[i] = op(x, y[i])
	}
}

func each(dst, a *float32, n int, op func(x float32) float32) {
	d := unsafe.Slice(dst, n)
	for i, x := range unsafe.Slice(a, n) {
		d[i] = op(x)
	}
}

func exp(x float32) float32 { return float32(math.Exp(float64(x))) }

// geluArg is 2u in gelu(x) ≈ x·σ(2u), u = √(2/π)(x + 0.044715x³).
func geluArg(x float32) float32 {
	const c = 0.7978845608028654 // √(2/π)
	v := float64(x)
	return float32(2 * c * (v + 0.044715*v*v*v))
}

// sum adds the lanes in the order of the specification.
func sum(acc *[lanes]float32) float32 {
	for d := lanes / 2; d > 0; d /= 2 {
		for j := range d {
			acc[j] += acc[j+d]
		}
	}
	return acc[0]
}

// dot is the inner product in 16 lanes.
func dot(x, w []float32) float32 {
	var acc [lanes]float32
	for len(x) >= lanes && len(w) >= lanes {
		a, b := (*[lanes]float32)(x), (*[lanes]float32)(w)
		for j := range lanes {
			acc[j] += float32(a[j] * b[j])
		}
		x, w = x[lanes:], w[lanes:]
	}
	for j := range min(len(x), len(w)) {
		acc[j] += float32(x[j] * w[j])
	}
	return sum(&acc)
}

// outer adds p[i]·v[i,:] to a zeroed dst in ascending order of i.
func outer(dst, p, v []float32, ldv int) {
	clear(dst)
	for i, a := range p {
		row := v[i*ldv:][:len(dst)]
		for j, b := range row {
			dst[j] += float32(a * b)
		}
	}
}
