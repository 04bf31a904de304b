package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func packedFormats(s isa) []format {
	out := []format{
		&lookup16{s, true, false}, &lookup16{s, false, false},
		&lookup16{s, true, true}, &lookup16{s, false, true},
		&lookup64{s}, &lookup256{s},
		&integers{s, "I8"}, &integers{s, "U8"}, &integers{s, "UN"},
	}
	if s.width == 16 {
		out = append(out, &lookupHalves{s})
	}
	return out
}

// unpacker brings codes of up to 8 bits into 32-bit lanes; there may be
// other bits above them.
type unpacker struct {
	k         *packedKernel
	nibbles   bool
	shuf, sft []Op // registers, or memory where these are few
	restore   reg.VecVirtual
}

var nibbleShift, nibbleOrder, nibbleRestore Mem

// nibbleTables declares the constants of the 4-bit form. With AVX-512 it
// copies 8 bytes to all pairs of lanes, so that lane 2i holds code i and lane
// 2i+1 code i+8; x is brought into the same order.
func nibbleTables(s isa) {
	if s.width == 16 {
		nibbleShift = literal("nibbleShift"+s.suffix, func(i int) uint32 { return uint32(i / 2 * 4) })
		nibbleOrder = literal("nibbleOrder"+s.suffix, func(i int) uint32 { return uint32(i/2 + i%2*8) })
		nibbleRestore = literal("nibbleRestore"+s.suffix, func(i int) uint32 { return uint32(i%8*2 + i/8) })
		return
	}
	nibbleShift = literal("nibbleShift"+s.suffix, func(i int) uint32 { return uint32(i % 8 * 4) })
}

func newUnpacker(k *packedKernel, nibbles bool) *unpacker {
	u := &unpacker{k: k, nibbles: nibbles}
	s := k.s
	if nibbles {
		v := s.vec()
		VMOVUPS(nibbleShift, v)
		u.sft = []Op{v}
		if s.width == 16 {
			k.order = s.vec()
			if k.dot {
				VMOVUPS(nibbleOrder, k.order)
				u.restore = s.vec()
				VMOVUPS(nibbleRestore, u.restore)
			} else {
				VMOVUPS(nibbleRestore, k.order)
			}
		}
		return u
	}
	p := k.load(argUnpack)
	for i := range s.parts() {
		a, b := Mem{Base: p, Disp: 4 * i * s.width}, Mem{Base: p, Disp: 64 + 4*i*s.width}
		if s.width != 16 {
			u.shuf, u.sft = append(u.shuf, a), append(u.sft, b)
			continue
		}
		va, vb := s.vec(), s.vec()
		VMOVUPS(a, va)
		VMOVUPS(b, vb)
		u.shuf, u.sft = append(u.shuf, va), append(u.sft, vb)
	}
	return u
}

func (u *unpacker) codes(r, part int, v reg.VecVirtual) {
	w := u.k.w
	if u.nibbles {
		if u.k.s.width == 16 {
			VPBROADCASTQ(w.at(r, u.k.at), v)
		} else {
			VPBROADCASTD(w.at(r, u.k.at+4*part), v)
		}
		VPSRLVD(u.sft[0], v, v)
		return
	}
	if u.k.s.width == 16 {
		VBROADCASTI32X4(w.at(r, u.k.at), v)
	} else {
		VBROADCASTI128(w.at(r, u.k.at), v)
	}
	VPSHUFB(u.shuf[part], v, v)
	VPSRLVD(u.sft[part], v, v)
}

// lookup16 is codes of up to 4 bits with a table of 16 entries: the table of
// a row, or one that each block makes of levels, scale and offset.
type lookup16 struct {
	s       isa
	nibbles bool
	scaled  bool
}

