package kernel

type outerTile func(dst *float32, ldd int, p *float32, ldp int, v *float32, ldv int, c int)

// outerTiles[m] are the tiles of m rows, widest first.
type outerTiles [5][]struct {
	cols int
	run  outerTile
}

// MulNN computes dst = p·v: dst[i·ldd+j] = Σ p[i·ldp+a]·v[a·ldv+j] over the c
// values of a in ascending order, for t rows and n columns.
func MulNN(dst []float32, ldd int, p []float32, ldp, t int, v []float32, ldv, c, n int) {
	if t == 0 || n == 0 {
		return
	}
	_ = dst[(t-1)*ldd+n-1]
	if c == 0 {
		for i := range t {
			clear(dst[i*ldd:][:n])
		}
		return
	}
	_, _ = p[(t-1)*ldp+c-1], v[(c-1)*ldv+n-1]
	if cur.outer[1] == nil {
		for i := range t {
			outer(dst[i*ldd:][:n], p[i*ldp:][:c], v, ldv)
		}
		return
	}
	// Rows of v are read once for every tile: a part that stays in the first
	// cache level at a time, if there are tiles that go on with a sum.
	block := c
	onePass := t <= outerRows && n <= cur.outer[t][0].cols
	if least := outerBytes / (4 * n); !onePass && c > 2*least && n%outerGrain == 0 && cur.outerAdd[1] != nil {
		block = max(least, 1)
	}
	for a := 0; a < c; a += block {
		if block < c {
			// A tile walks down some columns; memory is faster along rows.
			if a == 0 {
				touchRows(v, ldv, min(block, c), n)
			}
			touchRows(v[min(a+block, c-1)*ldv:], ldv, min(block, c-a-block), n)
		}
		tiles := &cur.outer
		if a > 0 {
			tiles = &cur.outerAdd
		}
		mulColumns(tiles, dst, ldd, p[a:], ldp, t, v[a*ldv:], ldv, min(block, c-a), n)
	}
}

// outerRows is the largest number of rows of p that tiles take at once.
const outerRows = 4

// outerBytes is how much of v is used for all rows of p before the next part.
const outerBytes = 32 << 10

// outerGrain divides the columns that tiles cover without a rest.
const outerGrain = 16

func touchRows(v []float32, ldv, rows, n int) {
	if cur.touch == nil || rows <= 0 {
		return
	}
	if n == ldv {
		n, rows = n*rows, 1
	}
	for i := range rows {
		cur.touch(&v[i*ldv], n)
	}
}

func mulColumns(tiles *outerTiles, dst []float32, ldd int, p []float32, ldp, t int, v []float32, ldv, c, n int) {
	for i, m := 0, 0; i < t; i += m {
		left := (t - i + outerRows - 1) / outerRows
		m = (t - i + left - 1) / left
		j := 0
		for _, tile := range tiles[m] {
			for ; j+tile.cols <= n; j += tile.cols {
				tile.run(&dst[i*ldd+j], ldd, &p[i*ldp], ldp, &v[j], ldv, c)
			}
		}
		if j < n {
			outerEdge(dst[i*ldd+j:], ldd, p[i*ldp:], ldp, m, v[j:], ldv, c, n-j)
		}
	}
}

// outerEdge computes the last few columns on a padded copy of v.
func outerEdge(dst []float32, ldd int, p []float32, ldp, m int, v []float32, ldv, c, n int) {
	tiles := cur.outer[m]
	tile := tiles[len(tiles)-1]
	pad := make([]float32, (c+m)*tile.cols)
	out := pad[c*tile.cols:]
	for a := range c {
		copy(pad[a*tile.cols:], v[a*ldv:][:n])
	}
	tile.run(&out[0], tile.cols, &p[0], ldp, &pad[0], tile.cols, c)
	for i := range m {
		copy(dst[i*ldd:][:n], out[i*tile.cols:])
	}
}
