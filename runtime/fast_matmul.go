package runtime

import (
	"fmt"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// A unit of work of a matrix product: so many rows by so many columns.
const (
	unitRows = 48
	unitCols = 64
)

// maxRank bounds the loops over batch axes.
const maxRank = 8

// matmulTask computes dst = x·y or x·yᵀ for a batch of matrices.
type matmulTask struct {
	dst, x, y  []float32
	m, n, k    int
	transposed bool // y is [n,k]
	round      bool
	probs      bool // x holds probabilities: zeros at the ends of rows are skipped
	batch      int
	xs, ys     [maxRank]int // elements to the next matrix, by batch axis
	dims       [maxRank]int
	rank       int
}

func (p *matmulTask) units() (rows, cols int) {
	return (p.m + unitRows - 1) / unitRows, (p.n + unitCols - 1) / unitCols
}

func (p *matmulTask) run(lo, hi int) {
	rows, cols := p.units()
	for u := lo; u < hi; u++ {
		b, r, c := u/(rows*cols), u/cols%rows, u%cols
		i0, j0 := r*unitRows, c*unitCols
		m, n := min(unitRows, p.m-i0), min(unitCols, p.n-j0)
		xo, yo := p.offsets(b)
		dst := p.dst[b*p.m*p.n+i0*p.n+j0:]
		x := p.x[xo+i0*p.k:]
		if p.transposed {
			kernel.MulF32(dst, p.n, x, p.k, m, p.y[yo+j0*p.k:], p.k, n, p.k)
		} else {
			k0, k1 := 0, p.k
			if p.probs {
				k0, k1 = nonZero(x, m, p.k)
			}
			kernel.MulNN(dst, p.n, x[k0:], p.k, m, p.y[yo+k0*p.n+j0:], p.n, k1-k0, n)
		}
		if p.round {
			for i := range m {
				kernel.RoundF16(dst[i*p.n:][:n])
			}
		}
	}
}

// nonZero is the range of columns outside of which all m rows of k are zero.
func nonZero(x []float32, m, k int) (lo, hi int) {
	lo = k
	for i := range m {
		row := x[i*k:][:k]
		a := 0
		for a < lo && row[a] == 0 {
			a++
		}
		lo = min(lo, a)
		b := k
		for b > hi && row[b-1] == 0 {
			b--
		}
		hi = max(hi, b)
	}
	if lo >= hi {
		return 0, 0
	}
	return lo, hi
}

// offsets locates the operands of batch element b.
func (p *matmulTask) offsets(b int) (x, y int) {
	for a := p.rank - 1; a >= 0; a-- {
		i := b % p.dims[a]
		b /= p.dims[a]
		x += i * p.xs[a]
		y += i * p.ys[a]
	}
	return x, y
}

// fastMatmul handles products of float matrices of rank 2 and more.
func fastMatmul(l *lowering, op *mil.Op) (instr, bool, error) {
	c := l.infer(op)
	xt, yt := c.T("x"), c.T("y")
	if !floatResult(op) || !constants(c, "transpose_x", "transpose_y") || !mil.Floats.Has(xt.DType) || !mil.Floats.Has(yt.DType) ||
		xt.Rank() < 2 || yt.Rank() < 2 || max(xt.Rank(), yt.Rank()) > maxRank || c.Bool("transpose_x", false) {
		return instr{}, false, nil
	}
	trans := c.Bool("transpose_y", false)
	if trans && yt.Rank() == 2 {
		if w := l.weight(op.In("y")); w != nil {
			in, err := l.product(op, "x", w, nil)
			return in, err == nil, err
		}
	}
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, false, err
	}
	y, err := l.must(op, "y")
	if err != nil {
		return instr{}, false, err
	}
	o, id := l.result(op, 0), l.local()
	dt, round, probs := resultType(op), l.rounds(op), fromSoftmax(op.In("x"))
	return instr{out: []int{o}, exact: true, alias: -1, run: func(f *frame) error {
		p := local[matmulTask](f, id)
		a, b := f.t[x], f.t[y]
		p.transposed, p.round, p.probs = trans, round, probs
		var shape [maxRank]int
		rank, err := p.shape(a, b, &shape)
		if err != nil {
			return err
		}
		t := f.out(o, dt, shape[:rank]...)
		p.dst, p.x, p.y = t.F, a.F, b.F
		rows, cols := p.units()
		grain := 1 + (1<<15)/(max(1, min(p.m, unitRows)*min(p.n, unitCols)*p.k))
		f.pool.do(p.batch*rows*cols, grain, p)
		p.dst, p.x, p.y = nil, nil, nil
		return nil
	}}, true, nil
}

// shape resolves sizes and batch strides and fills the shape of the result.
func (p *matmulTask) shape(a, b *Tensor, shape *[maxRank]int) (rank int, err error) {
	ra, rb := len(a.Shape), len(b.Shape)
	p.m, p.k = a.Shape[ra-2], a.Shape[ra-1]
	inner, n := b.Shape[rb-2], b.Shape[rb-1]
	if p.transposed {
		inner, n = n, inner
	}
	p.n = n
	if inner != p.k {
		return 0, fmt.Errorf("x %v and y %v differ in the inner axis (%d and %d)", a, b, p.k, inner)
	}
	rank = max(ra, rb)
	p.rank, p.batch = rank-2, 1
	xs, ys := p.m*p.k, p.k*p.n
	for i := p.rank - 1; i >= 0; i-- {
		da, db := dimAt(a.Shape, i-(rank-ra)), dimAt(b.Shape, i-(rank-rb))
		d := max(da, db)
		if da == 0 || db == 0 {
			d = 0
		}
		if da != d && da != 1 || db != d && db != 1 {
			return 0, fmt.Errorf("batch axes of x %v and y %v do not broadcast", a, b)
		}
		p.dims[i], p.xs[i], p.ys[i] = d, xs, ys
		if da == 1 {
			p.xs[i] = 0
		}
		if db == 1 {
			p.ys[i] = 0
		}
		xs *= da
		ys *= db
		shape[i] = d
		p.batch *= d
	}
	shape[rank-2], shape[rank-1] = p.m, p.n
	return rank, nil
}

func dimAt(shape []int, i int) int {
	if i < 0 {
		return 1
	}
	return shape[i]
}

// fromSoftmax says that v holds rows of a softmax, possibly reshaped or cut.
// A zero probability takes no part in a mix, whatever the value.
func fromSoftmax(v *mil.Value) bool {
	for v != nil && v.Op != nil {
		switch v.Op.Kind {
		case "softmax":
			return true
		case "reshape", "slice_by_index", "slice_by_size", "expand_dims", "squeeze", "transpose", "cast", "identity":
			v = v.Op.In("x")
		default:
			return false
		}
	}
	return false
}
