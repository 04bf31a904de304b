package decoder

import (
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/internal/parallel"
)

// A weight is the matrix of a module where it lies: in a file, as codes, in
// memory. It is never decoded as a whole: products take it tile by tile.
type weight struct {
	checkpoint.Tensor
	rows, cols int
}

// tileElements is about how many elements of a weight are decoded at once: they
// stay in the cache while all tokens are multiplied with them, which come from
// memory once a tile.
const tileElements = 1 << 19

// stream decodes weights of like shapes, a run of rows of each at a time, and calls
// f with the runs, which begin at row first, for all of so many tokens, on all
// cores. Runs are multiples of unit rows. What a result is does not depend on tiles.
func stream(tokens, unit int, ws []weight, f func(lo, hi, first int, w []Matrix)) error {
	rows, cols := ws[0].rows, ws[0].cols
	step := max(tileElements/cols/unit, 1) * unit
	tile := make([]Matrix, len(ws))
	for first := 0; first < rows; first += step {
		n := min(step, rows-first)
		for i, w := range ws {
			tile[i] = tile[i].resized(n, cols)
			if err := readRows(tile[i], w, first); err != nil {
				return err
			}
		}
		parallel.Ranges(tokens, rowGrain(tokens), func(lo, hi int) { f(lo, hi, first, tile) })
	}
	return nil
}

// readRows reads rows of a tensor from first on, on all cores.
func readRows(dst Matrix, t checkpoint.Tensor, first int) error {
	grain := max((1<<14)/dst.Cols, 1)
	errs := make([]error, (dst.Rows+grain-1)/grain)
	parallel.Ranges(dst.Rows, grain, func(lo, hi int) {
		errs[lo/grain] = readRange(dst.Data[lo*dst.Cols:hi*dst.Cols], t, (first+lo)*dst.Cols)
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// columns is a run of columns of some rows of a matrix.
type columns struct {
	data           []float32
	rows, n, apart int
}

// columns are those of rows [lo, hi) from first on.
func (m Matrix) columns(lo, hi, first, n int) columns {
	return columns{m.Data[lo*m.Cols+first:], hi - lo, n, m.Cols}
}

func (c columns) row(i int) []float32 { return c.data[i*c.apart:][:c.n] }

// mul stores rows lo to lo+c.rows of x·wᵀ + bias, bias that of the whole module, whose
// rows w has from first on.
func (c columns) mul(x Matrix, lo int, w Matrix, bias []float32, first int) {
	if c.rows == 0 {
		return
	}
	kernel.MulF32(c.data, c.apart, x.Data[lo*x.Cols:], x.Cols, c.rows, w.Data, w.Cols, w.Rows, w.Cols)
	if bias != nil {
		for i := range c.rows {
			kernel.Add(c.row(i), c.row(i), bias[first:first+c.n])
		}
	}
}
