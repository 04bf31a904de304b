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
	const height = 4
	for i, m := 0, 0; i < t; i += m {
		left := (t - i + height - 1) / height
		m = (t - i + left - 1) / left
		j := 0
		for _, tile := range cur.outer[m] {
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
