package runtime

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/mil"
)

// slicing holds the parameters of slice_by_index and slice_update.
type slicing struct {
	begin, end integers
	rest       mil.SliceParams // stride and masks
	plain      bool            // stride 1 and no masks
}

func (l *lowering) slicing(op *mil.Op) (s slicing, err error) {
	c, err := l.known(op, "stride", "begin_mask", "end_mask", "squeeze_mask")
	if err != nil {
		return s, err
	}
	s.rest = c.Slice()
	none := func(m []bool) bool { return !slices.Contains(m, true) }
	s.plain = none(s.rest.BeginMask) && none(s.rest.EndMask) && none(s.rest.SqueezeAll) &&
		!slices.ContainsFunc(s.rest.Stride, func(n int) bool { return n != 1 })
	if s.begin, err = l.integers(op, "begin"); err == nil {
		s.end, err = l.integers(op, "end")
	}
	return s, err
}

// of finds the region of a tensor of the given shape.
func (s slicing) of(f *frame, shape []int) (region, error) {
	p := s.rest
	p.Begin, p.End = s.begin.at(f), s.end.at(f)
	axes, err := p.Resolve(shape)
	if err != nil {
		return region{}, err
	}
	for k, a := range axes {
		if a.Start == mil.Unknown || a.N == mil.Unknown {
			return region{}, fmt.Errorf("begin or end of axis %d is missing", k)
		}
	}
	return sliceRegion(shape, axes), nil
}

// sliceRegion is the region that resolved axes select.
func sliceRegion(shape []int, axes []mil.SliceAxis) region {
	r := region{shape: mil.SliceShape(axes)}
	full, steps, st := make([]int, len(axes)), make([]int, len(axes)), strides(shape)
	for k, a := range axes {
		r.off += a.Start * st[k]
		full[k], steps[k] = a.N, a.Step*st[k]
	}
	r.loops = axesLoops(full, steps)
	return r
}

func lowerSlice(l *lowering, op *mil.Op) (instr, error) {
	s, err := l.slicing(op)
	if err != nil {
		return instr{}, err
	}
	declared, _ := op.Out().Tensor()
	return l.moved(op, func(f *frame, x *Tensor) (region, error) {
		r, err := s.of(f, x.Shape)
		// Inference takes an axis of one element for kept, whatever bounds
		// turn out to be at run time; an empty slice contradicts what follows.
		if err == nil && !declared.Compatible(mil.TensorType{DType: declared.DType, Shape: r.shape}) {
			err = fmt.Errorf("the slice is %v, declared is %v", r.shape, declared.Shape)
		}
		return r, err
	})
}

func lowerSliceBySize(l *lowering, op *mil.Op) (instr, error) {
	begin, err := l.integers(op, "begin")
	if err != nil {
		return instr{}, err
	}
	size, err := l.integers(op, "size")
	if err != nil {
		return instr{}, err
	}
	return l.moved(op, func(f *frame, x *Tensor) (region, error) {
		at := begin.at(f)
		shape, err := mil.SizedShape(x.Shape, at, size.at(f))
		if err != nil {
			return region{}, err
		}
		axes := make([]mil.SliceAxis, len(shape))
		for k, n := range shape {
			axes[k] = mil.SliceAxis{Start: at[k], N: n, Step: 1}
			if at[k] < 0 {
				axes[k].Start += x.Shape[k]
			}
		}
		return sliceRegion(x.Shape, axes), nil
	})
}

