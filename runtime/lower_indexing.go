package runtime

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/mil"
)

var indexingLowerers = map[string]lowerer{
	"gather":             lowerGather,
	"gather_along_axis":  lowerGatherAlong,
	"gather_nd":          lowerGatherND,
	"scatter":            lowerScatter,
	"scatter_along_axis": lowerScatterAlong,
	"scatter_nd":         lowerScatterND,
}

// positions checks indices against a size and counts negative ones from the
// end. It changes nothing but its own copy.
func positions(ix []int32, size int, what string) ([]int, error) {
	out := make([]int, len(ix))
	for i, k := range ix {
		p := int(k)
		if p < 0 {
			p += size
		}
		if p < 0 || p >= size {
			return nil, fmt.Errorf("indices[%d] is %d, out of range for %s of size %d", i, k, what, size)
		}
		out[i] = p
	}
	return out, nil
}

func axisName(axis int) string { return fmt.Sprintf("axis %d", axis) }

func lowerGather(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "axis", "batch_dims")
	if err != nil {
		return instr{}, err
	}
	ix, err := l.must(op, "indices")
	if err != nil {
		return instr{}, err
	}
	// A large table is read where it lies: only the rows that are looked up
	// are ever decoded.
	if table, err := l.table(op.In("x")); err != nil {
		return instr{}, err
	} else if table != nil && c.Int("batch_dims", 0) == 0 && table.Type.Rank() > 0 {
		if axis, err := mil.Axis(c.Int("axis", 0), table.Type.Rank()); err == nil && axis == 0 {
			return l.gatherRows(op, table, ix), nil
		}
	}
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		t, i := f.t[x], f.t[ix]
		axis, batch, err := mil.GatherDims(c.Int("axis", 0), c.Int("batch_dims", 0), len(t.Shape), len(i.Shape))
		if err != nil {
			return err
		}
		if !slices.Equal(t.Shape[:batch], i.Shape[:batch]) {
			return fmt.Errorf("x %v and indices %v differ in their batch axes", t, i)
		}
		pos, err := positions(i.I, t.Shape[axis], axisName(axis))
		if err != nil {
			return err
		}
		out := f.out(o, t.DType, slices.Concat(t.Shape[:axis], i.Shape[batch:], t.Shape[axis+1:])...)
		mid, n := numElements(t.Shape[batch:axis]), t.Shape[axis]
		inner, j := numElements(t.Shape[axis+1:]), numElements(i.Shape[batch:])
		src, dst := t.words(), out.words()
		if inner == 0 || j == 0 {
			return nil
		}
		f.par(len(dst)/inner, max(1, copyGrain/inner), func(lo, hi int) {
			for r := lo; r < hi; r++ { // r = (outer, j), outer = (batch, mid)
				outer := r / j
				p := pos[outer/mid*j+r%j]
				from := (outer*n + p) * inner
				copy(dst[r*inner:(r+1)*inner], src[from:from+inner])
			}
		})
		return nil
	}}, nil
}

func lowerGatherAlong(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "axis")
	if err != nil {
		return instr{}, err
	}
	in, err := l.operands(op, "x", "indices")
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		x, ix := f.t[in[0]], f.t[in[1]]
		a, err := alongAxis(x, ix, c.Int("axis", 0))
		if err != nil {
			return err
		}
		pos, err := positions(ix.I, a.n, axisName(a.axis))
		if err != nil {
			return err
		}
		src, dst := x.words(), f.out(o, x.DType, ix.Shape...).words()
		f.par(len(dst), copyGrain, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				dst[i] = src[a.at(i, pos[i])]
			}
		})
		return nil
	}}, nil
}

// along relates indices to a tensor that differs only in the size of an axis.
type along struct{ axis, n, m, inner int }

func alongAxis(x, ix *Tensor, axis int) (along, error) {
	k, err := mil.Axis(axis, len(x.Shape))
	if err != nil {
		return along{}, err
	}
	if len(ix.Shape) != len(x.Shape) || !slices.Equal(ix.Shape[:k], x.Shape[:k]) || !slices.Equal(ix.Shape[k+1:], x.Shape[k+1:]) {
		return along{}, fmt.Errorf("indices %v differ from %v in more than axis %d", ix, x, k)
	}
	_, n, inner := axisSplit(x.Shape, k)
	return along{k, n, ix.Shape[k], inner}, nil
}

// at is the element of x that position p of element i of indices means.
func (a along) at(i, p int) int {
	return (i/a.inner/a.m*a.n+p)*a.inner + i%a.inner
}

// ndPositions turns index vectors into element offsets of the slices they
// select from a tensor of the given shape; vectors of one batch (of which
// there are as many as leading axes make) count from the batch's start.
func ndPositions(ix *Tensor, shape []int, batch int) (offsets []int, inner int, err error) {
	depth := ix.Shape[len(ix.Shape)-1]
	st := strides(shape)
	inner = numElements(shape[batch+depth:])
	n := numElements(ix.Shape[:len(ix.Shape)-1])
	offsets = make([]int, n)
	batches := numElements(shape[:batch])
	for i := range offsets {
		if batches > 0 && batch > 0 {
			offsets[i] = i / (n / batches) * st[batch-1]
		}
		for k := range depth {
			v, size := int(ix.I[i*depth+k]), shape[batch+k]
			p := v
			if p < 0 {
				p += size
			}
			if p < 0 || p >= size {
				return nil, 0, fmt.Errorf("index vector %d holds %d, out of range for axis %d of size %d", i, v, batch+k, size)
			}
			offsets[i] += p * st[batch+k]
		}
	}
	return offsets, inner, nil
}