func (f *lookup16) kernel(dot bool, nt int) {
	s := f.s
	name := "LUT"
	if f.scaled {
		name = "Scaled"
	}
	bytes := 0
	if f.nibbles {
		name += "4"
		bytes = 8
	}
	k := begin(s, name, dot, bytes, nt)
	u := newUnpacker(k, f.nibbles)
	tab := make([][]reg.VecVirtual, nt)
	for r := range tab {
		tab[r] = s.vecs(s.parts())
	}
	value := func(r, part int, v reg.VecVirtual) {
		u.codes(r, part, v)
		s.lookup16(tab[r], v)
	}
	if !f.scaled {
		t, ldt := k.load(argTab), k.load(argLdt)
		for r := range tab {
			for p := range tab[r] {
				VMOVUPS(Mem{Base: t, Disp: 4 * p * s.width}, tab[r][p])
			}
			if r+1 < nt {
				ADDQ(ldt, t)
			}
		}
		k.steps("step", value)
		k.end(u.restore)
		return
	}
	t := k.load(argTab)
	// Where registers are few, levels are read again for every table.
	var levels reg.VecVirtual
	if s.width == 16 {
		levels = s.vec()
		VMOVUPS(Mem{Base: t}, levels)
	}
	first := func(r, p int) reg.VecVirtual {
		if s.width == 16 {
			return levels
		}
		VMOVUPS(Mem{Base: t, Disp: 4 * p * s.width}, tab[r][p])
		return tab[r][p]
	}
	par := newRows(k.load(argPar), k.load(argLdp), nt)
	// other addresses row r of the plane behind the scales.
	tmp := GP64()
	each := func(other bool, body func(m Mem, r, p int)) {
		for r := range nt {
			m := par.at(r, 0)
			if other {
				if r%3 == 0 {
					MOVQ(par.base[r/3], tmp)
					ADDQ(k.arg(argPlane), tmp)
				}
				m.Base = tmp
			}
			for p := range s.parts() {
				body(m, r, p)
			}
		}
	}
	every := func(body func(v reg.VecVirtual)) {
		for r := range nt {
			for _, v := range tab[r] {
				body(v)
			}
		}
	}
	flags := k.arg(argFlags)
	var fast fastRound
	if dot {
		fast = k.fastRound()
	}
	k.outer("block", argBlocks, func() {
		TESTL(U32(flagOffset), flags)
		JZ(LabelRef("scale"))
		each(true, func(m Mem, r, p int) { s.subMem(m, first(r, p), tab[r][p]) })
		each(false, func(m Mem, r, p int) { s.mulMem(m, tab[r][p], tab[r][p]) })
		JMP(LabelRef("round"))
		Label("scale")
		each(false, func(m Mem, r, p int) { s.mulMem(m, first(r, p), tab[r][p]) })
		Label("round")
		if dot {
			TESTL(U32(flagNormal), flags)
			JZ(LabelRef("notNormal"))
			every(fast.normal)
			TESTL(U32(flagBias), flags)
			JZ(LabelRef("steps"))
			each(true, func(m Mem, r, p int) { s.addMem(m, tab[r][p], tab[r][p]) })
			every(fast.normal)
			JMP(LabelRef("steps"))
			Label("notNormal")
			TESTL(U32(flagFast), flags)
			JZ(LabelRef("slow"))
			every(fast.any)
			TESTL(U32(flagBias), flags)
			JZ(LabelRef("steps"))
			each(true, func(m Mem, r, p int) { s.addMem(m, tab[r][p], tab[r][p]) })
			every(fast.any)
			JMP(LabelRef("steps"))
			Label("slow")
		}
		TESTL(U32(flagF16), flags)
		JZ(LabelRef("notF16"))
		every(s.roundF16)
		TESTL(U32(flagBias), flags)
		JZ(LabelRef("steps"))
		each(true, func(m Mem, r, p int) { s.addMem(m, tab[r][p], tab[r][p]) })
		every(s.roundF16)
		JMP(LabelRef("steps"))
		Label("notF16")
		TESTL(U32(flagBias|flagBF16), flags)
		JZ(LabelRef("steps"))
		TESTL(U32(flagBF16), flags)
		JZ(LabelRef("bias"))
		bf16 := s.bf16()
		every(bf16)
		TESTL(U32(flagBias), flags)
		JZ(LabelRef("steps"))
		each(true, func(m Mem, r, p int) { s.addMem(m, tab[r][p], tab[r][p]) })
		every(bf16)
		JMP(LabelRef("steps"))
		Label("bias")
		each(true, func(m Mem, r, p int) { s.addMem(m, tab[r][p], tab[r][p]) })
		Label("steps")
		k.steps("step", value)
		par.advance(4)
	})
	k.end(u.restore)
}

