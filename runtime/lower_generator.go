package runtime

import (
	"fmt"
	"math"
	"slices"

	"github.com/smelt-go/smelt/mil"
)

var generatorLowerers = map[string]lowerer{
	"shape":            lowerShape,
	"fill":             lowerFill,
	"fill_like":        lowerFillLike,
	"range_1d":         lowerRange,
	"one_hot":          lowerOneHot,
	"non_zero":         lowerNonZero,
	"select":           lowerSelect,
	"band_part":        lowerBandPart,
	"pad":              lowerPad,
	"reverse_sequence": lowerReverseSequence,
}

func lowerShape(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		s := f.t[x].Shape
		out := f.out(o, mil.Int32, len(s)).I
		for i, d := range s {
			out[i] = int32(d)
		}
		return nil
	}}, nil
}

// scalar reads a constant scalar, or its default, as a word and its type.
func (l *lowering) scalar(op *mil.Op, param string) (uint32, mil.DType, error) {
	k := l.infer(op).Const(param)
	if k == nil {
		return 0, 0, fmt.Errorf("input %s must be a constant", param)
	}
	t, err := FromConst(k)
	if err == nil && t.Len() != 1 {
		err = fmt.Errorf("input %s is %v, want one number", param, t)
	}
	if err != nil {
		return 0, 0, err
	}
	return t.words()[0], t.DType, nil
}

func lowerFill(l *lowering, op *mil.Op) (instr, error) {
	shape, err := l.integers(op, "shape")
	if err != nil {
		return instr{}, err
	}
	v, d, err := l.scalar(op, "value")
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		s := shape.at(f)
		for _, n := range s {
			if n < 0 {
				return fmt.Errorf("shape %v holds a negative size", s)
			}
		}
		f.fillWords(f.out(o, d, s...).words(), v)
		return nil
	}}, nil
}

func lowerFillLike(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "ref_tensor")
	if err != nil {
		return instr{}, err
	}
	v, d, err := l.scalar(op, "value")
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		f.fillWords(f.out(o, d, f.t[x].Shape...).words(), v)
		return nil
	}}, nil
}

func lowerRange(l *lowering, op *mil.Op) (instr, error) {
	in, err := l.operands(op, "start", "end", "step")
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{alias: -1, run: func(f *frame) error {
		var v [3]float64
		for i, s := range in {
			t := f.optional(s)
			switch {
			case t == nil || t.Len() != 1:
				return fmt.Errorf("start, end and step must be scalars")
			case t.F != nil:
				v[i] = float64(t.F[0])
			default:
				v[i] = float64(t.I[0])
			}
		}
		n, err := mil.RangeLen(v[0], v[1], v[2])
		if err != nil {
			return err
		}
		out := f.out(o, f.t[in[0]].DType, n)
		for i := range n {
			x := v[0] + float64(float64(i)*v[2])
			if out.F != nil {
				out.F[i] = float32(x)
			} else {
				out.I[i] = int32(x)
			}
		}
		return nil
	}}, nil
}

func lowerOneHot(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "axis")
	if err != nil {
		return instr{}, err
	}
	in, err := l.operands(op, "indices", "one_hot_vector_size")
	if err != nil {
		return instr{}, err
	}
	on, d, err := l.scalar(op, "on_value")
	if err != nil {
		return instr{}, err
	}
	off, d2, err := l.scalar(op, "off_value")
	if err == nil && d != d2 {
		err = fmt.Errorf("on_value is %v and off_value %v", d, d2)
	}
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		x, size := f.t[in[0]], f.t[in[1]]
		n := size.Int(0)
		axis, err := mil.Axis(c.Int("axis", -1), len(x.Shape)+1)
		if err != nil || n < 0 {
			return fmt.Errorf("one_hot_vector_size is %d and axis %d", n, c.Int("axis", -1))
		}
		out := f.out(o, d, slices.Insert(slices.Clone(x.Shape), axis, n)...).words()
		f.fillWords(out, off)
		inner := numElements(x.Shape[axis:])
		for i, k := range x.I {
			if k >= 0 && int(k) < n { // an index out of range is off everywhere
				out[(i/inner*n+int(k))*inner+i%inner] = on
			}
		}
		return nil
	}}, nil
}

