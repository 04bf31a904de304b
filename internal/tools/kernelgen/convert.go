package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// mem addresses element at of a kernel's array i.
type mem = func(i, at int) Mem

// loop runs body over n elements (a multiple of 16) in registers; at is the
// element number within the 16.
func (s isa) loop(n reg.GPVirtual, advance map[reg.GPVirtual]int, order []reg.GPVirtual, body func(at int)) {
	SHRQ(U8(4), n)
	JZ(LabelRef("end"))
	Label("loop")
	for p := range s.parts() {
		body(p * s.width)
	}
	for _, r := range order {
		ADDQ(U32(uint32(lanes*advance[r])), r)
	}
	DECQ(n)
	JNZ(LabelRef("loop"))
	Label("end")
}

// stream declares a kernel over arrays of float32 or uint16 with n a multiple
// of 16; body gets the registers of the arrays.
func (s isa) stream(name, sig, doc string, arrays []string, sizes []int, setup func() (func(at int, m mem), func())) {
	TEXT(name+s.suffix, NOSPLIT, sig)
	Pragma("noescape")
	Doc(name + s.suffix + " " + doc + " n is a multiple of 16.")
	regs := make([]reg.GPVirtual, len(arrays))
	adv := map[reg.GPVirtual]int{}
	for i, a := range arrays {
		regs[i] = param(a)
		adv[regs[i]] = sizes[i]
	}
	n := param("n")
	body, finish := setup()
	s.loop(n, adv, regs, func(at int) {
		body(at, func(i, at int) Mem { return Mem{Base: regs[i], Disp: at * sizes[i]} })
	})
	if finish != nil {
		finish()
	}
	VZEROUPPER()
	RET()
}

func convertKernels(s isa) {
	s.stream("f16ToF32", "func(dst *float32, src *uint16, n int)", "widens halves.", []string{"dst", "src"}, []int{4, 2},
		func() (func(int, mem), func()) {
			v := s.vec()
			return func(at int, m mem) {
				VCVTPH2PS(m(1, at), v)
				VMOVUPS(v, m(0, at))
			}, nil
		})
	s.stream("f32ToF16", "func(dst *uint16, src *float32, n int)", "rounds to halves.", []string{"dst", "src"}, []int{2, 4},
		func() (func(int, mem), func()) {
			v := s.vec()
			return func(at int, m mem) {
				VMOVUPS(m(1, at), v)
				VCVTPS2PH(U8(0), v, m(0, at))
			}, nil
		})
	s.stream("roundF16", "func(x *float32, n int)", "rounds to values of halves in place.", []string{"x"}, []int{4},
		func() (func(int, mem), func()) {
			v := s.vec()
			return func(at int, m mem) {
				VMOVUPS(m(0, at), v)
				VCVTPS2PH(U8(0), v, s.narrow(v))
				VCVTPH2PS(s.narrow(v), v)
				VMOVUPS(v, m(0, at))
			}, nil
		})
	s.stream("diffF16", "func(x *float32, n int) uint32", "ors the bits in which elements differ from their rounding.", []string{"x"}, []int{4},
		func() (func(int, mem), func()) {
			acc, v, h := s.vec(), s.vec(), s.vec()
			s.zero(acc)
			return func(at int, m mem) {
					VMOVUPS(m(0, at), v)
					VCVTPS2PH(U8(0), v, s.narrow(h))
					VCVTPH2PS(s.narrow(h), h)
					s.xor(v, h, h)
					if s.width == 16 {
						VPORD(h, acc, acc)
					} else {
						VORPS(h, acc, acc)
					}
				}, func() {
					x := s.fold(acc, func(a, b reg.VecVirtual) { VORPS(a, b, b) })
					r := GP32()
					VMOVD(x, r)
					Store(r, ReturnIndex(0))
				}
		})
}
