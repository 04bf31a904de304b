package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// panelKernels multiply packed panels: tiles that keep their sums in registers,
// and what packs rows for them.
func panelKernels(s isa) {
	least, most := 3, 6
	if s.width == 16 {
		least, most = 7, 14
	}
	for m := least; m <= most; m++ {
		panelTile(s, m, most)
	}
	packPanel(s, "F32", "float32", func(m Mem, v reg.VecVirtual) { VMOVUPS(m, v) }, 4)
	packPanel(s, "F16", "uint16", s.loadF16, 2)
}

// panelCols is the number of registers along a row of a tile.
const panelCols = 2

// panelTile adds the products of m rows by panelCols registers of columns over
// steps elements. Sums that are waiting in slots of the highest tile's size
// are added from the last one down.
func panelTile(s isa, m, most int) {
	name := fmt.Sprintf("panel%d%s", m, s.suffix)
	TEXT(name, NOSPLIT, "func(dst *float32, ldd int, a *float32, lda int, b *float32, steps int, top *float32, merges int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s multiplies panels of %d rows and %d columns, adds merges slots of sums from", name, m, panelCols*s.width),
		"top down, and stores the result. lda is from one step of a to the next.")
	a, lda, b, steps := param("a"), param("lda"), param("b"), param("steps")
	SHLQ(U8(2), lda)
	a3 := GP64()
	LEAQ(Mem{Base: a, Index: lda, Scale: 2}, a3)
	ADDQ(lda, a3)
	acc := make([][]reg.VecVirtual, m)
	for i := range acc {
		acc[i] = s.vecs(panelCols)
		for _, v := range acc[i] {
			s.zero(v)
		}
	}
	bv, av := s.vecs(panelCols), s.vecs(2)
	row := 4 * panelCols * s.width
	step := func(u int) {
		for j := range bv {
			VMOVUPS(Mem{Base: b, Disp: u*row + 4*j*s.width}, bv[j])
		}
		for i := range acc {
			at := Mem{Base: a, Disp: 4 * i}
			switch u {
			case 1, 2:
				at.Index, at.Scale = lda, uint8(u)
			case 3:
				at.Base = a3
			}
			VBROADCASTSS(at, av[i%2])
			for j := range bv {
				VFMADD231PS(bv[j], av[i%2], acc[i][j])
			}
		}
	}
	const unroll = 4
	SUBQ(U8(unroll), steps)
	JLT(LabelRef("rest"))
	Label("loop")
	for u := range unroll {
		step(u)
	}
	LEAQ(Mem{Base: a, Index: lda, Scale: unroll}, a)
	LEAQ(Mem{Base: a3, Index: lda, Scale: unroll}, a3)
	ADDQ(U32(uint32(unroll*row)), b)
	SUBQ(U8(unroll), steps)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(U8(unroll), steps)
	JZ(LabelRef("merge"))
	Label("one")
	step(0)
	ADDQ(lda, a)
	ADDQ(U32(uint32(row)), b)
	DECQ(steps)
	JNZ(LabelRef("one"))

	Label("merge")
	top, merges := param("top"), param("merges")
	TESTQ(merges, merges)
	JZ(LabelRef("store"))
	Label("slot")
	for i := range acc {
		for j, v := range acc[i] {
			VADDPS(Mem{Base: top, Disp: i*row + 4*j*s.width}, v, v)
		}
	}
	SUBQ(U32(uint32(most*row)), top)
	DECQ(merges)
	JNZ(LabelRef("slot"))

	Label("store")
	dst, ldd := param("dst"), param("ldd")
	SHLQ(U8(2), ldd)
	for i := range acc {
		for j, v := range acc[i] {
			VMOVUPS(v, Mem{Base: dst, Disp: 4 * j * s.width})
		}
		if i+1 < m {
			ADDQ(ldd, dst)
		}
	}
	VZEROUPPER()
	RET()
}

// packPanel turns blocks of 16 elements of as many rows as a register has
// lanes into columns. Element 16·s+r of all rows goes to dst + s·step + r·res.
func packPanel(s isa, kind, elem string, load func(Mem, reg.VecVirtual), size int) {
	name := "pack" + kind + s.suffix
	TEXT(name, NOSPLIT, fmt.Sprintf("func(dst *float32, step, res int, rows **%s, blocks int)", elem))
	Pragma("noescape")
	Doc(fmt.Sprintf("%s transposes blocks of 16 elements of %d rows: column r of block s goes to", name, s.width),
		"dst[s·step+r·res:].")
	res := param("res")
	SHLQ(U8(2), res)
	out := newRows(param("dst"), res, lanes)
	step, list, blocks := param("step"), param("rows"), param("blocks")
	SHLQ(U8(2), step)
	at, p := GP64(), GP64()
	XORQ(at, at)
	TESTQ(blocks, blocks)
	JZ(LabelRef("done"))
	Label("loop")
	for part := range s.parts() {
		v := s.vecs(s.width)
		for i := range v {
			MOVQ(Mem{Base: list, Disp: 8 * i}, p)
			load(Mem{Base: p, Index: at, Scale: 1, Disp: part * s.width * size}, v[i])
		}
		for r, c := range s.transpose(v) {
			VMOVUPS(c, out.at(part*s.width+r, 0))
		}
	}
	ADDQ(U32(uint32(lanes*size)), at)
	for _, b := range out.base {
		ADDQ(step, b)
	}
	DECQ(blocks)
	JNZ(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// transpose returns the columns of the square matrix of which v are rows.
func (s isa) transpose(v []reg.VecVirtual) []reg.VecVirtual {
	// Columns of four rows at a time, in quarters of a register: part L of
	// u[g][c] is column 4·L+c of rows 4·g to 4·g+3.
	u := make([][]reg.VecVirtual, len(v)/4)
	for g := range u {
		r, t := v[4*g:], s.vecs(4)
		VUNPCKLPS(r[1], r[0], t[0])
		VUNPCKHPS(r[1], r[0], t[1])
		VUNPCKLPS(r[3], r[2], t[2])
		VUNPCKHPS(r[3], r[2], t[3])
		u[g] = s.vecs(4)
		VUNPCKLPD(t[2], t[0], u[g][0])
		VUNPCKHPD(t[2], t[0], u[g][1])
		VUNPCKLPD(t[3], t[1], u[g][2])
		VUNPCKHPD(t[3], t[1], u[g][3])
	}
	out := s.vecs(len(v))
	for c := range 4 {
		if s.width == 8 {
			VPERM2F128(U8(0x20), u[1][c], u[0][c], out[c])
			VPERM2F128(U8(0x31), u[1][c], u[0][c], out[4+c])
			continue
		}
		t := s.vecs(4)
		VSHUFF32X4(U8(0x88), u[1][c], u[0][c], t[0])
		VSHUFF32X4(U8(0xdd), u[1][c], u[0][c], t[1])
		VSHUFF32X4(U8(0x88), u[3][c], u[2][c], t[2])
		VSHUFF32X4(U8(0xdd), u[3][c], u[2][c], t[3])
		VSHUFF32X4(U8(0x88), t[2], t[0], out[c])
		VSHUFF32X4(U8(0x88), t[3], t[1], out[4+c])
		VSHUFF32X4(U8(0xdd), t[2], t[0], out[8+c])
		VSHUFF32X4(U8(0xdd), t[3], t[1], out[12+c])
	}
	return out
}
