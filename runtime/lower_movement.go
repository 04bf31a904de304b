package runtime

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/mil"
)

var movementLowerers = map[string]lowerer{
	"reshape":         lowerReshape,
	"reshape_like":    lowerReshapeLike,
	"expand_dims":     lowerExpandDims,
	"squeeze":         lowerSqueeze,
	"flatten2d":       lowerFlatten2D,
	"transpose":       lowerTranspose,
	"reverse":         lowerReverse,
	"tile":            lowerTile,
	"sliding_windows": lowerSlidingWindows,
	"slice_by_index":  lowerSlice,
	"slice_by_size":   lowerSliceBySize,
	"slice_update":    lowerSliceUpdate,
	"split":           lowerSplit,
	"concat":          lowerConcat,
	"stack":           lowerStack,
}

// integers is an integer vector that is a constant or read at run time.
type integers struct {
	known bool
	v     []int
	slot  int // -1 if the parameter is absent
}

func (l *lowering) integers(op *mil.Op, param string) (integers, error) {
	if v, ok := l.infer(op).Ints(param); ok {
		return integers{known: true, v: v, slot: -1}, nil
	}
	s, err := l.in(op, param)
	return integers{slot: s}, err
}

// at is the vector in this run; nil if absent.
func (p integers) at(f *frame) []int {
	if p.known || p.slot < 0 {
		return p.v
	}
	t := f.t[p.slot]
	out := make([]int, t.Len())
	for i := range out {
		out[i] = t.Int(i)
	}
	return out
}

// length is the number of entries in this run, and get one of them.
func (p integers) length(f *frame) int {
	if p.known || p.slot < 0 {
		return len(p.v)
	}
	return f.t[p.slot].Len()
}

func (p integers) get(f *frame, k int) int {
	if p.known || p.slot < 0 {
		return p.v[k]
	}
	return f.t[p.slot].Int(k)
}

// region is a strided selection of a tensor's elements, or the place of one.
type region struct {
	shape []int  // what is selected
	off   int    // of the first element
	loops []loop // over the selection, dense on the other side
}

// moved lowers an op whose result is a region of x. A region that is one run
// costs nothing: the result is a view. Where x alone is not known while
// lowering, the region of the last run serves again if x has the same shape.
func (l *lowering) moved(op *mil.Op, find func(f *frame, x *Tensor) (region, error)) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	o, id, fixed := l.result(op, 0), l.local(), onlyUnknown(op, "x")
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		t, last := f.t[x], local[movement](f, id)
		if !fixed || !last.valid || !slices.Equal(last.from, t.Shape) {
			r, err := find(f, t)
			if err != nil {
				return err
			}
			last.plan(r)
			last.from, last.valid = append(last.from[:0], t.Shape...), true
		}
		last.run(f, o, t)
		return nil
	}}, nil
}

// onlyUnknown says that param is the only input that is not a constant.
func onlyUnknown(op *mil.Op, param string) bool {
	for _, a := range op.Args {
		for _, v := range a.Values {
			if a.Param != param && v.Const == nil {
				return false
			}
		}
	}
	return true
}

// take puts a region of x into slot o.
func (f *frame) take(o int, x *Tensor, r region) {
	if ls, ok := nest(r.loops); ok && contiguous(ls) {
		f.view(o, x, r.off, r.shape...)
		return
	}
	f.copyLoops(f.out(o, x.DType, r.shape...).words(), 0, x.words(), r.off, r.loops)
}

// whole is all of x with another shape.
func whole(shape []int) region {
	return region{shape: shape, loops: []loop{{numElements(shape), 1, 1}}}
}

func lowerReshape(l *lowering, op *mil.Op) (instr, error) {
	shape, err := l.integers(op, "shape")
	if err != nil {
		return instr{}, err
	}
	opset := l.fn.Opset
	return l.moved(op, func(f *frame, x *Tensor) (region, error) {
		s, err := mil.ReshapeShape(x.Shape, shape.at(f), opset)
		return whole(s), err
	})
}

func lowerReshapeLike(l *lowering, op *mil.Op) (instr, error) {
	var refs []int
	for _, v := range op.Ins("ref_tensors") {
		s, err := l.slot(v)
		if err != nil {
			return instr{}, err
		}
		refs = append(refs, s)
	}
	params := [3][]int{}
	for i, name := range []string{"begins", "ends", "end_masks"} {
		for _, v := range op.Ins(name) {
			if v.Const == nil {
				return instr{}, fmt.Errorf("input %s must be a constant", name)
			}
			k, err := mil.ConstInts(v.Const)
			if err != nil {
				return instr{}, err
			}
			params[i] = append(params[i], k...)
		}
		if len(params[i]) != len(refs) {
			return instr{}, fmt.Errorf("%d ref_tensors but %d %s", len(refs), len(params[i]), name)
		}
	}
	return l.moved(op, func(f *frame, x *Tensor) (region, error) {
		shape := []int{}
		for i, r := range refs {
			shape = append(shape, mil.LikeDims(f.t[r].Shape, params[0][i], params[1][i], params[2][i] != 0)...)
		}
		if numElements(shape) != x.Len() {
			return region{}, fmt.Errorf("cannot reshape %v to %v", x, shape)
		}
		return whole(shape), nil
	})
}