// lookup64 is codes of 5 and 6 bits with one table of 64 entries for all
// rows.
type lookup64 struct{ s isa }

func (f *lookup64) kernel(dot bool, nt int) {
	s := f.s
	k := begin(s, "LUT64", dot, 0, nt)
	u := newUnpacker(k, false)
	t := k.load(argTab)
	var value valueOf
	if s.width == 16 {
		tab := s.vecs(4)
		for i := range tab {
			VMOVUPS(Mem{Base: t, Disp: 64 * i}, tab[i])
		}
		top := s.constant(32)
		m := K()
		value = func(r, part int, v reg.VecVirtual) {
			u.codes(r, part, v)
			hi := s.vec()
			VMOVDQA64(v, hi)
			VPTESTMD(top, v, m)
			VPERMI2PS(tab[1], tab[0], v)
			VPERMI2PS(tab[3], tab[2], hi)
			VBLENDMPS(hi, v, m, v)
		}
	} else {
		mask := s.constant(63)
		value = func(r, part int, v reg.VecVirtual) {
			u.codes(r, part, v)
			s.and(mask, v, v)
			s.gather(t, v)
		}
	}
	k.steps("step", value)
	k.end(nil)
}

// gather replaces the codes in v by entries of the table at t.
func (s isa) gather(t reg.GPVirtual, v reg.VecVirtual) {
	dst := s.vec()
	s.zero(dst) // a gather keeps lanes: without this it waits for the last one
	m := Mem{Base: t, Index: v.(reg.Register), Scale: 4}
	if s.width == 16 {
		all, ones := K(), GP32()
		MOVL(U32(0xffff), ones)
		KMOVW(ones, all)
		VGATHERDPS(m, all, dst)
	} else {
		all := s.vec()
		VPCMPEQD(all, all, all)
		VGATHERDPS(all, m, dst)
	}
	VMOVAPS(dst, v)
}

// lookup256 is bytes with one table of 256 entries for all rows. There is no
// product with AVX-512: tables of halves have lookupHalves, and others are as
// fast decoded first.
type lookup256 struct{ s isa }

func (f *lookup256) kernel(dot bool, nt int) {
	s := f.s
	if dot && s.width == 16 {
		return
	}
	k := begin(s, "LUT256", dot, 16, nt)
	t := k.load(argTab)
	k.steps("step", func(r, part int, v reg.VecVirtual) {
		VPMOVZXBD(k.w.at(r, k.at+part*s.width), v)
		s.gather(t, v)
	})
	k.end(nil)
}

// lookupHalves is lookup256 for tables of halves, 32 codes a step.
type lookupHalves struct{ s isa }

func (f *lookupHalves) kernel(dot bool, nt int) {
	s := f.s
	k := begin(s, "Halves256", dot, 16, nt)
	t := k.load(argHalf)
	tab := s.vecs(8)
	for i := range tab {
		VMOVUPS(Mem{Base: t, Disp: 64 * i}, tab[i])
	}
	bit6, bit7 := s.constant(64<<16|64), s.constant(128<<16|128)
	m6, m7 := K(), K()
	a := s.vecs(4)
	lo, hi := Mem{Base: k.x}, Mem{Base: k.x, Disp: 64}
	xl, xh := s.vec(), s.vec()
	k.loop("step", argSteps, func() {
		if dot {
			VMOVUPS(lo, xl)
			VMOVUPS(hi, xh)
		}
		for r := range nt {
			VPMOVZXBW(k.w.at(r, 0), a[0])
			VPTESTMW(bit6, a[0], m6)
			VPTESTMW(bit7, a[0], m7)
			for i := 1; i < 4; i++ {
				VMOVDQA64(a[0], a[i])
			}
			for i := range a {
				VPERMI2W(tab[2*i+1], tab[2*i], a[i])
			}
			VPBLENDMW(a[1], a[0], m6, a[0])
			VPBLENDMW(a[3], a[2], m6, a[2])
			VPBLENDMW(a[2], a[0], m7, a[0])
			VEXTRACTI64X4(U8(1), a[0], a[1].AsY())
			VCVTPH2PS(a[0].AsY(), a[0])
			VCVTPH2PS(a[1].AsY(), a[1])
			if !dot {
				VMOVUPS(a[0], lo)
				VMOVUPS(a[1], hi)
				continue
			}
			VFMADD231PS(xl, a[0], k.acc[r][0])
			VFMADD231PS(xh, a[1], k.acc[r][0])
		}
		k.advance(2)
	})
	k.end(nil)
}

