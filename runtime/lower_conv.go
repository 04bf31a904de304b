package runtime

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/mil"
)

var convLowerers = map[string]lowerer{
	"conv":           lowerConv,
	"conv_transpose": lowerConvTranspose,
	"max_pool":       lowerPool,
	"avg_pool":       lowerPool,
	"l2_pool":        lowerPool,
}

// grid3 is the geometry of a kernel over an input, always in three spatial
// axes; missing ones lead and have size 1.
type grid3 struct {
	in, out, kernel, stride, dilation, before [3]int
}

// newGrid places the window over spatial sizes in, giving sizes out.
func newGrid(w *mil.Window, in, out []int) *grid3 {
	g := &grid3{}
	for i := range 3 {
		g.in[i], g.out[i], g.kernel[i], g.stride[i], g.dilation[i] = 1, 1, 1, 1, 1
	}
	for i := range in {
		k := 3 - len(in) + i
		g.in[k], g.out[k] = in[i], out[i]
		g.kernel[k], g.stride[k], g.dilation[k] = w.Kernel[i], w.Strides[i], w.Dilations[i]
		g.before[k], _ = w.Pads(i, in[i])
	}
	return g
}

func volume(s [3]int) int { return s[0] * s[1] * s[2] }

// at splits a flat index over sizes s.
func at(i int, s [3]int) [3]int { return [3]int{i / (s[1] * s[2]), i / s[2] % s[1], i % s[2]} }

// source is the input offset under kernel position k of output position o;
// ok is false in the padding.
func (g *grid3) source(o, k [3]int) (off int, ok bool) {
	for i := range 3 {
		p := o[i]*g.stride[i] + k[i]*g.dilation[i] - g.before[i]
		if p < 0 || p >= g.in[i] {
			return 0, false
		}
		off = off*g.in[i] + p
	}
	return off, true
}

// convParams are what conv and conv_transpose share.
type convParams struct {
	x, w, b int
	groups  int
	c       *mil.Infer
}

func (l *lowering) convParams(op *mil.Op) (*convParams, error) {
	in, err := l.operands(op, "x", "weight", "bias")
	if err != nil {
		return nil, err
	}
	c, err := l.known(op, "strides", "pad_type", "pad", "dilations", "groups", "output_shape")
	if err != nil {
		return nil, err
	}
	return &convParams{in[0], in[1], in[2], c.Int("groups", 1), c}, nil
}

// tensors fetches the operands and checks their channels.
func (p *convParams) tensors(f *frame, transposed bool) (x, w, b *Tensor, err error) {
	x, w, b = f.t[p.x], f.t[p.w], f.optional(p.b)
	n := len(x.Shape)
	if n < 3 || n > 5 || len(w.Shape) != n || p.groups < 1 {
		return x, w, b, fmt.Errorf("x is %v, weight is %v, groups %d", x, w, p.groups)
	}
	in, out := w.Shape[1]*p.groups, w.Shape[0]
	if transposed {
		in, out = w.Shape[0], w.Shape[1]*p.groups
	}
	if x.Shape[1] != in || out%p.groups != 0 {
		return x, w, b, fmt.Errorf("x is %v, weight is %v, groups %d", x, w, p.groups)
	}
	return x, w, b, wantLen("bias", b, out)
}

func lowerConv(l *lowering, op *mil.Op) (instr, error) {
	p, err := l.convParams(op)
	if err != nil {
		return instr{}, err
	}
	o := l.result(op, 0)
	return instr{alias: -1, run: func(f *frame) error {
		x, w, b, err := p.tensors(f, false)
		if err != nil {
			return err
		}
		win, err := p.c.Window(w.Shape[2:])
		if err != nil {
			return err
		}
		shape := []int{x.Shape[0], w.Shape[0]}
		for i, d := range x.Shape[2:] {
			n, err := win.Out(i, d)
			if err != nil {
				return err
			}
			shape = append(shape, n)
		}
		out := f.out(o, x.DType, shape...)
		conv(f, newGrid(win, x.Shape[2:], shape[2:]), out.F, x.F, w.F, b, x.Shape[0], x.Shape[1], shape[1], p.groups)
		return nil
	}}, nil
}

