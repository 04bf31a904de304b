package runtime

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/mil"
)

var sortLowerers = map[string]lowerer{
	"argsort": lowerArgsort,
	"topk":    lowerTopK,
	"cumsum":  lowerCumsum,
}

// order sorts elements by value, equal ones by index; NaN comes last.
type order struct{ ascending bool }

func (o order) compare(row []float64, a, b int) int {
	x, y := row[a], row[b]
	switch {
	case x == y:
	case x != x && y != y:
	case x != x:
		return 1
	case y != y:
		return -1
	case (x < y) == o.ascending:
		return -1
	default:
		return 1
	}
	return cmp.Compare(a, b)
}

// first returns the k first indices of row in order.
func (o order) first(row []float64, k int) []int {
	const few = 32
	if k <= few && k < len(row) {
		return o.insert(row, k)
	}
	idx := make([]int, len(row))
	for i := range idx {
		idx[i] = i
	}
	slices.SortFunc(idx, func(a, b int) int { return o.compare(row, a, b) })
	return idx[:k]
}

// insert keeps the k best seen so far in order.
func (o order) insert(row []float64, k int) []int {
	best := make([]int, 0, k+1)
	for i := range row {
		if len(best) == k && (k == 0 || o.compare(row, i, best[k-1]) > 0) {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, i, func(a, b int) int { return o.compare(row, a, b) })
		best = slices.Insert(best, at, i)
		best = best[:min(len(best), k)]
	}
	return best
}

func lowerArgsort(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	c, err := l.known(op, "axis", "ascending")
	if err != nil {
		return instr{}, err
	}
	by := order{c.Bool("ascending", false)}
	axis, err := mil.Axis(c.Int("axis", -1), c.T("x").Rank())
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		in := f.t[x]
		out := f.out(o, mil.Int32, in.Shape...)
		p := planAxes(in.Shape, []int{axis})
		p.eachRow(f, in, func(r int, row []float64) {
			base := p.base(r)
			for i, k := range by.first(row, len(row)) {
				out.I[base+p.reduced[i]] = int32(k)
			}
		})
		return nil
	}}, nil
}

func lowerTopK(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	c, err := l.known(op, "k", "axis", "ascending", "sort", "return_indices", "output_indices_dtype")
	if err != nil {
		return instr{}, err
	}
	by, want := order{c.Bool("ascending", false)}, c.Int("k", 1)
	axis, err := mil.Axis(c.Int("axis", -1), c.T("x").Rank())
	if err != nil {
		return instr{}, err
	}
	d, err := mil.ParseDType(c.Str("output_indices_dtype", "int32"))
	if err != nil {
		return instr{}, err
	}
	slots := []int{l.result(op, 0)}
	if len(op.Outputs) > 1 {
		slots = append(slots, l.result(op, 1))
	}
	return instr{exact: true, alias: -1, out: slots, run: func(f *frame) error {
		in := f.t[x]
		k, n := want, in.Shape[axis]
		if k == -1 {
			k = n
		}
		if k < 0 || k > n {
			return fmt.Errorf("k %d is out of range for axis %d of size %d", k, axis, n)
		}
		shape := slices.Clone(in.Shape)
		shape[axis] = k
		val := f.out(slots[0], in.DType, shape...)
		var idx *Tensor
		if len(slots) > 1 {
			idx = f.out(slots[1], d, shape...)
		}
		p := planAxes(in.Shape, []int{axis})
		inner := strides(shape)[axis]
		p.eachRow(f, in, func(r int, row []float64) {
			src, dst := p.base(r), r/inner*inner*k+r%inner
			for i, best := range by.first(row, k) {
				to := dst + i*inner
				if val.F != nil {
					val.F[to] = in.F[src+p.reduced[best]]
				} else {
					val.I[to] = in.I[src+p.reduced[best]]
				}
				if idx != nil {
					idx.I[to] = narrow(int32(best), d)
				}
			}
		})
		return nil
	}}, nil
}

func lowerCumsum(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	c, err := l.known(op, "axis", "exclusive", "reverse")
	if err != nil {
		return instr{}, err
	}
	exclusive, reverse := c.Bool("exclusive", false), c.Bool("reverse", false)
	axis, err := mil.Axis(c.Int("axis", 0), c.T("x").Rank())
	if err != nil {
		return instr{}, err
	}
	return l.like(op, x, false, func(f *frame, x, out *Tensor) error {
		p := planAxes(x.Shape, []int{axis})
		p.eachRow(f, x, func(r int, row []float64) {
			base, sum := p.base(r), 0.0
			for j := range row {
				i := j
				if reverse {
					i = len(row) - 1 - j
				}
				before := sum
				sum += row[i]
				if out.F == nil {
					sum = float64(int32(int64(sum))) // int32 wraps
				}
				v := sum
				if exclusive {
					v = before
				}
				if out.F != nil {
					out.F[base+p.reduced[i]] = float32(v)
				} else {
					out.I[base+p.reduced[i]] = int32(v)
				}
			}
		})
		return nil
	}), nil
}
