package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// outerKernels are tiles of p·v with v in rows along the result: mt rows of p
// by n columns of v. Every element adds its products in ascending order of
// the inner index.
func outerKernels(s isa) {
	shapes := [][2]int{{1, 1}, {2, 1}, {3, 1}, {4, 1}, {1, 4}, {2, 4}, {3, 4}, {4, 2}, {1, 8}}
	if s.width == 16 {
		shapes = [][2]int{{1, 1}, {2, 1}, {3, 1}, {4, 1}, {1, 4}, {2, 4}, {3, 4}, {4, 4}, {1, 16}}
	}
	for _, add := range []bool{false, true} {
		for _, m := range shapes {
			outerTile(s, m[0], m[1], add)
		}
	}
	touch(s)
}

// touch asks for n float32 ahead of their use.
func touch(s isa) {
	TEXT("touch"+s.suffix, NOSPLIT, "func(x *float32, n int)")
	Pragma("noescape")
	Doc("touch" + s.suffix + " brings n elements into the cache. n is a multiple of 16.")
	x, n := param("x"), param("n")
	Label("loop")
	SUBQ(U8(lanes), n)
	JLT(LabelRef("done"))
	PREFETCHT0(Mem{Base: x})
	ADDQ(U8(4*lanes), x)
	JMP(LabelRef("loop"))
	Label("done")
	RET()
}

// outerTile covers 16·nv columns with AVX-512 and 8·nv with AVX2. With add it
// goes on with the sums in dst.
func outerTile(s isa, mt, nv int, add bool) {
	name, what := "outer", "multiplies"
	if add {
		name, what = "outerAdd", "adds to dst the products of"
	}
	name = fmt.Sprintf("%s%dx%d%s", name, mt, nv*s.width, s.suffix)
	TEXT(name, NOSPLIT, "func(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)")
	Pragma("noescape")
	by := "by"
	if add {
		by = "and"
	}
	Doc(fmt.Sprintf("%s %s %d rows of p %s %d columns of v over c elements.", name, what, mt, by, nv*s.width))

	ldp, ldv := param("ldp"), param("ldv")
	SHLQ(U8(2), ldp)
	SHLQ(U8(2), ldv)
	p := newRows(param("p"), ldp, mt)
	v, c := param("v"), param("c")
	dst, ldd := param("dst"), param("ldd")
	SHLQ(U8(2), ldd)
	acc := make([][]reg.VecVirtual, mt)
	at := GP64()
	if add {
		MOVQ(dst, at)
	}
	for i := range acc {
		acc[i] = s.vecs(nv)
		for j, a := range acc[i] {
			if add {
				VMOVUPS(Mem{Base: at, Disp: 4 * j * s.width}, a)
			} else {
				s.zero(a)
			}
		}
		if add && i+1 < mt {
			ADDQ(ldd, at)
		}
	}
	pv := s.vec()
	Label("loop")
	TESTQ(c, c)
	JZ(LabelRef("done"))
	if mt == 1 {
		VBROADCASTSS(p.at(0, 0), pv)
		for j := range nv {
			VFMADD231PS(Mem{Base: v, Disp: 4 * j * s.width}, pv, acc[0][j])
		}
	} else {
		vv := s.vecs(nv)
		for j := range nv {
			VMOVUPS(Mem{Base: v, Disp: 4 * j * s.width}, vv[j])
		}
		for i := range mt {
			VBROADCASTSS(p.at(i, 0), pv)
			for j := range nv {
				VFMADD231PS(vv[j], pv, acc[i][j])
			}
		}
	}
	p.advance(4)
	ADDQ(ldv, v)
	DECQ(c)
	JMP(LabelRef("loop"))
	Label("done")
	for i := range mt {
		for j := range nv {
			VMOVUPS(acc[i][j], Mem{Base: dst, Disp: 4 * j * s.width})
		}
		if i+1 < mt {
			ADDQ(ldd, dst)
		}
	}
	VZEROUPPER()
	RET()
}
