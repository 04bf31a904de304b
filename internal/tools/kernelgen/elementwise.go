package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func elementwiseKernels(s isa) {
	binary := func(name, doc string, op func(a Mem, b, dst reg.VecVirtual)) {
		s.stream(name, "func(dst, a, b *float32, n int)", doc, []string{"dst", "a", "b"}, []int{4, 4, 4},
			func() (func(int, mem), func()) {
				v := s.vec()
				return func(at int, m mem) {
					VMOVUPS(m(1, at), v)
					op(m(2, at), v, v)
					VMOVUPS(v, m(0, at))
				}, nil
			})
	}
	binary("add", "adds.", func(m Mem, a, d reg.VecVirtual) { VADDPS(m, a, d) })
	binary("sub", "subtracts b.", func(m Mem, a, d reg.VecVirtual) { VSUBPS(m, a, d) })
	binary("mul", "multiplies.", func(m Mem, a, d reg.VecVirtual) { VMULPS(m, a, d) })

	scalar := func(name, doc string, op func(c, b, dst reg.VecVirtual)) {
		s.stream(name, "func(dst, a *float32, c float32, n int)", doc, []string{"dst", "a"}, []int{4, 4},
			func() (func(int, mem), func()) {
				c, v := s.broadcastParam("c"), s.vec()
				return func(at int, m mem) {
					VMOVUPS(m(1, at), v)
					op(c, v, v)
					VMOVUPS(v, m(0, at))
				}, nil
			})
	}
	scalar("addScalar", "adds c.", func(c, a, d reg.VecVirtual) { VADDPS(c, a, d) })
	scalar("mulScalar", "multiplies by c.", func(c, a, d reg.VecVirtual) { VMULPS(c, a, d) })

	s.stream("scaleMul", "func(dst, a, b *float32, c float32, n int)", "is (a·c)·b.", []string{"dst", "a", "b"}, []int{4, 4, 4},
		func() (func(int, mem), func()) {
			c, v := s.broadcastParam("c"), s.vec()
			return func(at int, m mem) {
				VMULPS(m(1, at), c, v)
				VMULPS(m(2, at), v, v)
				VMOVUPS(v, m(0, at))
			}, nil
		})

	s.stream("sumSquares", "func(x *float32, n int) float32", "sums squares.", []string{"x"}, []int{4},
		func() (func(int, mem), func()) {
			acc, v := s.vecs(s.parts()), s.vec()
			for _, a := range acc {
				s.zero(a)
			}
			return func(at int, m mem) {
				VMOVUPS(m(0, at), v)
				VFMADD231PS(v, v, acc[at/s.width])
			}, func() { Store(s.reduce(acc), ReturnIndex(0)) }
		})

	// VMAXPS returns its second source, here the accumulator, if either is
	// NaN: NaN elements are passed over.
	s.stream("maxOf", "func(x *float32, n int) float32", "finds the maximum, -Inf if n is 0.", []string{"x"}, []int{4},
		func() (func(int, mem), func()) {
			acc, v := s.constant(math.Float32bits(float32(math.Inf(-1)))), s.vec()
			return func(at int, m mem) {
					VMOVUPS(m(0, at), v)
					VMAXPS(acc, v, acc)
				}, func() {
					x := s.fold(acc, func(a, b reg.VecVirtual) { VMAXPS(a, b, b) })
					Store(x, ReturnIndex(0))
				}
		})

	s.stream("expShift", "func(dst, x *float32, c float32, n int) float32", "is exp(x-c); it returns the sum.", []string{"dst", "x"}, []int{4, 4},
		func() (func(int, mem), func()) {
			c, e := s.broadcastParam("c"), s.exp()
			acc, v := s.vecs(s.parts()), s.vec()
			for _, a := range acc {
				s.zero(a)
			}
			return func(at int, m mem) {
				VMOVUPS(m(1, at), v)
				VSUBPS(c, v, v)
				e(v)
				VMOVUPS(v, m(0, at))
				VADDPS(v, acc[at/s.width], acc[at/s.width])
			}, func() { Store(s.reduce(acc), ReturnIndex(0)) }
		})

	// x·σ(y): y is x for silu and a cubic in x for gelu.
	gate := func(name, doc string, y func() func(x, y reg.VecVirtual)) {
		s.stream(name, "func(dst, x *float32, n int)", doc, []string{"dst", "x"}, []int{4, 4},
			func() (func(int, mem), func()) {
				e, f := s.exp(), y()
				one, sign := s.constant(math.Float32bits(1)), s.constant(1<<31)
				v, u := s.vec(), s.vec()
				return func(at int, m mem) {
					VMOVUPS(m(1, at), v)
					f(v, u)
					s.xor(sign, u, u)
					e(u)
					VADDPS(one, u, u)
					VDIVPS(u, v, v)
					VMOVUPS(v, m(0, at))
				}, nil
			})
	}
	gate("silu", "is x·σ(x).", func() func(x, y reg.VecVirtual) {
		return func(x, y reg.VecVirtual) { VMOVAPS(x, y) }
	})
	gate("geluTanh", "is the tanh form of gelu: x·σ(2u), u = √(2/π)(x+0.044715x³).", func() func(x, y reg.VecVirtual) {
		a := s.constant(math.Float32bits(float32(2 * math.Sqrt(2/math.Pi))))
		b := s.constant(math.Float32bits(float32(2 * math.Sqrt(2/math.Pi) * 0.044715)))
		return func(x, y reg.VecVirtual) {
			VMULPS(x, x, y)
			VFMADD213PS(a, b, y) // b·x²+a
			VMULPS(x, y, y)
		}
	})
}