func lowerGatherND(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "batch_dims")
	if err != nil {
		return instr{}, err
	}
	in, err := l.operands(op, "x", "indices")
	if err != nil {
		return instr{}, err
	}
	batch := c.Int("batch_dims", 0)
	o := l.result(op, 0)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		x, ix := f.t[in[0]], f.t[in[1]]
		shape, err := mil.NDShape(x.Shape, ix.Shape, batch)
		if err != nil {
			return err
		}
		if !slices.Equal(x.Shape[:batch], ix.Shape[:batch]) {
			return fmt.Errorf("x %v and indices %v differ in their batch axes", x, ix)
		}
		at, n, err := ndPositions(ix, x.Shape, batch)
		if err != nil {
			return err
		}
		src, dst := x.words(), f.out(o, x.DType, shape...).words()
		for i, p := range at {
			copy(dst[i*n:(i+1)*n], src[p:p+n])
		}
		return nil
	}}, nil
}

// scatterModes combine an element with its update; integers divide towards
// zero.
var (
	scatterF = map[string]func(a, b float32) float32{
		"add": func(a, b float32) float32 { return a + b }, "sub": func(a, b float32) float32 { return a - b },
		"mul": func(a, b float32) float32 { return a * b }, "div": func(a, b float32) float32 { return a / b },
		"max": func(a, b float32) float32 { return max(a, b) }, "min": func(a, b float32) float32 { return min(a, b) },
		"update": func(_, b float32) float32 { return b },
	}
	scatterI = map[string]func(a, b int32) int32{
		"add": func(a, b int32) int32 { return a + b }, "sub": func(a, b int32) int32 { return a - b },
		"mul": func(a, b int32) int32 { return a * b }, "div": divInt,
		"max": func(a, b int32) int32 { return max(a, b) }, "min": func(a, b int32) int32 { return min(a, b) },
		"update": func(_, b int32) int32 { return b },
	}
)

func divInt(a, b int32) int32 {
	if b == 0 {
		return 0
	}
	return a / b
}

// scattered lowers a scatter op. place says, for the shapes of a run, how
// many elements a position covers and where in data each one starts that
// updates lists.
func (l *lowering) scattered(op *mil.Op, place func(data, ix, updates *Tensor) (inner int, at []int, err error)) (instr, error) {
	c, err := l.known(op, "mode", "axis")
	if err != nil {
		return instr{}, err
	}
	in, err := l.operands(op, "data", "indices", "updates")
	if err != nil {
		return instr{}, err
	}
	mode := c.Str("mode", "add")
	ff, fi := scatterF[mode], scatterI[mode]
	if ff == nil {
		return instr{}, fmt.Errorf("mode is %q, want one of %v", mode, mil.ScatterModes)
	}
	return l.like(op, in[0], mode == "update", func(f *frame, data, out *Tensor) error {
		u := f.t[in[2]]
		n, at, err := place(data, f.t[in[1]], u)
		if err != nil {
			return err
		}
		if u.DType != data.DType || u.Len() != n*len(at) {
			return fmt.Errorf("updates are %v, want %d elements of %v", u, n*len(at), data.DType)
		}
		copy(out.words(), data.words())
		if out.F != nil {
			combine(out.F, u.F, at, n, ff)
		} else {
			combine(out.I, u.I, at, n, fi)
		}
		return nil
	}), nil
}

// combine updates runs of n elements, in order: an index may repeat.
func combine[T any](out, updates []T, at []int, n int, op func(a, b T) T) {
	for i, p := range at {
		run := out[p : p+n]
		for j, v := range updates[i*n : (i+1)*n] {
			run[j] = op(run[j], v)
		}
	}
}

func lowerScatter(l *lowering, op *mil.Op) (instr, error) {
	a := l.infer(op).Int("axis", 0)
	return l.scattered(op, func(data, ix, u *Tensor) (int, []int, error) {
		axis, err := mil.Axis(a, len(data.Shape))
		if err != nil {
			return 0, nil, err
		}
		if !slices.Equal(u.Shape, slices.Concat(data.Shape[:axis], ix.Shape, data.Shape[axis+1:])) {
			return 0, nil, fmt.Errorf("updates are %v for data %v and indices %v", u, data, ix)
		}
		pos, err := positions(ix.I, data.Shape[axis], axisName(axis))
		if err != nil {
			return 0, nil, err
		}
		outer, n, inner := axisSplit(data.Shape, axis)
		at := make([]int, 0, outer*len(pos))
		for o := range outer {
			for _, p := range pos {
				at = append(at, (o*n+p)*inner)
			}
		}
		return inner, at, nil
	})
}

func lowerScatterAlong(l *lowering, op *mil.Op) (instr, error) {
	axis := l.infer(op).Int("axis", 0)
	return l.scattered(op, func(data, ix, u *Tensor) (int, []int, error) {
		a, err := alongAxis(data, ix, axis)
		if err == nil && !slices.Equal(u.Shape, ix.Shape) {
			err = fmt.Errorf("updates are %v, indices %v", u, ix)
		}
		if err != nil {
			return 0, nil, err
		}
		pos, err := positions(ix.I, a.n, axisName(a.axis))
		if err != nil {
			return 0, nil, err
		}
		for i, p := range pos {
			pos[i] = a.at(i, p)
		}
		return 1, pos, nil
	})
}

func lowerScatterND(l *lowering, op *mil.Op) (instr, error) {
	return l.scattered(op, func(data, ix, u *Tensor) (int, []int, error) {
		shape, err := mil.NDShape(data.Shape, ix.Shape, 0)
		if err == nil && !slices.Equal(u.Shape, shape) {
			err = fmt.Errorf("updates are %v, want the shape %v", u, shape)
		}
		if err != nil {
			return 0, nil, err
		}
		at, n, err := ndPositions(ix, data.Shape, 0)
		return n, at, err
	})
}
