package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// feedbackRows is how many rows of a matrix the kernels of error feedback take
// at once, one a lane.
const feedbackRows = 32

// feedbackKernels code groups of weights that lie column by column.
func feedbackKernels(s isa) {
	feedbackRound(s)
	laneMoments(s)
}

// quantizer turns x into the code rint(clip((x − bias)·inv, 0, top)).
type quantizer struct {
	s                isa
	round, zero, top reg.VecVirtual
}

func (s isa) quantizer() quantizer {
	q := quantizer{s, s.constant(math.Float32bits(magic)), s.vec(), s.broadcastParam("top")}
	s.zero(q.zero)
	return q
}

func (q quantizer) code(x reg.VecVirtual, bias, inv Op) {
	VSUBPS(bias, x, x)
	VMULPS(inv, x, x)
	VMAXPS(q.zero, x, x)
	VMINPS(q.top, x, x)
	VADDPS(q.round, x, x)
	VSUBPS(q.round, x, x)
}

// feedbackRound: see FeedbackRound. par holds scales, their inverses and biases.
func feedbackRound(s isa) {
	nv := feedbackRows / s.width
	TEXT("feedbackRound"+s.suffix, NOSPLIT, "func(codes, errs, loss, t *float32, ldt, n int, fb *float32, ldf int, d, par *float32, top float32)")
	Pragma("noescape")
	Doc("feedbackRound" + s.suffix + " codes a group of 32 rows. errs holds zeros, n rounded up to even columns of them.")
	codes, errs, t, n, fb, d, par := param("codes"), param("errs"), param("t"), param("n"), param("fb"), param("d"), param("par")
	ldt, ldf := param("ldt"), param("ldf")
	SHLQ(U8(2), ldt)
	SHLQ(U8(2), ldf)
	q := s.quantizer()
	lossAt := param("loss")
	at := func(base reg.Register, v int) Mem { return Mem{Base: base, Disp: 4 * s.width * v} }
	scale := func(v int) Mem { return Mem{Base: par, Disp: 4 * (s.width * v)} }
	inv := func(v int) Mem { return Mem{Base: par, Disp: 4 * (feedbackRows + s.width*v)} }
	bias := func(v int) Mem { return Mem{Base: par, Disp: 4 * (2*feedbackRows + s.width*v)} }

	b, f, x := s.vec(), s.vec(), s.vec()
	s.zero(x)
	for v := range nv {
		VMOVUPS(x, at(lossAt, v))
	}
	// e and g walk over the errors and factors of the columns before this one.
	e, g, left, mine := GP64(), GP64(), GP64(), GP64()
	even, odd := s.vecs(nv), s.vecs(nv)
	col := GP64()
	XORQ(col, col)
	MOVQ(errs, mine)
	Label("column")
	CMPQ(col, n)
	JGE(LabelRef("done"))
	for v := range nv {
		VMOVUPS(at(t, v), even[v])
		s.zero(odd[v])
	}
	MOVQ(errs, e)
	MOVQ(fb, g)
	MOVQ(col, left)
	Label("before")
	CMPQ(left, U8(0))
	JLE(LabelRef("code"))
	VBROADCASTSS(Mem{Base: g}, b)
	for v := range nv {
		VFMADD231PS(at(e, v), b, even[v])
	}
	VBROADCASTSS(Mem{Base: g, Disp: 4}, b)
	for v := range nv {
		VFMADD231PS(at(e, nv+v), b, odd[v])
	}
	ADDQ(U32(2*4*feedbackRows), e)
	ADDQ(U8(8), g)
	SUBQ(U8(2), left)
	JMP(LabelRef("before"))
	Label("code")
	VBROADCASTSS(Mem{Base: d}, f)
	for v := range nv {
		VADDPS(odd[v], even[v], even[v])
		VMOVAPS(even[v], x)
		q.code(x, bias(v), inv(v))
		VMOVUPS(x, at(codes, v))
		// What is decoded, rounded twice.
		VMULPS(scale(v), x, x)
		VADDPS(bias(v), x, x)
		VSUBPS(x, even[v], even[v])
		VMOVUPS(at(t, v), b)
		VSUBPS(x, b, b)
		VMOVUPS(b, at(mine, v))
		VMULPS(even[v], even[v], even[v])
		VMOVUPS(at(lossAt, v), b)
		VFMADD231PS(f, even[v], b)
		VMOVUPS(b, at(lossAt, v))
	}
	ADDQ(U32(4*feedbackRows), codes)
	ADDQ(U32(4*feedbackRows), mine)
	ADDQ(ldt, t)
	ADDQ(ldf, fb)
	ADDQ(U8(4), d)
	INCQ(col)
	JMP(LabelRef("column"))
	Label("done")
	VZEROUPPER()
	RET()
}

// laneMoments: see LaneMoments. par holds inverses of scales, biases and centers.
func laneMoments(s isa) {
	TEXT("laneMoments"+s.suffix, NOSPLIT, "func(sums, t *float32, ldt, n int, d, par *float32, top float32)")
	Pragma("noescape")
	Doc("laneMoments" + s.suffix + " sums codes of 32 rows.")
	sums, par := param("sums"), param("par")
	ldt := param("ldt")
	SHLQ(U8(2), ldt)
	q := s.quantizer()
	at := func(base reg.Register, i, v int) Mem { return Mem{Base: base, Disp: 4 * (i*feedbackRows + v*s.width)} }
	for v := range feedbackRows / s.width {
		t, n, d := param("t"), param("n"), param("d")
		loop, done := "loop"+string(rune('0'+v)), "done"+string(rune('0'+v))
		var acc [3]reg.VecVirtual
		for i := range acc {
			acc[i] = s.vec()
			s.zero(acc[i])
		}
		inv, bias, center, x, w, f := s.vec(), s.vec(), s.vec(), s.vec(), s.vec(), s.vec()
		VMOVUPS(at(par, 0, v), inv)
		VMOVUPS(at(par, 1, v), bias)
		VMOVUPS(at(par, 2, v), center)
		Label(loop)
		TESTQ(n, n)
		JZ(LabelRef(done))
		VMOVUPS(at(t, 0, v), w)
		VMOVAPS(w, x)
		q.code(x, bias, inv)
		VBROADCASTSS(Mem{Base: d}, f)
		VSUBPS(center, w, w)
		VMULPS(x, f, f)
		VADDPS(f, acc[0], acc[0])
		VFMADD231PS(f, x, acc[1])
		VFMADD231PS(f, w, acc[2])
		ADDQ(ldt, t)
		ADDQ(U8(4), d)
		DECQ(n)
		JMP(LabelRef(loop))
		Label(done)
		for i := range acc {
			VMOVUPS(acc[i], at(sums, i, v))
		}
	}
	VZEROUPPER()
	RET()
}