func lowerNonZero(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		t := f.t[x]
		isZero := func(i int) bool { return t.F != nil && t.F[i] == 0 || t.F == nil && t.I[i] == 0 }
		n := 0
		for i := range t.Len() {
			if !isZero(i) {
				n++
			}
		}
		out := f.out(o, mil.Int32, n, len(t.Shape))
		row := out.I
		forEach(t.Shape, func(i int, idx []int) {
			if !isZero(i) {
				for k, v := range idx {
					row[k] = int32(v)
				}
				row = row[len(idx):]
			}
		})
		return nil
	}}, nil
}

func lowerSelect(l *lowering, op *mil.Op) (instr, error) {
	in, err := l.operands(op, "cond", "a", "b")
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{exact: true, alias: -1, run: func(f *frame) error {
		c, a, b := f.t[in[0]], f.t[in[1]], f.t[in[2]]
		if (a.F == nil) != (b.F == nil) || c.I == nil {
			return fmt.Errorf("cond is %v, a is %v, b is %v", c, a, b)
		}
		shape, err := mil.Broadcast(a.Shape, b.Shape)
		if err == nil {
			shape, err = mil.Broadcast(shape, c.Shape)
		}
		if err != nil {
			return err
		}
		out := f.out(o, a.DType, shape...).words()
		aw, bw := a.words(), b.words()
		if n := len(out); len(c.I) == n && (len(aw) == n || len(aw) == 1) && (len(bw) == n || len(bw) == 1) {
			sa, sb := min(len(aw)-1, 1), min(len(bw)-1, 1)
			f.par(n, copyGrain, func(lo, hi int) {
				for i := lo; i < hi; i++ {
					if c.I[i] != 0 {
						out[i] = aw[i*sa]
					} else {
						out[i] = bw[i*sb]
					}
				}
			})
			return nil
		}
		sc, sa, sb := broadcastStrides(c.Shape, shape), broadcastStrides(a.Shape, shape), broadcastStrides(b.Shape, shape)
		forEach(shape, func(i int, idx []int) {
			if c.I[dot(idx, sc)] != 0 {
				out[i] = aw[dot(idx, sa)]
			} else {
				out[i] = bw[dot(idx, sb)]
			}
		})
		return nil
	}}, nil
}

func lowerBandPart(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "lower", "upper")
	if err != nil {
		return instr{}, err
	}
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	lower, upper := c.Int("lower", -1), c.Int("upper", -1)
	return l.like(op, x, true, func(f *frame, in, out *Tensor) error {
		r := len(in.Shape)
		if r < 2 {
			return fmt.Errorf("x is %v, want rank 2 or more", in)
		}
		m, n := in.Shape[r-2], in.Shape[r-1]
		src, dst := in.words(), out.words()
		for row := 0; n > 0 && row < len(src)/n; row++ {
			i := row % m
			lo, hi := 0, n
			if lower >= 0 {
				lo = min(max(i-lower, 0), n)
			}
			if upper >= 0 {
				hi = min(i+upper+1, n)
			}
			d := dst[row*n : row*n+n]
			clear(d)
			if lo < hi {
				copy(d[lo:hi], src[row*n+lo:])
			}
		}
		return nil
	}), nil
}

