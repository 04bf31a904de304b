package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets into packedArgs of internal/kernel.
const (
	argDst    = 8 * iota
	argLdd    // bytes between results of neighbouring rows
	argX      // activations
	argW      // codes
	argLdw    // bytes between rows of codes
	argTab    // float32 table
	argLdt    // bytes between tables of neighbouring rows
	argHalf   // the table in fp16
	argPar    // scales
	argLdp    // bytes between scales of neighbouring rows
	argPlane  // bytes from scales to offsets or biases
	argBlocks // blocks along a row
	argSteps  // steps of a block
	argStride // bytes of a step
	argUnpack // unpackPattern
	argFlags
	argMask  // low bits of a code
	argRound // roundConstants
	argNext  // scales of later rows
	argLines // how many cache lines they take
)

// Bits of flags.
const (
	flagOffset = 1 << iota
	flagBias
	flagF16
	flagBF16
	flagFast   // instead of flagF16 or flagBF16, where nothing overflows
	flagNormal // instead of flagFast, where nothing is subnormal either
)

// packedKernels decode rows of codes, or multiply them by a vector.
func packedKernels(s isa) {
	nibbleTables(s)
	many := 2
	if s.width == 16 {
		many = 8
	}
	for _, f := range packedFormats(s) {
		f.kernel(false, 1)
		f.kernel(true, 1)
		f.kernel(true, many)
	}
}

// format is a way to turn codes to numbers.
type format interface {
	kernel(dot bool, rows int)
}

// packedKernel is the frame of one kernel: state that formats share.
type packedKernel struct {
	s      isa
	dot    bool
	nt     int
	a      reg.GPVirtual // arguments
	w      rows          // codes
	x      reg.GPVirtual // activations, or results of a decoder
	bytes  int           // of codes in a step; 0 if only stride says
	stride reg.GPVirtual // nil if bytes says
	at     int           // the codes of the step being written, in bytes
	ahead  reg.GPVirtual
	acc    [][]reg.VecVirtual
	order  reg.VecVirtual // lanes of x and of results, if not ascending
}

func (k *packedKernel) arg(off int) Mem { return Mem{Base: k.a, Disp: off} }

func (k *packedKernel) load(off int) reg.GPVirtual {
	r := GP64()
	MOVQ(k.arg(off), r)
	return r
}

// begin declares the kernel and loads what all formats need.
func begin(s isa, name string, dot bool, bytes, nt int) *packedKernel {
	form := "decode"
	doc := "decodes a row"
	if dot {
		form = fmt.Sprintf("dot1x%d", nt)
		doc = fmt.Sprintf("multiplies a vector by %d rows", nt)
	}
	full := form + name + s.suffix
	TEXT(full, NOSPLIT, "func(a *byte)")
	Pragma("noescape")
	Doc(full + " " + doc + " of codes.")
	k := &packedKernel{s: s, dot: dot, nt: nt, bytes: bytes}
	k.a = param("a")
	ldw := k.load(argLdw)
	w := k.load(argW)
	k.w = newRows(w, ldw, nt)
	if bytes == 0 {
		k.stride = k.load(argStride)
	}
	if !dot {
		k.x = k.load(argDst)
		return k
	}
	k.x = k.load(argX)
	k.acc = make([][]reg.VecVirtual, nt)
	for i := range k.acc {
		k.acc[i] = s.vecs(s.parts())
		for _, v := range k.acc[i] {
			s.zero(v)
		}
	}
	if nt > 2 {
		// Two tiles ahead: one takes about as long as memory does to answer.
		k.ahead = GP64()
		MOVQ(ldw, k.ahead)
		IMUL3Q(U8(uint8(2*nt)), k.ahead, k.ahead)
		ADDQ(w, k.ahead)
		// So do the scales of later rows, a few at a time.
		next, n := k.load(argNext), k.load(argLines)
		Label("next")
		TESTQ(n, n)
		JZ(LabelRef("begin"))
		PREFETCHT0(Mem{Base: next})
		ADDQ(U32(64), next)
		DECQ(n)
		JMP(LabelRef("next"))
		Label("begin")
	}
	return k
}

