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
		syrkBlock(h, x[a*ldx:], ldx, min(SyrkBlock, t-a), d)
	}
}

// syrkTile is how many rows and columns of h are computed at a time.
const syrkTile = 64

func syrkBlock(h []float64, x []float32, ldx, t, d int) {
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
		for i := range m {
			row := h[(i0+i)*d:][:d]
			for j := max(j0, i0+i); j < j0+n; j++ {
				row[j] += float64(out[i*n+j-j0])
			}
		}
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