func lowerReverseSequence(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "seq_axis", "batch_axis")
	if err != nil {
		return instr{}, err
	}
	in, err := l.operands(op, "x", "lengths")
	if err != nil {
		return instr{}, err
	}
	return l.like(op, in[0], true, func(f *frame, x, out *Tensor) error {
		seq, err := mil.Axis(c.Int("seq_axis", 0), len(x.Shape))
		if err != nil {
			return err
		}
		batch, err := mil.Axis(c.Int("batch_axis", 0), len(x.Shape))
		n := f.t[in[1]]
		if err != nil || n.Len() != x.Shape[batch] {
			return fmt.Errorf("lengths is %v, x is %v with batch axis %d", n, x, c.Int("batch_axis", 0))
		}
		src, dst, st := x.words(), out.words(), strides(x.Shape)
		copy(dst, src)
		for b := range x.Shape[batch] {
			k := n.Int(b)
			if k < 0 || k > x.Shape[seq] {
				return fmt.Errorf("lengths[%d] is %d, axis %d has size %d", b, k, seq, x.Shape[seq])
			}
			ls := axesLoops(x.Shape, st)
			ls[batch].n = 1
			if seq != batch {
				ls[seq].n, ls[seq].s = k, -st[seq]
				f.copyLoops(dst, b*st[batch], src, b*st[batch]+max(k-1, 0)*st[seq], ls)
			}
		}
		return nil
	}), nil
}

func lowerPad(l *lowering, op *mil.Op) (instr, error) {
	c, err := l.known(op, "mode", "constant_val")
	if err != nil {
		return instr{}, err
	}
	pad, err := l.integers(op, "pad")
	if err != nil {
		return instr{}, err
	}
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	mode, val := c.Str("mode", "constant"), math.Float32bits(float32(c.Float("constant_val", 0)))
	o := l.result(op, 0)
	return instr{exact: false, alias: -1, run: func(f *frame) error {
		t, p := f.t[x], pad.at(f)
		n := len(p) / 2
		if len(p)%2 != 0 || n > len(t.Shape) || len(p) > 0 && slices.Min(p) < 0 {
			return fmt.Errorf("pad %v does not fit %v", p, t)
		}
		first := len(t.Shape) - n
		shape := slices.Clone(t.Shape)
		before := make([]int, len(shape))
		for i := range n {
			before[first+i] = p[2*i]
			shape[first+i] += p[2*i] + p[2*i+1]
		}
		out := f.out(o, t.DType, shape...)
		if mode == "constant" {
			f.fillWords(out.words(), val)
			d := strides(shape)
			ls := axesLoops(t.Shape, strides(t.Shape))
			for k := range ls {
				ls[k].d = d[k]
			}
			f.copyLoops(out.words(), dot(before, d), t.words(), 0, ls)
			return nil
		}
		return f.padFrom(out, t, before, mode == "reflect")
	}}, nil
}

// padFrom fills out with the elements of t that its padded positions mirror:
// reflected about the edge, or the edge itself.
func (f *frame) padFrom(out, t *Tensor, before []int, reflect bool) error {
	st := strides(t.Shape)
	from := make([][]int, len(out.Shape)) // source offset of every position
	for k, n := range out.Shape {
		d := t.Shape[k]
		for i := range n {
			j := i - before[k]
			if reflect {
				if j < 0 {
					j = -j
				} else if j >= d {
					j = 2*(d-1) - j
				}
				if j < 0 || j >= d {
					return fmt.Errorf("reflecting %d to %d elements of axis %d: a side is longer than size-1", d, n, k)
				}
			} else if d == 0 {
				return fmt.Errorf("axis %d has no element to replicate", k)
			}
			from[k] = append(from[k], min(max(j, 0), d-1)*st[k])
		}
	}
	if len(from) == 0 {
		copy(out.words(), t.words())
		return nil
	}
	last := len(from) - 1
	dst, src, inner := out.words(), t.words(), from[len(from)-1]
	forEach(out.Shape[:last], func(row int, idx []int) {
		base := 0
		for k, i := range idx {
			base += from[k][i]
		}
		d := dst[row*len(inner) : (row+1)*len(inner)]
		for i, s := range inner {
			d[i] = src[base+s]
		}
	})
	return nil
}