// valueOf puts numbers of row r into v: the 16 of a step or a part of them.
type valueOf func(r, part int, v reg.VecVirtual)

// step handles 16 elements of every row, the n-th since the last advance.
func (k *packedKernel) step(n int, value valueOf) {
	at := n * lanes
	k.at = n * k.bytes
	defer func() { k.at = 0 }()
	s := k.s
	if !k.dot {
		for p := range s.parts() {
			v := s.vec()
			value(0, p, v)
			if k.order != nil {
				VPERMPS(v, k.order, v)
			}
			VMOVUPS(v, Mem{Base: k.x, Disp: 4 * (at + p*s.width)})
		}
		return
	}
	for p := range s.parts() {
		m := Mem{Base: k.x, Disp: 4 * (at + p*s.width)}
		var xv Op = m
		if k.nt > 1 {
			v := s.vec()
			xv = v
			if k.order != nil {
				VPERMPS(m, k.order, v)
			} else {
				VMOVUPS(m, v)
			}
		} else if k.order != nil {
			v := s.vec()
			xv = v
			VPERMPS(m, k.order, v)
		}
		for r := range k.nt {
			v := s.vec()
			value(r, p, v)
			VFMADD231PS(xv, v, k.acc[r][p])
		}
	}
}

// advance goes on by n steps; codes of the next rows are asked for ahead.
func (k *packedKernel) advance(n int) {
	ADDQ(U32(uint32(4*lanes*n)), k.x)
	for _, b := range k.w.base {
		if k.stride == nil {
			ADDQ(U32(uint32(n*k.bytes)), b)
		} else {
			ADDQ(k.stride, b)
		}
	}
	if k.ahead == nil {
		return
	}
	bytes := n * k.bytes * k.nt
	if k.stride != nil {
		bytes = 128 // of codes of up to 8 bits
	}
	for at := 0; at < bytes; at += 64 {
		PREFETCHT0(Mem{Base: k.ahead, Disp: at})
	}
	if k.stride == nil {
		ADDQ(U32(uint32(bytes)), k.ahead)
	} else {
		LEAQ(Mem{Base: k.ahead, Index: k.stride, Scale: 8}, k.ahead)
	}
}

// steps runs all steps of a block, two at a time for bytes. Blocks of 4-bit
// codes are too short for it to pay.
func (k *packedKernel) steps(name string, value valueOf) {
	if k.bytes != 16 || !k.dot {
		k.loop(name, argSteps, func() {
			k.step(0, value)
			k.advance(1)
		})
		return
	}
	n := k.load(argSteps)
	SHRQ(U8(1), n)
	JNC(LabelRef(name + "Even"))
	k.step(0, value)
	k.advance(1)
	Label(name + "Even")
	TESTQ(n, n)
	JZ(LabelRef(name + "Done"))
	Label(name)
	k.step(0, value)
	k.step(1, value)
	k.advance(2)
	DECQ(n)
	JNZ(LabelRef(name))
	Label(name + "Done")
}

// outer runs body as often as argument off says, and counts in memory.
func (k *packedKernel) outer(name string, off int, body func()) {
	Label(name)
	body()
	DECQ(k.arg(off))
	JNZ(LabelRef(name))
}

// loop is outer, counting in a register.
func (k *packedKernel) loop(name string, off int, body func()) {
	n := k.load(off)
	Label(name)
	body()
	DECQ(n)
	JNZ(LabelRef(name))
}

