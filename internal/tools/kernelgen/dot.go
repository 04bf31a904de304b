package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// dotKernels are tiles of x·wᵀ with both operands in rows along k: mt rows of
// x by nt rows of w. Lane j of an accumulator adds the products of all k = j
// mod 16 in ascending order.
func dotKernels(s isa) {
	shapes := [][2]int{{1, 1}, {2, 1}, {3, 1}, {1, 2}, {2, 2}, {3, 2}, {1, 4}}
	if s.width == 16 {
		shapes = nil
		// One row of x waits for memory, which is fastest in one stream: few
		// rows of w at a time are close to one, and enough to hide the latency
		// of an addition.
		for mt := 1; mt <= 6; mt++ {
			shapes = append(shapes, [2]int{mt, 1}, [2]int{mt, 4})
		}
	}
	for _, half := range []bool{true, false} {
		for _, m := range shapes {
			dotTile(s, m[0], m[1], half)
		}
	}
}

// Distances of prefetches in bytes, into the first and the second cache level.
const (
	prefetchNear = 16 << 10
	prefetchFar  = 32 << 10
)

// rows addresses rows 0..n-1 of a matrix through one base register for every
// three rows.
type rows struct {
	base []reg.GPVirtual
	ld   reg.GPVirtual // bytes between rows
}

func newRows(base, ld reg.GPVirtual, n int) rows {
	r := rows{ld: ld}
	for i := 0; i < n; i += 3 {
		r.base = append(r.base, GP64())
	}
	r.set(base)
	return r
}

// set points the rows at base.
func (r rows) set(base reg.GPVirtual) {
	for i, b := range r.base {
		if i == 0 {
			MOVQ(base, b)
			continue
		}
		LEAQ(Mem{Base: r.base[i-1], Index: r.ld, Scale: 2}, b)
		ADDQ(r.ld, b)
	}
}

func (r rows) at(i, disp int) Mem {
	m := Mem{Base: r.base[i/3], Disp: disp}
	if k := i % 3; k > 0 {
		m.Index, m.Scale = r.ld, uint8(k)
	}
	return m
}

func (r rows) advance(n int) {
	for _, b := range r.base {
		ADDQ(U32(uint32(n)), b)
	}
}

func dotTile(s isa, mt, nt int, half bool) {
	kind, elem, size := "F32", "float32", 4
	if half {
		kind, elem, size = "F16", "uint16", 2
	}
	name := fmt.Sprintf("dot%dx%d%s%s", mt, nt, kind, s.suffix)
	TEXT(name, NOSPLIT, fmt.Sprintf("func(dst *float32, ldd int, x *float32, ldx int, w *%s, ldw int, steps int, xt *float32, wt *%s)", elem, elem))
	Pragma("noescape")
	Doc(fmt.Sprintf("%s multiplies %d rows of x by %d rows of w over 16·steps elements and one", name, mt, nt),
		"step more of packed rows xt, wt of 16 elements if xt is not nil.")

	ldx, ldw := param("ldx"), param("ldw")
	SHLQ(U8(2), ldx)
	SHLQ(U8(uint8(size/2)), ldw)
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
	wv := s.vecs(nt)
	xv := s.vec()
	// Few rows of x are bound by memory. Rows of w are short for the
	// processor's own prefetching, so that what follows is asked for while
	// these are read: first into the second cache level, which can wait for
	// more lines at once, then into the first. These distances are the best
	// for two threads that share the memory, which then deliver a tenth more
	// than without the far one; a thread alone would do without it.
	var ahead reg.GPVirtual
	if mt <= 4 && nt > 1 {
		ahead = GP64()
		MOVQ(w.base[0], ahead)
		ADDQ(U32(prefetchNear), ahead)
	}
	prefetch := func() {
		if ahead == nil {
			return
		}
		bytes := 2 * lanes * size * nt
		for at := 0; at < bytes; at += 64 {
			PREFETCHT1(Mem{Base: ahead, Disp: at + prefetchFar - prefetchNear})
			PREFETCHT0(Mem{Base: ahead, Disp: at})
		}
		ADDQ(U32(uint32(bytes)), ahead)
	}
	step := func(at int) {
		for p := range s.parts() {
			e := at*lanes + p*s.width // element
			for j := range nt {
				if half {
					s.loadF16(w.at(j, e*size), wv[j])
				} else {
					VMOVUPS(w.at(j, e*size), wv[j])
				}
			}
			for i := range mt {
				VMOVUPS(x.at(i, e*4), xv)
				for j := range nt {
					VFMADD231PS(wv[j], xv, acc[i][j][p])
				}
			}
		}
	}
	SHRQ(U8(1), steps)
	JNC(LabelRef("even"))
	step(0)
	x.advance(lanes * 4)
	w.advance(lanes * size)
	Label("even")
	TESTQ(steps, steps)
	JZ(LabelRef("tail"))
	Label("loop")
	prefetch()
	step(0)
	step(1)
	x.advance(2 * lanes * 4)
	w.advance(2 * lanes * size)
	DECQ(steps)
	JNZ(LabelRef("loop"))
	Label("tail")
	TESTQ(xt, xt)
	JZ(LabelRef("done"))
	MOVQ(U32(lanes*4), ldx)
	MOVQ(U32(uint32(lanes*size)), ldw)
	x.set(xt)
	w.set(param("wt"))
	step(0)
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

// storeSums reduces the accumulators of one row of results and stores them.
func (s isa) storeSums(acc [][]reg.VecVirtual, dst reg.GPVirtual) {
	if s.width == 16 && len(acc)%4 == 0 {
		for j := 0; j < len(acc); j += 4 {
			s.store4(acc[j][0], acc[j+1][0], acc[j+2][0], acc[j+3][0], Mem{Base: dst, Disp: 4 * j})
		}
		return
	}
	for j, a := range acc {
		VMOVSS(s.reduce(a), Mem{Base: dst, Disp: 4 * j})
	}
}

// store4 reduces four registers at once, in the order of reduce.
func (s isa) store4(a, b, c, d reg.VecVirtual, dst Mem) {
	lo := ZMM()
	pair := func(a, b reg.VecVirtual, low, high uint8) {
		VSHUFF64X2(U8(low), b, a, lo)
		VSHUFF64X2(U8(high), b, a, a)
		VADDPS(lo, a, a)
	}
	pair(a, b, 0x44, 0xee)
	pair(c, d, 0x44, 0xee)
	pair(a, c, 0x88, 0xdd)
	VPERMILPS(U8(0x4e), a, lo)
	VADDPS(lo, a, a)
	VPERMILPS(U8(0xb1), a, lo)
	VADDPS(lo, a, a)
	m, k := GP32(), K()
	MOVL(U32(0x1111), m)
	KMOVW(m, k)
	VCOMPRESSPS_Z(a, k, a)
	VMOVUPS(a.AsX(), dst)
}
