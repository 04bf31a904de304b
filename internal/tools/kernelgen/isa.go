package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set: how many registers make the 16 lanes.
type isa struct {
	suffix string
	width  int // float32 lanes of a register
	regs   int // vector registers
}

var isas = map[string]isa{
	"avx2":   {"AVX2", 8, 16},
	"avx512": {"AVX512", 16, 32},
}

const lanes = 16

// parts is the number of registers that hold 16 lanes.
func (s isa) parts() int { return lanes / s.width }

func (s isa) vec() reg.VecVirtual {
	if s.width == 16 {
		return ZMM()
	}
	return YMM()
}

func (s isa) vecs(n int) []reg.VecVirtual {
	out := make([]reg.VecVirtual, n)
	for i := range out {
		out[i] = s.vec()
	}
	return out
}

func (s isa) zero(v reg.VecVirtual) {
	if s.width == 16 {
		VPXORD(v, v, v)
	} else {
		VXORPS(v, v, v)
	}
}

func (s isa) xor(a, b, dst reg.VecVirtual) {
	if s.width == 16 {
		VPXORD(a, b, dst)
	} else {
		VXORPS(a, b, dst)
	}
}

// loadF16 widens one register of halves.
func (s isa) loadF16(m Mem, dst reg.VecVirtual) { VCVTPH2PS(m, dst) }

// narrow is the half-width register under v.
func (s isa) narrow(v reg.VecVirtual) reg.Register {
	if s.width == 16 {
		return v.AsY()
	}
	return v.AsX()
}

// reduce adds the lanes of p registers (16 lanes) in the order of the
// specification: j with j+8, with j+4, with j+2, with j+1. The sum is in
// lane 0 of the result.
func (s isa) reduce(p []reg.VecVirtual) reg.VecVirtual {
	y := YMM()
	if s.width == 16 {
		hi := YMM()
		VEXTRACTF64X4(U8(1), p[0], hi)
		VADDPS(hi, p[0].AsY(), y)
	} else {
		VADDPS(p[1], p[0], y)
	}
	x := XMM()
	VEXTRACTF128(U8(1), y, x)
	VADDPS(x, y.AsX(), x)
	t := XMM()
	VPERMILPS(U8(0x4e), x, t)
	VADDPS(t, x, x)
	VPERMILPS(U8(0xb1), x, t)
	VADDPS(t, x, x)
	return x
}

// constant broadcasts a float32 bit pattern.
func (s isa) constant(bits uint32) reg.VecVirtual {
	r, x, v := GP32(), XMM(), s.vec()
	MOVL(U32(bits), r)
	VMOVD(r, x)
	VBROADCASTSS(x, v)
	return v
}

// broadcastParam broadcasts a float32 parameter.
func (s isa) broadcastParam(name string) reg.VecVirtual {
	x, v := XMM(), s.vec()
	Load(Param(name), x)
	VBROADCASTSS(x, v)
	return v
}

// param loads a parameter into a general register.
func param(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// fold combines the lanes of one register with an operation whose order does
// not matter; the result is in lane 0.
func (s isa) fold(v reg.VecVirtual, op func(a, b reg.VecVirtual)) reg.VecVirtual {
	y, x, t := YMM(), XMM(), XMM()
	if s.width == 16 {
		VEXTRACTF64X4(U8(1), v, y)
		op(v.AsY().(reg.VecVirtual), y)
	} else {
		VMOVAPS(v, y)
	}
	VEXTRACTF128(U8(1), y, x)
	op(y.AsX().(reg.VecVirtual), x)
	VPERMILPS(U8(0x4e), x, t)
	op(t, x)
	VPERMILPS(U8(0xb1), x, t)
	op(t, x)
	return x
}
