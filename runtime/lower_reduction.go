package runtime

import (
	"math"

	"github.com/smelt-go/smelt/mil"
)

// Reductions. Floats accumulate in float64 and round once; int32 wraps where
// the result is a sum or product, and truncates where it is not an integer.

var reductionLowerers = map[string]lowerer{
	"reduce_sum":        reduce(fold(0, addOf[float64]), foldInt(0, addOf[int32])),
	"reduce_prod":       reduce(fold(1, mulOf[float64]), foldInt(1, mulOf[int32])),
	"reduce_max":        reduce(fold(math.Inf(-1), func(a, x float64) float64 { return max(a, x) }), foldInt(math.MinInt32, maxOf[int32])),
	"reduce_min":        reduce(fold(math.Inf(1), func(a, x float64) float64 { return min(a, x) }), foldInt(math.MaxInt32, minOf[int32])),
	"reduce_l1_norm":    reduce(fold(0, func(a, x float64) float64 { return a + math.Abs(x) }), foldInt(0, func(a, x int32) int32 { return a + max(x, -x) })),
	"reduce_sum_square": reduce(sumSquare, foldInt(0, func(a, x int32) int32 { return a + x*x })),

	"reduce_mean":        reduce(mean, nil),
	"reduce_l2_norm":     reduce(func(row []float64) float64 { return math.Sqrt(sumSquare(row)) }, nil),
	"reduce_log_sum":     reduce(func(row []float64) float64 { return math.Log(fold(0, addOf[float64])(row)) }, nil),
	"reduce_log_sum_exp": reduce(logSumExp, nil),

	"reduce_argmax": argReduce(func(a, b float64) bool { return a > b }),
	"reduce_argmin": argReduce(func(a, b float64) bool { return a < b }),
}

func fold(zero float64, fn func(acc, x float64) float64) func([]float64) float64 {
	return func(row []float64) float64 {
		acc := zero
		for _, x := range row {
			acc = fn(acc, x)
		}
		return acc
	}
}

func foldInt(zero int32, fn func(acc, x int32) int32) func([]float64) float64 {
	return func(row []float64) float64 {
		acc := zero
		for _, x := range row {
			acc = fn(acc, int32(x))
		}
		return float64(acc)
	}
}

func sumSquare(row []float64) float64 {
	s := 0.0
	for _, x := range row {
		s += x * x
	}
	return s
}

func mean(row []float64) float64 { return fold(0, addOf[float64])(row) / float64(len(row)) }

func logSumExp(row []float64) float64 {
	top := fold(math.Inf(-1), func(a, x float64) float64 { return max(a, x) })(row)
	if math.IsInf(top, 0) {
		return top
	}
	s := 0.0
	for _, x := range row {
		s += math.Exp(x - top)
	}
	return top + math.Log(s)
}

// axesPlan splits a shape into the axes that stay and those that are reduced,
// as lists of storage offsets.
type axesPlan struct {
	kept    []int // shape of the axes that stay
	stride  []int // and their strides
	reduced []int // offsets of the reduced elements from the first one
}

func planAxes(shape, axes []int) *axesPlan {
	p := &axesPlan{}
	all := strides(shape)
	var rs, rst []int
	k := 0
	for i, d := range shape {
		if k < len(axes) && axes[k] == i {
			rs, rst = append(rs, d), append(rst, all[i])
			k++
		} else {
			p.kept, p.stride = append(p.kept, d), append(p.stride, all[i])
		}
	}
	p.reduced = []int{0}
	for i, d := range rs {
		wider := make([]int, 0, len(p.reduced)*d)
		for _, o := range p.reduced {
			for j := range d {
				wider = append(wider, o+j*rst[i])
			}
		}
		p.reduced = wider
	}
	return p
}

// rows is the number of reduced groups.
func (p *axesPlan) rows() int { return numElements(p.kept) }

// base is the offset of the first element of group r.
func (p *axesPlan) base(r int) int { return offsetOf(r, p.kept, p.stride) }

// load copies group r of t into row.
func (p *axesPlan) load(row []float64, t *Tensor, r int) {
	at := p.base(r)
	if t.F != nil {
		for i, o := range p.reduced {
			row[i] = float64(t.F[at+o])
		}
		return
	}
	for i, o := range p.reduced {
		row[i] = float64(t.I[at+o])
	}
}

// eachRow calls body for every group with its elements, on the worker pool.
func (p *axesPlan) eachRow(f *frame, t *Tensor, body func(r int, row []float64)) {
	n := len(p.reduced)
	f.par(p.rows(), 1+4096/max(n, 1), func(lo, hi int) {
		row := make([]float64, n)
		for r := lo; r < hi; r++ {
			p.load(row, t, r)
			body(r, row)
		}
	})
}

// reduce lowers a reduction over axes; fi is for int32 where it differs.
func reduce(ff, fi func(row []float64) float64) lowerer {
	if fi == nil {
		fi = ff
	}
	return func(l *lowering, op *mil.Op) (instr, error) {
		x, err := l.must(op, "x")
		if err != nil {
			return instr{}, err
		}
		c, err := l.known(op, "axes", "keep_dims")
		if err != nil {
			return instr{}, err
		}
		keep := c.Bool("keep_dims", false)
		axes, err := c.ReducedAxes("axes", c.T("x").Rank())
		if err != nil {
			return instr{}, err
		}
		o := l.result(op, 0)
		return instr{alias: -1, run: func(f *frame) error {
			in := f.t[x]
			out := f.out(o, in.DType, mil.ReducedShape(in.Shape, axes, keep)...)
			planAxes(in.Shape, axes).eachRow(f, in, func(r int, row []float64) {
				if out.F != nil {
					out.F[r] = float32(ff(row))
				} else {
					out.I[r] = truncate64(fi(row))
				}
			})
			return nil
		}}, nil
	}
}

// truncate64 converts toward zero and saturates; NaN is 0.
func truncate64(x float64) int32 {
	switch {
	case x != x:
		return 0
	case x >= math.MaxInt32:
		return math.MaxInt32
	case x <= math.MinInt32:
		return math.MinInt32
	}
	return int32(x)
}

// argReduce lowers the search for the first element that is better than all
// before it; the first NaN beats everything.
func argReduce(better func(a, b float64) bool) lowerer {
	return func(l *lowering, op *mil.Op) (instr, error) {
		x, err := l.must(op, "x")
		if err != nil {
			return instr{}, err
		}
		c, err := l.known(op, "axis", "keep_dims", "output_dtype")
		if err != nil {
			return instr{}, err
		}
		keep := c.Bool("keep_dims", false)
		axis, err := mil.Axis(c.Int("axis", -1), c.T("x").Rank())
		if err != nil {
			return instr{}, err
		}
		d, err := mil.ParseDType(c.Str("output_dtype", "int32"))
		if err != nil {
			return instr{}, err
		}
		o := l.result(op, 0)
		return instr{exact: true, alias: -1, run: func(f *frame) error {
			in := f.t[x]
			axes := []int{axis}
			out := f.out(o, d, mil.ReducedShape(in.Shape, axes, keep)...)
			planAxes(in.Shape, axes).eachRow(f, in, func(r int, row []float64) {
				best := 0
				for i, v := range row {
					if row[best] == row[best] && (v != v || better(v, row[best])) {
						best = i
					}
				}
				out.I[r] = narrow(int32(best), d)
			})
			return nil
		}}, nil
	}
}
