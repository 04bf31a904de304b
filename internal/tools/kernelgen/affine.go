package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// magic rounds to an integer, ties to even, where it is added.
const (
	magic     = 3 << 22
	magicBits = 0x4b400000
)

// affineKernels find codes and scales of weights. They decide bytes of files:
// products are rounded before they are added, as in the Go form.
func affineKernels(s isa) {
	s.stream("affineRange", "func(x *float32, n int) (lo, hi float32)", "finds the range of numbers.", []string{"x"}, []int{4},
		func() (func(int, mem), func()) {
			inf := math.Float32bits(float32(math.Inf(1)))
			lo, hi, v := s.constant(inf), s.constant(inf|1<<31), s.vec()
			return func(at int, m mem) {
					VMOVUPS(m(0, at), v)
					VMINPS(v, lo, lo)
					VMAXPS(v, hi, hi)
				}, func() {
					Store(s.fold(lo, func(a, b reg.VecVirtual) { VMINPS(a, b, b) }), ReturnIndex(0))
					Store(s.fold(hi, func(a, b reg.VecVirtual) { VMAXPS(a, b, b) }), ReturnIndex(1))
				}
		})
	s.stream("affineCode", "func(dst *byte, x *float32, scale, bias float32, top int32, n int)", "stores codes.", []string{"dst", "x"}, []int{1, 4},
		func() (func(int, mem), func()) {
			scale, bias, top := s.broadcastParam("scale"), s.broadcastParam("bias"), s.vec()
			x := XMM()
			VMOVD(Load(Param("top"), GP32()), x)
			VBROADCASTSS(x, top)
			round, base, zero, v := s.constant(math.Float32bits(magic)), s.constant(magicBits), s.vec(), s.vec()
			s.zero(zero)
			return func(at int, m mem) {
				VMOVUPS(m(1, at), v)
				VSUBPS(bias, v, v)
				VDIVPS(scale, v, v)
				VADDPS(round, v, v)
				VPSUBD(base, v, v)
				VPMAXSD(zero, v, v)
				VPMINSD(top, v, v)
				if s.width == 16 {
					VPMOVDB(v, m(0, at))
					return
				}
				VEXTRACTI128(U8(1), v, x)
				VPACKUSDW(x, v.AsX(), x)
				VPACKUSWB(x, x, x)
				VMOVQ(x, m(0, at))
			}, nil
		})
	s.stream("affineMoments", "func(x *float32, bias, inv, top, center float32, n int) (q, qq, qw float32)", "sums codes.", []string{"x"}, []int{4},
		func() (func(int, mem), func()) {
			bias, inv, top, center := s.broadcastParam("bias"), s.broadcastParam("inv"), s.broadcastParam("top"), s.broadcastParam("center")
			round, zero, v, w := s.constant(math.Float32bits(magic)), s.vec(), s.vec(), s.vec()
			s.zero(zero)
			var acc [3][]reg.VecVirtual
			for i := range acc {
				acc[i] = s.vecs(s.parts())
				for _, a := range acc[i] {
					s.zero(a)
				}
			}
			return func(at int, m mem) {
					p := at / s.width
					VMOVUPS(m(0, at), w)
					VSUBPS(bias, w, v)
					VMULPS(inv, v, v)
					VMAXPS(zero, v, v)
					VMINPS(top, v, v)
					VADDPS(round, v, v)
					VSUBPS(round, v, v)
					VSUBPS(center, w, w)
					VMULPS(v, w, w)
					VADDPS(v, acc[0][p], acc[0][p])
					VADDPS(w, acc[2][p], acc[2][p])
					VMULPS(v, v, v)
					VADDPS(v, acc[1][p], acc[1][p])
				}, func() {
					for i := range acc {
						Store(s.reduce(acc[i]), ReturnIndex(i))
					}
				}
		})
	s.stream("affineError", "func(codes *byte, x *float32, scale, bias float32, n int) float32", "sums squared errors.", []string{"codes", "x"}, []int{1, 4},
		func() (func(int, mem), func()) {
			scale, bias, v := s.broadcastParam("scale"), s.broadcastParam("bias"), s.vec()
			acc := s.vecs(s.parts())
			for _, a := range acc {
				s.zero(a)
			}
			return func(at int, m mem) {
				VPMOVZXBD(m(0, at), v)
				VCVTDQ2PS(v, v)
				VMULPS(scale, v, v)
				VADDPS(bias, v, v)
				VSUBPS(m(1, at), v, v)
				VMULPS(v, v, v)
				VADDPS(v, acc[at/s.width], acc[at/s.width])
			}, func() { Store(s.reduce(acc), ReturnIndex(0)) }
		})
}