// end stores sums and returns; restore gives lanes their order back.
func (k *packedKernel) end(restore reg.VecVirtual) {
	if k.dot {
		s := k.s
		dst, ldd := k.load(argDst), k.load(argLdd)
		for r := range k.nt {
			if restore != nil {
				VPERMPS(k.acc[r][0], restore, k.acc[r][0])
			}
		}
		for r := range k.nt {
			VMOVSS(s.reduce(k.acc[r]), Mem{Base: dst})
			if r+1 < k.nt {
				ADDQ(ldd, dst)
			}
		}
	}
	VZEROUPPER()
	RET()
}

// literal is a static array of 16 numbers.
func literal(name string, v func(i int) uint32) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range lanes {
		DATA(4*i, U32(v(i)))
	}
	return m
}

func (s isa) and(a, b, dst reg.VecVirtual) {
	if s.width == 16 {
		VPANDD(a, b, dst)
	} else {
		VPAND(a, b, dst)
	}
}

// mulMem, subMem and addMem combine v with a number in memory.
func (s isa) mulMem(m Mem, v, dst reg.VecVirtual) {
	if s.width == 16 {
		VMULPS_BCST(m, v, dst)
		return
	}
	t := s.vec()
	VBROADCASTSS(m, t)
	VMULPS(t, v, dst)
}

func (s isa) subMem(m Mem, v, dst reg.VecVirtual) {
	if s.width == 16 {
		VSUBPS_BCST(m, v, dst)
		return
	}
	t := s.vec()
	VBROADCASTSS(m, t)
	VSUBPS(t, v, dst)
}

func (s isa) addMem(m Mem, v, dst reg.VecVirtual) {
	if s.width == 16 {
		VADDPS_BCST(m, v, dst)
		return
	}
	t := s.vec()
	VBROADCASTSS(m, t)
	VADDPS(t, v, dst)
}

// roundF16 rounds to fp16 values.
func (s isa) roundF16(v reg.VecVirtual) {
	VCVTPS2PH(U8(0), v, s.narrow(v))
	VCVTPH2PS(s.narrow(v), v)
}

// bf16 prepares rounding to bfloat16 values.
func (s isa) bf16() func(v reg.VecVirtual) {
	one, near, mask := s.constant(1), s.constant(0x7fff), s.constant(0xffff0000)
	return func(v reg.VecVirtual) {
		t := s.vec()
		VPSRLD(U8(16), v, t)
		s.and(one, t, t)
		VPADDD(near, t, t)
		VPADDD(t, v, v)
		s.and(mask, v, v)
	}
}

func (s isa) andMem(m Mem, v reg.VecVirtual) {
	if s.width == 16 {
		VPANDD_BCST(m, v, v)
		return
	}
	t := s.vec()
	VPBROADCASTD(m, t)
	VPAND(t, v, v)
}

// fastRound rounds to fewer bits by adding and subtracting a number of which
// the last bit is worth as much as that of the result: 1.5·2¹³ times the power
// of two in v for fp16, 1.5·2¹⁶ times for bfloat16. -0 becomes 0.
type fastRound struct {
	s                   isa
	mask, least, factor reg.VecVirtual
}

func (k *packedKernel) fastRound() fastRound {
	p := k.load(argRound)
	f := fastRound{k.s, k.s.vec(), k.s.vec(), k.s.vec()}
	VBROADCASTSS(Mem{Base: p}, f.mask)
	VBROADCASTSS(Mem{Base: p, Disp: 4}, f.least)
	VBROADCASTSS(Mem{Base: p, Disp: 8}, f.factor)
	return f
}

// any knows a least power, for results that are subnormal.
func (f fastRound) any(v reg.VecVirtual) { f.round(v, true) }

// normal is for results that are not.
func (f fastRound) normal(v reg.VecVirtual) { f.round(v, false) }

func (f fastRound) round(v reg.VecVirtual, least bool) {
	c := f.s.vec()
	f.s.and(f.mask, v, c)
	if least {
		VMAXPS(f.least, c, c)
	}
	VFMADD231PS(f.factor, c, v)
	VFNMADD231PS(f.factor, c, v)
}
