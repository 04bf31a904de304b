package runtime

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/mil"
)

func lowerPool(l *lowering, op *mil.Op) (instr, error) {
	x, err := l.must(op, "x")
	if err != nil {
		return instr{}, err
	}
	c, err := l.known(op, "kernel_sizes", "strides", "pad_type", "pad", "ceil_mode", "exclude_padding_from_average")
	if err != nil {
		return instr{}, err
	}
	kernel, _ := c.Ints("kernel_sizes")
	win, err := c.Window(kernel)
	if err != nil {
		return instr{}, err
	}
	exclude := c.Bool("exclude_padding_from_average", false)
	o := l.result(op, 0)
	kind := op.Kind
	return instr{alias: -1, run: func(f *frame) error {
		in := f.t[x]
		if len(in.Shape) != 2+len(kernel) {
			return fmt.Errorf("x is %v, kernel_sizes are %v", in, kernel)
		}
		shape := append([]int(nil), in.Shape[:2]...)
		after := [3]int{1, 1, 1}
		for i, d := range in.Shape[2:] {
			n, err := win.Out(i, d)
			if err != nil {
				return err
			}
			shape = append(shape, n)
			lo, hi := win.Pads(i, d)
			after[3-len(kernel)+i] = d + lo + hi
		}
		g := newGrid(win, in.Shape[2:], shape[2:])
		out := f.out(o, in.DType, shape...)
		reducer := poolReducer(kind, g, after, exclude)
		area, spatial, taps := volume(g.in), volume(g.out), volume(g.kernel)
		f.par(len(out.F), 1+4096/max(taps, 1), func(lo, hi int) {
			window := make([]float64, 0, taps)
			for t := lo; t < hi; t++ {
				src, pos := in.F[t/spatial*area:], at(t%spatial, g.out)
				window = window[:0]
				for k := range taps {
					if off, ok := g.source(pos, at(k, g.kernel)); ok {
						window = append(window, float64(src[off]))
					}
				}
				out.F[t] = float32(reducer(window, pos))
			}
		})
		return nil
	}}, nil
}

// poolReducer reduces the elements of a window that lie inside the input.
// padded is the input size with its padding: an average counts the padding
// unless it is excluded, but never what ceil_mode adds behind it.
func poolReducer(kind string, g *grid3, padded [3]int, exclude bool) func(window []float64, o [3]int) float64 {
	switch kind {
	case "max_pool":
		most := fold(math.Inf(-1), func(a, x float64) float64 { return max(a, x) })
		return func(window []float64, _ [3]int) float64 { return most(window) }
	case "l2_pool":
		return func(window []float64, _ [3]int) float64 { return math.Sqrt(sumSquare(window)) }
	}
	sum := fold(0, addOf[float64])
	return func(window []float64, o [3]int) float64 {
		if exclude {
			return sum(window) / float64(len(window))
		}
		n := 1
		for i := range 3 {
			n *= min(g.kernel[i], padded[i]-o[i]*g.stride[i])
		}
		return sum(window) / float64(n)
	}
}