// lowerSliceUpdate copies x and overwrites the region. Where nobody else
// reads x any more, only the region is written.
func lowerSliceUpdate(l *lowering, op *mil.Op) (instr, error) {
	s, err := l.slicing(op)
	if err != nil {
		return instr{}, err
	}
	in, err := l.operands(op, "x", "update")
	if err != nil {
		return instr{}, err
	}
	o, id, state := l.result(op, 0), l.local(), l.replaces(op)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		x, u := f.t[in[0]], f.t[in[1]]
		p := local[placement](f, id)
		off, known := s.start(f, x, u)
		if !known || !p.fits(x, u) {
			r, err := s.of(f, x.Shape)
			if err != nil {
				return err
			}
			if !slices.Equal(r.shape, u.Shape) || u.DType != x.DType {
				return fmt.Errorf("update is %v, the slice is %v of %v", u, r.shape, x.DType)
			}
			// The region is strided in the result and dense in update.
			for k := range r.loops {
				r.loops[k].d, r.loops[k].s = r.loops[k].s, r.loops[k].d
			}
			off = r.off
			p.plan(x, u, r.loops, known)
		}
		if f.solely(in[0], state) {
			f.share(o, in[0])
		} else {
			copy(f.out(o, x.DType, x.Shape...).words(), x.words())
		}
		p.copy.dst, p.copy.src, p.copy.do = f.t[o].words(), u.words(), off
		p.copy.start(f)
		p.copy.dst, p.copy.src = nil, nil
		return nil
	}}, nil
}

// start finds where u goes in x if the slice is as plain as it can be: no
// strides or masks, begin and end within x and as far apart as u is long. The
// way to copy then depends on the shapes alone.
func (s slicing) start(f *frame, x, u *Tensor) (off int, ok bool) {
	r := len(x.Shape)
	if !s.plain || u.DType != x.DType || len(u.Shape) != r || s.begin.length(f) != r || s.end.length(f) != r {
		return 0, false
	}
	step := 1
	for k := r - 1; k >= 0; k-- {
		b, e := s.begin.get(f, k), s.end.get(f, k)
		if b < 0 || e > x.Shape[k] || e-b != u.Shape[k] || b >= e {
			return 0, false
		}
		off += b * step
		step *= x.Shape[k]
	}
	return off, true
}

// replaces names the state that op's result is written to before anything can
// read that state again, or is empty. Overwriting its old contents is then
// as good as replacing them.
func (l *lowering) replaces(op *mil.Op) string {
	ops := l.fn.Body.Ops
	at := slices.Index(ops, op)
	if at < 0 { // in a nested block
		return ""
	}
	var read []*mil.Value
	for _, next := range ops[at+1:] {
		switch state := next.In("input"); {
		case len(next.Blocks) > 0:
			return ""
		case next.Kind == "read_state":
			read = append(read, state)
		case next.Kind == "write_state" && next.In("data") == op.Out():
			if slices.Contains(read, state) {
				return ""
			}
			return state.Name
		}
	}
	return ""
}

// solely reports whether nothing but the current instruction, and the state
// whose contents it replaces, refers to the storage of slot s any more, so
// that the storage may be changed.
func (f *frame) solely(s int, state string) bool {
	h := &f.own[s]
	if f.t[s] != &h.Tensor || h.buf == nil || !slices.Contains(f.cur.dead, s) {
		return false
	}
	if st := f.state[state]; st != nil && st.buf == h.buf {
		return h.buf.refs == 2
	}
	return h.buf.refs == 1
}

func lowerSplit(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "axis", "num_splits", "split_sizes")
	if err != nil {
		return instr{}, err
	}
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	sizes, _ := c.Ints("split_sizes")
	var outs []int
	for i := range op.Outputs {
		outs = append(outs, l.result(op, i))
	}
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		t := f.t[x]
		axis, err := mil.Axis(c.Int("axis", 0), len(t.Shape))
		if err != nil {
			return err
		}
		d, n := t.Shape[axis], len(outs)
		sum := 0
		for _, s := range sizes {
			sum += s
		}
		if sizes == nil && d%n != 0 || sizes != nil && (len(sizes) != n || sum != d) {
			return fmt.Errorf("size %d of axis %d does not split into %d parts of %v", d, axis, n, sizes)
		}
		axes := make([]mil.SliceAxis, len(t.Shape))
		for k, n := range t.Shape {
			axes[k] = mil.SliceAxis{N: n, Step: 1}
		}
		for i, o := range outs {
			if axes[axis].N = d / n; sizes != nil {
				axes[axis].N = sizes[i]
			}
			f.take(o, t, sliceRegion(t.Shape, axes))
			axes[axis].Start += axes[axis].N
		}
		return nil
	}}, nil
}