func lowerExpandDims(l *lowering, op *mil.Op) (instr, error) {
	v, err := l.integers(op, "axes")
	if err != nil {
		return instr{}, err
	}
	return l.moved(op, func(_ *frame, x *Tensor) (region, error) {
		rank := len(x.Shape) + len(v.v)
		at := make([]bool, rank)
		for _, a := range v.v {
			k, err := mil.Axis(a, rank)
			if err != nil {
				return region{}, err
			}
			at[k] = true
		}
		shape, rest := make([]int, 0, rank), x.Shape
		for _, isNew := range at {
			switch {
			case isNew:
				shape = append(shape, 1)
			case len(rest) == 0:
				return region{}, fmt.Errorf("axes %v repeat an axis", v.v)
			default:
				shape, rest = append(shape, rest[0]), rest[1:]
			}
		}
		return whole(shape), nil
	})
}

func lowerSqueeze(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "axes")
	if err != nil {
		return instr{}, err
	}
	// A symbolic size that turns out as 1 stays: the rank is fixed by the
	// declared type.
	axes, _ := c.Ints("axes")
	drop, err := mil.SqueezeAxes(c.T("x").Shape, axes)
	if err != nil {
		return instr{}, err
	}
	return l.moved(op, func(_ *frame, x *Tensor) (region, error) {
		shape := []int{}
		for i, d := range x.Shape {
			if !drop[i] {
				shape = append(shape, d)
			}
		}
		return whole(shape), nil
	})
}

func lowerFlatten2D(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "axis")
	if err != nil {
		return instr{}, err
	}
	axis := c.Int("axis", 1)
	return l.moved(op, func(_ *frame, x *Tensor) (region, error) {
		k := axis
		if k < 0 {
			k += len(x.Shape)
		}
		return whole([]int{numElements(x.Shape[:k]), numElements(x.Shape[k:])}), nil
	})
}

// permuted is x, seen as having the given shape, with its axes in another
// order.
func permuted(shape, perm []int) region {
	s := strides(shape)
	r := region{shape: make([]int, len(perm))}
	steps := make([]int, len(perm))
	for i, p := range perm {
		r.shape[i], steps[i] = shape[p], s[p]
	}
	r.loops = axesLoops(r.shape, steps)
	return r
}

func lowerTranspose(l *lowering, op *mil.Op) (instr, error) {
	v, err := l.integers(op, "perm")
	if err != nil {
		return instr{}, err
	}
	perm := slices.Clone(v.v)
	for i, p := range perm {
		if perm[i], err = mil.Axis(p, len(perm)); err != nil {
			return instr{}, err
		}
	}
	return l.moved(op, func(_ *frame, x *Tensor) (region, error) {
		if len(perm) != len(x.Shape) {
			return region{}, fmt.Errorf("perm %v does not fit %v", perm, x)
		}
		return permuted(x.Shape, perm), nil
	})
}

func lowerReverse(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "axes")
	if err != nil {
		return instr{}, err
	}
	axes, given := c.Ints("axes")
	return l.moved(op, func(_ *frame, x *Tensor) (region, error) {
		flip := make([]bool, len(x.Shape))
		for _, a := range axes {
			k, err := mil.Axis(a, len(flip))
			if err != nil {
				return region{}, err
			}
			flip[k] = !flip[k]
		}
		s := strides(x.Shape)
		r := region{shape: x.Shape}
		for k, d := range x.Shape {
			if flip[k] || !given {
				r.off += max(d-1, 0) * s[k]
				s[k] = -s[k]
			}
		}
		r.loops = axesLoops(x.Shape, s)
		return r, nil
	})
}

func lowerTile(l *lowering, op *mil.Op) (instr, error) {
	reps, err := l.integers(op, "reps")
	if err != nil {
		return instr{}, err
	}
	return l.moved(op, func(f *frame, x *Tensor) (region, error) {
		n := reps.at(f)
		if len(n) != len(x.Shape) || len(n) > 0 && slices.Min(n) < 1 {
			return region{}, fmt.Errorf("reps %v do not fit %v", n, x)
		}
		shape := make([]int, len(n))
		for k, d := range x.Shape {
			shape[k] = d * n[k]
		}
		d, s := strides(shape), strides(x.Shape)
		r := region{shape: shape}
		for k, size := range x.Shape {
			r.loops = append(r.loops, loop{n[k], size * d[k], 0}, loop{size, d[k], s[k]})
		}
		return r, nil
	})
}

