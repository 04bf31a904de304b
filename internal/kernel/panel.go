package kernel

import (
	"math"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/smelt-go/smelt/internal/half"
)

// Products of many rows keep a tile of results in registers and run along k,
// reading both operands from packed panels. To add in the order of the
// specification, k is taken lane by lane: the products of lane 0, then those
// of lane 8, whose sum is added to that of lane 0, and so on in the order in
// which sum adds lanes, like carries of a binary counter. The sums that wait
// for another one are in slots.

type panelTile func(dst *float32, ldd int, a *float32, lda int, b *float32, steps int, top *float32, merges int)

// panelForms are the parts of a product with packed panels.
type panelForms struct {
	most    int           // rows of the highest tile
	cols    int           // columns of tiles
	tiles   [15]panelTile // by rows, from half of most on
	group   int           // rows that pack takes at once
	packF32 func(dst *float32, step, res int, rows **float32, blocks int)
	packF16 func(dst *float32, step, res int, rows **uint16, blocks int)
	// The shortest rows for which panels are faster, by elements of w.
	fromF32, fromF16 int
}

// slot is the number of elements of the largest tile.
func (f *panelForms) slot() int { return f.most * f.cols }

// takes says that a product is faster with panels: with rows so long that the
// tiles of the other form, which read whole rows, leave the first cache level.
func (f *panelForms) takes(t, n, k, size int) bool {
	if f == nil || t < panelLeastRows || n < panelLeastCols {
		return false
	}
	least := f.fromF32
	if size == 2 {
		least = f.fromF16
	}
	return k >= least
}

const (
	panelLeastRows = 32
	panelLeastCols = 128 // for which x is worth packing
	// never is longer than any row.
	never = math.MaxInt
	// panelRows bounds the rows of x that are packed at once.
	panelRows = 512
	// panelTiles is how many tiles use a lane of a panel of w, in the first
	// cache level, before the next lane.
	panelTiles = 16
	// slots is how many sums can wait.
	slots = 4
	// spill is how far packing may write beyond a lane of a panel.
	spill = 16
)

// laneOrder is the order in which lanes are taken: which one, the last slot of
// those that wait, how many of them are added, and where the sum goes.
var laneOrder = func() (out [lanes]struct{ lane, top, merges, slot int }) {
	for q := range out {
		o := &out[q]
		waiting := bits.OnesCount(uint(q))
		o.lane, o.merges = int(bits.Reverse8(uint8(q))>>4), bits.TrailingZeros(^uint(q))
		o.top, o.slot = max(waiting-1, 0), waiting-o.merges
	}
	return out
}()

// panelScratch is the memory of one product under way.
type panelScratch struct {
	right, sums, edge []float32
	tail              [lanes * lanes]float32 // or halves
}

var panelScratches = sync.Pool{New: func() any { return new(panelScratch) }}

// panelShape divides t rows into tiles of even height.
type panelShape struct {
	t, tiles int
	steps    int // of a lane
}

func (f *panelForms) shape(t, k int) panelShape {
	return panelShape{t, (t + f.most - 1) / f.most, (k + lanes - 1) / lanes}
}

// tile is the range of rows of tile i.
func (s panelShape) tile(i int) (from, to int) { return i * s.t / s.tiles, (i + 1) * s.t / s.tiles }

// lane is the number of elements from one lane of a panel to the next.
func (s panelShape) lane(width int) int { return s.steps*width + spill }

func mulPanels[W Weight](f *panelForms, dst []float32, ldd int, x []float32, ldx, t int, w []W, ldw, n, k int) {
	l := lefts.Get().(*Left)
	defer l.release()
	blocks := (t + panelRows - 1) / panelRows
	for b := range blocks {
		t0, t1 := b*t/blocks, (b+1)*t/blocks
		l.set(f, x[t0*ldx:], ldx, t1-t0, k)
		l.Pack(0, l.Tiles())
		mulLeft(l, dst[t0*ldd:], ldd, w, ldw, n)
	}
}

var lefts = sync.Pool{New: func() any { return new(Left) }}

func (l *Left) release() {
	l.x = nil
	lefts.Put(l)
}

// Left is the left operand of products, packed once for several of them. It
// must not be changed while it is in use.
type Left struct {
	f     *panelForms
	shape panelShape
	x     []float32
	ldx   int
	k     int
	data  []float32
}

// Prepare makes l stand for t rows of k elements of x, ldx apart, for products
// with float32 or codes of at least n rows. It returns false, and l is not to
// be used, if the products of x itself are as fast.
func (l *Left) Prepare(x []float32, ldx, t, n, k int) bool {
	if t > panelRows || !cur.panel.takes(t, n, k, 4) {
		return false
	}
	l.set(cur.panel, x, ldx, t, k)
	return true
}

func (l *Left) set(f *panelForms, x []float32, ldx, t, k int) {
	l.f, l.shape, l.x, l.ldx, l.k = f, f.shape(t, k), x, ldx, k
	l.data = sized(&l.data, l.shape.tiles*l.stride())
}

// stride is the number of elements from tile to tile.
func (l *Left) stride() int { return lanes * l.shape.lane(l.f.most) }

