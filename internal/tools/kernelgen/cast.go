package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// castKernels change element types and watch the range; castKernels of every
// instruction set, and the Go form, give the same bits.
func castKernels(s isa) {
	s.stream("bf16ToF32", "func(dst *float32, src *uint16, n int)", "widens bfloat16.", []string{"dst", "src"}, []int{4, 2},
		func() (func(int, mem), func()) {
			v := s.vec()
			return func(at int, m mem) {
				s.loadBF16(m(1, at), v)
				VMOVUPS(v, m(0, at))
			}, nil
		})
	s.stream("bf16ToF16", "func(dst, src *uint16, scale float32, n int) uint32",
		"rounds scaled bfloat16 to halves; it returns the largest magnitude before rounding.", []string{"dst", "src"}, []int{2, 2},
		func() (func(int, mem), func()) {
			scale, v := s.broadcastParam("scale"), s.vec()
			watch, finish := s.maxBits()
			return func(at int, m mem) {
				s.loadBF16(m(1, at), v)
				VMULPS(scale, v, v)
				VCVTPS2PH(U8(0), v, m(0, at))
				watch(v)
			}, finish
		})
	// Words need another extension in 512 bits; memory is the limit anyway.
	s.stream("maxBits16", "func(x *uint16, n int) uint32", "finds the largest magnitude of halves or bfloat16.", []string{"x"}, []int{2},
		func() (func(int, mem), func()) {
			r, x, mask, acc, v := GP32(), XMM(), YMM(), YMM(), YMM()
			MOVL(U32(0x7fff7fff), r)
			VMOVD(r, x)
			VPBROADCASTD(x, mask)
			VPXOR(acc, acc, acc)
			return func(at int, m mem) {
					if at == 0 {
						VPAND(m(0, 0), mask, v)
						VPMAXUW(v, acc, acc)
					}
				}, func() {
					x, t := XMM(), XMM()
					VEXTRACTI128(U8(1), acc, x)
					VPMAXUW(acc.AsX(), x, x)
					for _, d := range []uint8{8, 4, 2} {
						VPSRLDQ(U8(d), x, t)
						VPMAXUW(t, x, x)
					}
					VMOVD(x, r)
					ANDL(U32(0xffff), r)
					Store(r, ReturnIndex(0))
				}
		})
	s.stream("maxBits", "func(x *float32, n int) uint32", "finds the largest magnitude.", []string{"x"}, []int{4},
		func() (func(int, mem), func()) {
			v := s.vec()
			watch, finish := s.maxBits()
			return func(at int, m mem) {
				VMOVUPS(m(0, at), v)
				watch(v)
			}, finish
		})
}

// loadBF16 widens one register of bfloat16.
func (s isa) loadBF16(m Mem, v reg.VecVirtual) {
	VPMOVZXWD(m, v)
	VPSLLD(U8(16), v, v)
}

// maxBits keeps the largest magnitude of the registers that watch sees, as an
// integer, and returns it. watch destroys its argument.
func (s isa) maxBits() (watch func(v reg.VecVirtual), finish func()) {
	mask, acc := s.constant(1<<31-1), s.vec()
	s.zero(acc)
	watch = func(v reg.VecVirtual) {
		if s.width == 16 {
			VPANDD(mask, v, v)
		} else {
			VPAND(mask, v, v)
		}
		VPMAXUD(v, acc, acc)
	}
	return watch, func() {
		x := s.fold(acc, func(a, b reg.VecVirtual) { VPMAXUD(a, b, b) })
		r := GP32()
		VMOVD(x, r)
		Store(r, ReturnIndex(0))
	}
}

// exactKernels are tiles like those of dotKernels whose products are rounded
// before they are added: the bits of the Go form.
func exactKernels(s isa) {
	shapes := [][2]int{{1, 1}, {2, 1}, {1, 2}, {2, 2}}
	if s.width == 16 {
		shapes = nil
		for mt := 1; mt <= 5; mt++ {
			shapes = append(shapes, [2]int{mt, 1}, [2]int{mt, 4})
		}
	}
	for _, m := range shapes {
		exactTile(s, m[0], m[1])
	}
}

func exactTile(s isa, mt, nt int) {
	name := fmt.Sprintf("exact%dx%d%s", mt, nt, s.suffix)
	TEXT(name, NOSPLIT, "func(dst *float32, ldd int, x *float32, ldx int, w *float32, ldw int, steps int, xt *float32, wt *float32)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s multiplies %d rows of x by %d rows of w over 16·steps elements and one", name, mt, nt),
		"step more of packed rows xt, wt of 16 elements if xt is not nil. Products are rounded.")

	ldx, ldw := param("ldx"), param("ldw")
	SHLQ(U8(2), ldx)
	SHLQ(U8(2), ldw)
	x := newRows(param("x"), ldx, mt)
	w := newRows(param("w"), ldw, nt)
	steps, xt := param("steps"), param("xt")
	acc := make([][][]reg.VecVirtual, mt)
	for i := range acc {
		acc[i] = make([][]reg.VecVirtual, nt)
		for j := range acc[i] {
			acc[i][j] = s.vecs(s.parts())
			for _, v := range acc[i][j] {
				s.zero(v)
			}
		}
	}
	wv, xv, product := s.vecs(nt), s.vec(), s.vec()
	step := func() {
		for p := range s.parts() {
			for j := range nt {
				VMOVUPS(w.at(j, p*s.width*4), wv[j])
			}
			for i := range mt {
				VMOVUPS(x.at(i, p*s.width*4), xv)
				for j := range nt {
					VMULPS(wv[j], xv, product)
					VADDPS(product, acc[i][j][p], acc[i][j][p])
				}
			}
		}
	}
	TESTQ(steps, steps)
	JZ(LabelRef("tail"))
	Label("loop")
	step()
	x.advance(lanes * 4)
	w.advance(lanes * 4)
	DECQ(steps)
	JNZ(LabelRef("loop"))
	Label("tail")
	TESTQ(xt, xt)
	JZ(LabelRef("done"))
	MOVQ(U32(lanes*4), ldx)
	MOVQ(U32(lanes*4), ldw)
	x.set(xt)
	w.set(param("wt"))
	step()
	Label("done")

	dst, ldd := param("dst"), param("ldd")
	SHLQ(U8(2), ldd)
	for i := range mt {
		s.storeSums(acc[i], dst)
		if i+1 < mt {
			ADDQ(ldd, dst)
		}
	}
	VZEROUPPER()
	RET()
}