// integers is codes that stand for themselves, signed bytes, unsigned bytes
// or unsigned ones of any width, with a scale and possibly an offset or bias
// for each block.
type integers struct {
	s    isa
	kind string
}

// mode is one combination of flags.
type mode struct{ flags int }

func (m mode) has(f int) bool { return m.flags&f != 0 }

func (f *integers) kernel(dot bool, nt int) {
	s := f.s
	bytes := 16
	if f.kind == "UN" {
		bytes = 0
	}
	k := begin(s, f.kind, dot, bytes, nt)
	var u *unpacker
	if f.kind == "UN" {
		u = newUnpacker(k, false)
	}
	codes := func(r, part int, v reg.VecVirtual) {
		switch f.kind {
		case "I8":
			VPMOVSXBD(k.w.at(r, k.at+part*s.width), v)
		case "U8":
			VPMOVZXBD(k.w.at(r, k.at+part*s.width), v)
		default:
			u.codes(r, part, v)
			s.andMem(k.arg(argMask), v)
		}
		VCVTDQ2PS(v, v)
	}
	par := newRows(k.load(argPar), k.load(argLdp), nt)
	tmp := GP64()
	scale, other := s.vecs(nt), s.vecs(nt)
	modes := []mode{{0}, {flagF16}, {flagOffset}, {flagOffset | flagF16}}
	if dot {
		modes = append(modes, mode{flagFast}, mode{flagOffset | flagFast})
		modes = append(modes, mode{flagNormal}, mode{flagOffset | flagNormal})
	}
	if f.kind != "I8" {
		modes = append(modes, mode{flagBias}, mode{flagBias | flagF16}, mode{flagBias | flagBF16})
		if dot {
			modes = append(modes, mode{flagBias | flagFast}, mode{flagBias | flagNormal})
		}
	}
	flags := k.arg(argFlags)
	for i, m := range modes {
		if i > 0 {
			Label(fmt.Sprintf("mode%d", i))
		}
		if i+1 < len(modes) {
			CMPL(flags, U32(uint32(m.flags)))
			JNE(LabelRef(fmt.Sprintf("mode%d", i+1)))
		}
		round := func(reg.VecVirtual) {}
		switch {
		case m.has(flagF16):
			round = s.roundF16
		case m.has(flagBF16):
			round = s.bf16()
		case m.has(flagFast):
			round = k.fastRound().any
		case m.has(flagNormal):
			round = k.fastRound().normal
		}
		value := func(r, part int, v reg.VecVirtual) {
			codes(r, part, v)
			if m.has(flagOffset) {
				VSUBPS(other[r], v, v)
			}
			VMULPS(scale[r], v, v)
			round(v)
			if m.has(flagBias) {
				VADDPS(other[r], v, v)
				round(v)
			}
		}
		k.outer(fmt.Sprintf("block%d", i), argBlocks, func() {
			for r := range nt {
				at := par.at(r, 0)
				VBROADCASTSS(at, scale[r])
				if m.has(flagOffset | flagBias) {
					if r%3 == 0 {
						MOVQ(par.base[r/3], tmp)
						ADDQ(k.arg(argPlane), tmp)
					}
					at.Base = tmp
					VBROADCASTSS(at, other[r])
				}
			}
			k.steps(fmt.Sprintf("step%d", i), value)
			par.advance(4)
		})
		if i+1 < len(modes) {
			JMP(LabelRef("done"))
		}
	}
	Label("done")
	k.end(nil)
}

// lookup16 replaces the codes in v by entries of a table of 16.
func (s isa) lookup16(t []reg.VecVirtual, v reg.VecVirtual) {
	if s.width == 16 {
		VPERMPS(t[0], v, v)
		return
	}
	lo, hi := s.vec(), s.vec()
	VPERMPS(t[0], v, lo)
	VPERMPS(t[1], v, hi)
	VPSLLD(U8(28), v, v)
	VBLENDVPS(v, hi, lo, v)
}
