package kernel

import (
	"sync"
	"unsafe"

	"github.com/smelt-go/smelt/internal/half"
)

// Weight is the element type of a matrix in memory: float32, or the bits of a
// half.
type Weight interface{ uint16 | float32 }

type dotTile[W Weight] func(dst *float32, ldd int, x *float32, ldx int, w *W, ldw int, steps int, xt *float32, wt *W)

// dotTiles[m][n] multiplies m rows of x by n rows of w.
type dotTiles[W Weight] [7][9]dotTile[W]

// height is the largest number of rows of x that tiles take at once; 0 if
// there are no tiles.
func (t *dotTiles[W]) height() int {
	for m := len(t) - 1; m > 0; m-- {
		if t[m][1] != nil {
			return m
		}
	}
	return 0
}

// width is the widest tile of m rows that covers at most n rows of w.
func (t *dotTiles[W]) width(m, n int) int {
	for n = min(n, len(t[m])-1); n > 1; n-- {
		if t[m][n] != nil {
			return n
		}
	}
	return 1
}

// blockBytes is how much of w is reused for all rows of x before the next
// part of it is read: a part of the second-level cache.
const blockBytes = 256 << 10

// MulF16 computes dst = x·wᵀ: dst[i·ldd+j] is the inner product of row i of x
// (t rows of k elements, ldx apart) and row j of w (n rows of k halves, ldw
// apart).
func MulF16(dst []float32, ldd int, x []float32, ldx, t int, w []uint16, ldw, n, k int) {
	mulRows(&cur.f16, cur.panel, dst, ldd, x, ldx, t, w, ldw, n, k)
}

// MulF32 is MulF16 with w in float32.
func MulF32(dst []float32, ldd int, x []float32, ldx, t int, w []float32, ldw, n, k int) {
	mulRows(&cur.f32, cur.panel, dst, ldd, x, ldx, t, w, ldw, n, k)
}

func mulRows[W Weight](tiles *dotTiles[W], f *panelForms, dst []float32, ldd int, x []float32, ldx, t int, w []W, ldw, n, k int) {
	if t == 0 || n == 0 {
		return
	}
	// One check of the last element read and written covers the tiles.
	_, _ = dst[(t-1)*ldd+n-1], w[:(n-1)*ldw+k]
	_ = x[:(t-1)*ldx+k]
	h := tiles.height()
	if h == 0 || k == 0 {
		mulGeneric(dst, ldd, x, ldx, t, w, ldw, n, k)
		return
	}
	var z W
	if f.takes(t, n, k, int(unsafe.Sizeof(z))) {
		mulPanels(f, dst, ldd, x, ldx, t, w, ldw, n, k)
		return
	}
	block := max(blockBytes/(k*int(unsafe.Sizeof(z)))&^7, 8)
	var tail *tails[W]
	if k%lanes != 0 {
		tail = getTails[W]()
		defer putTails(tail)
	}
	for j0 := 0; j0 < n; j0 += block {
		j1 := min(n, j0+block)
		for i, m := 0, 0; i < t; i += m {
			// Tiles of even height: 7 rows are 4 and 3, not 6 and 1.
			left := (t - i + h - 1) / h
			m = (t - i + left - 1) / left
			mulTile(tiles[m][:], tiles, tail, dst[i*ldd:], ldd, x[i*ldx:], ldx, m, w, ldw, j0, j1, k)
		}
	}
}

// mulTile multiplies m rows of x by rows j0 to j1 of w.
func mulTile[W Weight](row []dotTile[W], tiles *dotTiles[W], tail *tails[W], dst []float32, ldd int, x []float32, ldx, m int, w []W, ldw, j0, j1, k int) {
	var xt *float32
	var wt *W
	if tail != nil {
		xt, wt = &tail.x[0], &tail.w[0]
		packTail(tail.x[:], x, ldx, m, k)
	}
	nt := 0
	for j := j0; j < j1; {
		if nt == 0 || j+nt > j1 {
			nt = tiles.width(m, j1-j)
		}
		if tail != nil {
			packTail(tail.w[:], w[j*ldw:], ldw, nt, k)
		}
		row[nt](&dst[j], ldd, &x[0], ldx, &w[j*ldw], ldw, k/lanes, xt, wt)
		j += nt
	}
}

// tails holds the last k mod 16 elements of the rows of a tile, zero-padded.
type tails[W Weight] struct {
	x [6 * lanes]float32
	w [8 * lanes]W
}

var tailsF16, tailsF32 sync.Pool

func tailPool[W Weight]() *sync.Pool {
	var z W
	if unsafe.Sizeof(z) == 2 {
		return &tailsF16
	}
	return &tailsF32
}

func getTails[W Weight]() *tails[W] {
	if t, ok := tailPool[W]().Get().(*tails[W]); ok {
		return t
	}
	return new(tails[W])
}

func putTails[W Weight](t *tails[W]) { tailPool[W]().Put(t) }

func packTail[W Weight](dst, src []W, ld, rows, k int) {
	from := k &^ (lanes - 1)
	for i := range rows {
		d := dst[i*lanes:][:lanes]
		n := copy(d, src[i*ld+from:i*ld+k])
		clear(d[n:])
	}
}

var rowPool = sync.Pool{New: func() any { return new([]float32) }}

func mulGeneric[W Weight](dst []float32, ldd int, x []float32, ldx, t int, w []W, ldw, n, k int) {
	buf := rowPool.Get().(*[]float32)
	defer rowPool.Put(buf)
	if cap(*buf) < k {
		*buf = make([]float32, k)
	}
	row := (*buf)[:k]
	for j := range n {
		switch w := any(w[j*ldw:][:k]).(type) {
		case []float32:
			row = w
		case []uint16:
			half.F16ToF32(row, w)
		}
		for i := range t {
			dst[i*ldd+j] = dot(x[i*ldx:][:k], row)
		}
	}
}