// Tiles is the number of parts that Pack takes.
func (l *Left) Tiles() int { return l.shape.tiles }

// Pack packs tiles lo to hi. All of them must be before a product, in any order.
func (l *Left) Pack(lo, hi int) {
	sc := panelScratches.Get().(*panelScratch)
	defer panelScratches.Put(sc)
	for i := lo; i < hi; i++ {
		from, to := l.shape.tile(i)
		packPanel(l.f, sc, l.data[i*l.stride():], l.shape.lane(to-from), to-from, l.x[from*l.ldx:], l.ldx, to-from, l.k)
	}
}

// MulF32 is the product of MulF32 with the packed rows as x.
func (l *Left) MulF32(dst []float32, ldd int, w []float32, ldw, n int) {
	mulLeft(l, dst, ldd, w, ldw, n)
}

func mulLeft[W Weight](l *Left, dst []float32, ldd int, w []W, ldw, n int) {
	sc := panelScratches.Get().(*panelScratch)
	defer panelScratches.Put(sc)
	f, lane := l.f, l.shape.lane(l.f.cols)
	right := sized(&sc.right, lanes*lane)
	for j := 0; j < n; j += f.cols {
		cols := min(f.cols, n-j)
		packPanel(f, sc, right, lane, f.cols, w[j*ldw:], ldw, cols, l.k)
		f.mulPanel(sc, l.shape, dst[j:], ldd, l.data, right, cols)
	}
}

// mulPanel multiplies all tiles of left by one panel.
func (f *panelForms) mulPanel(sc *panelScratch, s panelShape, dst []float32, ldd int, left, right []float32, n int) {
	sums := sized(&sc.sums, panelTiles*slots*f.slot())
	stride := lanes * s.lane(f.most)
	for i0 := 0; i0 < s.tiles; i0 += panelTiles {
		for q := range lanes {
			o := laneOrder[q]
			b := &right[o.lane*s.lane(f.cols)]
			for i := i0; i < min(i0+panelTiles, s.tiles); i++ {
				from, to := s.tile(i)
				m := to - from
				mine := sums[(i-i0)*slots*f.slot():][:slots*f.slot()]
				a := &left[i*stride+o.lane*s.lane(m)]
				if q < lanes-1 {
					f.tiles[m](&mine[o.slot*f.slot()], f.cols, a, m, b, s.steps, &mine[o.top*f.slot()], o.merges)
					continue
				}
				if n == f.cols {
					f.tiles[m](&dst[from*ldd], ldd, a, m, b, s.steps, &mine[o.top*f.slot()], o.merges)
					continue
				}
				edge := sized(&sc.edge, f.slot())
				f.tiles[m](&edge[0], f.cols, a, m, b, s.steps, &mine[o.top*f.slot()], o.merges)
				for i := range m {
					copy(dst[(from+i)*ldd:][:n], edge[i*f.cols:])
				}
			}
		}
	}
}

// packPanel packs rows of k elements: element 16·s+r of row i goes to
// dst[r·lane+s·step+i]. Where rows or elements are missing, elements of a lane
// are 0 and those of a row arbitrary.
func packPanel[W Weight](f *panelForms, sc *panelScratch, dst []float32, lane, step int, src []W, ld, rows, k int) {
	blocks := k / lanes
	for i := 0; i < step; i += f.group {
		// The last row stands for those beyond.
		var at, tail [lanes]*W
		for g := range f.group {
			at[g] = &src[min(i+g, rows-1)*ld]
		}
		packBlocks(f, dst[i:], step, lane, &at, blocks)
		if k%lanes == 0 {
			continue
		}
		pad := unsafe.Slice((*W)(unsafe.Pointer(&sc.tail)), len(sc.tail))
		for g := range f.group {
			row := pad[g*lanes:][:lanes]
			n := copy(row, src[min(i+g, rows-1)*ld+blocks*lanes:][:k%lanes])
			clear(row[n:])
			tail[g] = &row[0]
		}
		packBlocks(f, dst[i+blocks*step:], step, lane, &tail, 1)
	}
}

// packBlocks packs blocks of 16 elements of a group of rows.
func packBlocks[W Weight](f *panelForms, dst []float32, step, lane int, rows *[lanes]*W, blocks int) {
	if blocks == 0 {
		return
	}
	_ = dst[(lanes-1)*lane+(blocks-1)*step+f.group-1]
	switch rows := any(rows).(type) {
	case *[lanes]*float32:
		if f.packF32 != nil {
			f.packF32(&dst[0], step, lane, &rows[0], blocks)
			return
		}
		for g := range f.group {
			for e, v := range unsafe.Slice(rows[g], blocks*lanes) {
				dst[e%lanes*lane+e/lanes*step+g] = v
			}
		}
	case *[lanes]*uint16:
		if f.packF16 != nil {
			f.packF16(&dst[0], step, lane, &rows[0], blocks)
			return
		}
		for g := range f.group {
			for e, h := range unsafe.Slice(rows[g], blocks*lanes) {
				dst[e%lanes*lane+e/lanes*step+g] = half.ToF32(h)
			}
		}
	}
}
