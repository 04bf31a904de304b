package kernel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// SyrkBlock is the number of rows whose products SyrkF32 adds in float32.
const SyrkBlock = 2048

// SyrkF32 adds xᵀx to the upper triangle of h, a symmetric rank-t update:
// h[i·d+j] += Σ x[a·ldx+i]·x[a·ldx+j] over the t rows of x, for i ≤ j < d. Rows
// are taken in blocks of SyrkBlock from the first on. What a block adds is one
// inner product in float32, in the order of MulF32; blocks are added in
// float64. So h has the same bits on any number of cores, and from several
// calls of whole blocks as from one. The lower triangle is left alone; see
// Mirror.
//
// It uses as many goroutines as GOMAXPROCS says, and h must not be in use by
// another.
func SyrkF32(h []float64, x []float32, ldx, t, d int) {
	if t == 0 || d == 0 {
		return
	}
	_, _ = h[d*d-1], x[(t-1)*ldx+d-1]
	for a := 0; a < t; a += SyrkBlock {
		b, n := x[a*ldx:], min(SyrkBlock, t-a)
		if cur.panel != nil {
			syrkPanels(cur.panel, h, b, ldx, n, d)
		} else {
			syrkColumns(h, b, ldx, n, d)
		}
	}
}

// syrkGroup is how many panels of rows are multiplied by one of columns at a
// time.
const syrkGroup = 4

// syrkPanels packs columns of x in panels, which serve as both operands: a
// panel of columns, and tiles of rows that divide one.
func syrkPanels(f *panelForms, h []float64, x []float32, ldx, t, d int) {
	s := f.shape(f.cols, t)
	panels := (d + f.cols - 1) / f.cols
	size := lanes * s.lane(f.cols)
	all := syrkPool.Get().(*[]float32)
	defer syrkPool.Put(all)
	packed := sized(all, panels*size)
	split(panels, func(p int) {
		packColumns(packed[p*size:][:size], s, f.cols, x[p*f.cols:], ldx, t, min(f.cols, d-p*f.cols))
	})
	// Units with the most work first: the last columns.
	groups := make([][2]int, 0, panels*(panels/syrkGroup+1))
	for j := panels - 1; j >= 0; j-- {
		for i := 0; i <= j; i += syrkGroup {
			groups = append(groups, [2]int{i, j})
		}
	}
	split(len(groups), func(u int) {
		i, j := groups[u][0], groups[u][1]
		sc := panelScratches.Get().(*panelScratch)
		defer panelScratches.Put(sc)
		f.syrkGroup(sc, s, h, d, packed, i, min(i+syrkGroup, j+1), j)
	})
}

var syrkPool = sync.Pool{New: func() any { return new([]float32) }}

// packColumns packs w columns of x as packPanel does rows: row 16·s+r goes to
// dst[r·lane+s·cols:].
func packColumns(dst []float32, s panelShape, cols int, x []float32, ldx, t, w int) {
	for a := range s.steps * lanes {
		to := dst[a%lanes*s.lane(cols)+a/lanes*cols:][:cols]
		switch {
		case a >= t:
			clear(to)
		case w == 32 && cols == 32:
			*(*[32]float32)(to) = *(*[32]float32)(x[a*ldx:])
		default:
			clear(to[copy(to, x[a*ldx:][:w]):])
		}
	}
}

// syrkGroup multiplies panels i0 to i1 as rows by panel j.
func (f *panelForms) syrkGroup(sc *panelScratch, s panelShape, h []float64, d int, packed []float32, i0, i1, j int) {
	size := lanes * s.lane(f.cols)
	sums := sized(&sc.sums, (i1-i0)*s.tiles*slots*f.slot())
	out := sized(&sc.edge, f.slot())
	for q := range lanes {
		o := laneOrder[q]
		b := &packed[j*size+o.lane*s.lane(f.cols)]
		for i := i0; i < i1; i++ {
			for k := range s.tiles {
				from, to := s.tile(k)
				m := to - from
				mine := sums[((i-i0)*s.tiles+k)*slots*f.slot():][:slots*f.slot()]
				dst := &out[0]
				if q < lanes-1 {
					dst = &mine[o.slot*f.slot()]
				}
				a := &packed[i*size+o.lane*s.lane(f.cols)+from]
				f.tiles[m](dst, f.cols, a, f.cols, b, s.steps, &mine[o.top*f.slot()], o.merges)
				if q == lanes-1 {
					addUpper(h, d, out, f.cols, i*f.cols+from, m, j*f.cols)
				}
			}
		}
	}
}

// addUpper adds m rows of sums, as far as they are above the diagonal.
func addUpper(h []float64, d int, sums []float32, cols, i0, m, j0 int) {
	for i := i0; i < min(i0+m, d); i++ {
		from := max(j0, i)
		if from >= min(j0+cols, d) {
			continue
		}
		row := h[i*d+from : i*d+min(j0+cols, d)]
		src := sums[(i-i0)*cols+from-j0:][:len(row)]
		for c, v := range src {
			row[c] += float64(v)
		}
	}
}

// syrkTile is how many rows and columns of h are computed at a time from
// columns.
const syrkTile = 64

// syrkColumns is the form without panels.
func syrkColumns(h []float64, x []float32, ldx, t, d int) {
	cols := make([]float32, d*t)
	tiles := (d + syrkTile - 1) / syrkTile
	split(tiles, func(i int) {
		for j := i * syrkTile; j < min((i+1)*syrkTile, d); j++ {
			for a, col := 0, cols[j*t:][:t]; a < t; a++ {
				col[a] = x[a*ldx+j]
			}
		}
	})
	split(tiles*(tiles+1)/2, func(u int) {
		j := 0
		for ; u > j; j++ {
			u -= j + 1
		}
		i0, j0 := u*syrkTile, j*syrkTile
		m, n := min(syrkTile, d-i0), min(syrkTile, d-j0)
		var out [syrkTile * syrkTile]float32
		MulF32(out[:], n, cols[i0*t:], t, m, cols[j0*t:], t, n, t)
		addUpper(h, d, out[:], n, i0, m, j0)
	})
}

// split calls f for 0 … n-1 on all cores.
func split(n int, f func(i int)) {
	var next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			f(int(i))
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}

// Mirror copies the upper triangle of h [d,d] to the lower.
func Mirror(h []float64, d int) {
	const tile = 32
	for i0 := 0; i0 < d; i0 += tile {
		for j0 := i0; j0 < d; j0 += tile {
			for i := i0; i < min(i0+tile, d); i++ {
				for j := max(j0, i+1); j < min(j0+tile, d); j++ {
					h[j*d+i] = h[i*d+j]
				}
			}
		}
	}
}