func lowerSlidingWindows(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "axis", "size", "stride")
	if err != nil {
		return instr{}, err
	}
	size, stride := c.Int("size", 1), c.Int("stride", 1)
	return l.moved(op, func(_ *frame, x *Tensor) (region, error) {
		k, err := mil.Axis(c.Int("axis", 0), len(x.Shape))
		if err != nil || size > x.Shape[k] {
			return region{}, fmt.Errorf("windows of %d on axis %d do not fit %v", size, c.Int("axis", 0), x)
		}
		s := strides(x.Shape)
		shape := slices.Insert(slices.Clone(x.Shape), k+1, size)
		shape[k] = (x.Shape[k]-size)/stride + 1
		s = slices.Insert(s, k, s[k]*stride)
		return region{shape: shape, loops: axesLoops(shape, s)}, nil
	})
}

// placed is where a part goes that starts at off along axis of a tensor of the
// given shape and takes every step-th slice.
func placed(shape, part []int, axis, off, step int) (int, []loop) {
	d := strides(shape)
	off *= d[axis]
	d[axis] *= step
	s := strides(part)
	ls := make([]loop, len(part))
	for k, n := range part {
		ls[k] = loop{n, d[k], s[k]}
	}
	return off, ls
}

func lowerConcat(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "axis", "interleave")
	if err != nil {
		return instr{}, err
	}
	interleave := c.Bool("interleave", false)
	return l.joined(op, func(parts []*Tensor) ([]int, func(i int) (int, []loop), error) {
		first := parts[0].Shape
		if len(first) == 0 {
			return []int{len(parts)}, func(i int) (int, []loop) { return i, []loop{{1, 1, 1}} }, nil
		}
		axis, err := mil.Axis(c.Int("axis", 0), len(first))
		if err != nil {
			return nil, nil, err
		}
		shape, starts := slices.Clone(first), make([]int, len(parts))
		shape[axis] = 0
		for i, p := range parts {
			for k, d := range p.Shape {
				if d != first[k] && (k != axis || interleave) {
					return nil, nil, fmt.Errorf("values[%d] is %v, values[0] is %v: they differ in axis %d", i, p, parts[0], k)
				}
			}
			starts[i] = shape[axis]
			shape[axis] += p.Shape[axis]
		}
		return shape, func(i int) (int, []loop) {
			if interleave {
				return placed(shape, parts[i].Shape, axis, i, len(parts))
			}
			return placed(shape, parts[i].Shape, axis, starts[i], 1)
		}, nil
	})
}

func lowerStack(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "axis")
	if err != nil {
		return instr{}, err
	}
	return l.joined(op, func(parts []*Tensor) ([]int, func(i int) (int, []loop), error) {
		first := parts[0].Shape
		axis, err := mil.Axis(c.Int("axis", 0), len(first)+1)
		if err != nil {
			return nil, nil, err
		}
		for i, p := range parts {
			if !slices.Equal(p.Shape, first) {
				return nil, nil, fmt.Errorf("values[%d] is %v, values[0] is %v", i, p, parts[0])
			}
		}
		shape := slices.Insert(slices.Clone(first), axis, len(parts))
		return shape, func(i int) (int, []loop) {
			return placed(shape, slices.Insert(slices.Clone(first), axis, 1), axis, i, 1)
		}, nil
	})
}

// joined lowers an op that copies every value to a place of its own. plan
// gives the shape of the result and the place of value i.
func (l *lowering) joined(op *mil.Op, plan func([]*Tensor) ([]int, func(i int) (int, []loop), error)) (instr, error) {
	var in []int
	for _, v := range op.Ins("values") {
		s, err := l.slot(v)
		if err != nil {
			return instr{}, err
		}
		in = append(in, s)
	}
	if len(in) == 0 {
		return instr{}, fmt.Errorf("values is empty")
	}
	o, id := l.result(op, 0), l.local()
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		j := local[joining](f, id)
		j.parts = j.parts[:0]
		for i, s := range in {
			p := f.t[s]
			j.parts = append(j.parts, p)
			if first := j.parts[0]; len(p.Shape) != len(first.Shape) || p.DType != first.DType {
				return fmt.Errorf("values[%d] is %v, values[0] is %v", i, p, first)
			}
		}
		if !j.same() {
			shape, place, err := plan(j.parts)
			if err != nil {
				return err
			}
			j.plan(shape, place)
		}
		dst := f.out(o, j.parts[0].DType, j.shape...).words()
		for i, p := range j.parts {
			c := &j.copies[i]
			c.dst, c.src = dst, p.words()
			c.start(f)
			c.dst, c.src = nil, nil
		}
		clear(j.parts)
		return nil
	}}, nil
}
