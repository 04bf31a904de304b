package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// exp prepares v = eᵛ in place: n = round(v·log₂e), a polynomial of degree 7
// on the remainder |r| ≤ ln2/2, and two multiplications by powers of two, so
// that subnormal results round once. Below -104 the result is 0, above 88.73
// infinity; NaN stays NaN. The error is below 1 ulp of float32.
func (s isa) exp() func(v reg.VecVirtual) {
	f := func(x float64) reg.VecVirtual { return s.constant(math.Float32bits(float32(x))) }
	lo, hi := f(-104), f(89)
	log2e := f(math.Log2E)
	ln2hi, ln2lo := s.constant(0x3f317200), f(math.Ln2-float64(math.Float32frombits(0x3f317200)))
	var c []reg.VecVirtual
	fact := 5040.0
	for k := 7; k >= 0; k-- {
		c = append(c, f(1/fact))
		fact /= float64(max(k, 1))
	}
	bias := s.constant(127)
	n, p, t := s.vec(), s.vec(), s.vec()
	return func(v reg.VecVirtual) {
		// The operand order keeps NaN: the second source wins.
		VMINPS(v, hi, v)
		VMAXPS(v, lo, v)
		VMULPS(log2e, v, n)
		if s.width == 16 {
			VRNDSCALEPS(U8(0), n, n)
		} else {
			VROUNDPS(U8(0), n, n)
		}
		VFNMADD231PS(ln2hi, n, v)
		VFNMADD231PS(ln2lo, n, v)
		VMOVAPS(c[0], p)
		for _, k := range c[1:] {
			VFMADD213PS(k, v, p)
		}
		// 2ⁿ = 2^(n>>1) · 2^(n-n>>1)
		VCVTPS2DQ(n, n)
		VPSRAD(U8(1), n, t)
		VPSUBD(t, n, n)
		VPADDD(bias, t, t)
		VPSLLD(U8(23), t, t)
		VMULPS(t, p, p)
		VPADDD(bias, n, n)
		VPSLLD(U8(23), n, n)
		VMULPS(n, p, v)
	}
}