// conv gathers the patch of each output position and multiplies it with the
// weights of each group.
func conv(f *frame, g *grid3, dst, x, w []float32, b *Tensor, n, cin, cout, groups int) {
	ci, co, taps := cin/groups, cout/groups, volume(g.kernel)
	spatial, area := volume(g.out), volume(g.in)
	f.par(n*groups*spatial, 1+1<<15/max(1, co*ci*taps), func(lo, hi int) {
		patch := make([]float32, ci*taps)
		for t := lo; t < hi; t++ {
			pos, ng := t%spatial, t/spatial
			grp, img := ng%groups, ng/groups
			o := at(pos, g.out)
			for k := range taps {
				off, ok := g.source(o, at(k, g.kernel))
				for c := range ci {
					patch[c*taps+k] = 0
					if ok {
						patch[c*taps+k] = x[(img*cin+grp*ci+c)*area+off]
					}
				}
			}
			for c := range co {
				ch := grp*co + c
				s := dot64(patch, w[ch*ci*taps:(ch+1)*ci*taps])
				dst[(img*cout+ch)*spatial+pos] = float32(s + b.at(ch, 0))
			}
		}
	})
}

func lowerConvTranspose(l *lowering, op *mil.Op) (instr, error) {
	p, err := l.convParams(op)
	if err != nil {
		return instr{}, err
	}
	want, fixed := p.c.Ints("output_shape")
	o := l.result(op, 0)
	return instr{alias: -1, run: func(f *frame) error {
		x, w, b, err := p.tensors(f, true)
		if err != nil {
			return err
		}
		win, err := p.c.Window(w.Shape[2:])
		if err != nil {
			return err
		}
		shape := []int{x.Shape[0], w.Shape[1] * p.groups}
		for i, d := range x.Shape[2:] {
			shape = append(shape, win.TransposedOut(i, d))
		}
		if fixed {
			if len(want) != len(shape) || !slices.Equal(want[:2], shape[:2]) {
				return fmt.Errorf("output_shape is %v, want [%d, %d, ...]", want, shape[0], shape[1])
			}
			shape = want
		}
		g := newGrid(win, x.Shape[2:], shape[2:])
		for i, d := range x.Shape[2:] {
			g.before[3-len(x.Shape[2:])+i] = win.TransposedBefore(i, d)
		}
		out := f.out(o, x.DType, shape...)
		convTranspose(f, g, out.F, x.F, w.F, b, x.Shape[0], x.Shape[1], shape[1], p.groups)
		return nil
	}}, nil
}

// convTranspose adds each input element, times the kernel, to the outputs
// that conv would have computed it from.
func convTranspose(f *frame, g *grid3, dst, x, w []float32, b *Tensor, n, cin, cout, groups int) {
	ci, co, taps := cin/groups, cout/groups, volume(g.kernel)
	spatial, area := volume(g.out), volume(g.in)
	f.par(n*cout, 1, func(lo, hi int) {
		acc := make([]float64, spatial)
		for t := lo; t < hi; t++ {
			img, ch := t/cout, t%cout
			grp := ch / co
			for i := range acc {
				acc[i] = b.at(ch, 0)
			}
			for c := range ci {
				in := grp*ci + c
				kernel := w[(in*co+ch%co)*taps:][:taps]
				src := x[(img*cin+in)*area:][:area]
				for i, v := range src {
					from := at(i, g.in)
					for k, weight := range kernel {
						if to, ok := g.target(from, at(k, g.kernel)); ok {
							acc[to] += float64(v) * float64(weight)
						}
					}
				}
			}
			for i, v := range acc {
				dst[t*spatial+i] = float32(v)
			}
		}
	})
}

// target is the inverse of source: where input position i lands.
func (g *grid3) target(i, k [3]int) (off int, ok bool) {
	for d := range 3 {
		p := i[d]*g.stride[d] + k[d]*g.dilation[d] - g.before[d]
		if p < 0 || p >= g.out[d] {
			return 0, false
		}
		off = off*g.out[d] + p
	}
	return off, true
}
