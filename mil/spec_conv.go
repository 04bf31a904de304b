package mil

import (
	"fmt"
	"slices"
)

// Convolution, transposed convolution and pooling over one to three spatial
// axes: x is [N, C, spatial...].

var convSpecs = concatSpecs([]OpSpec{
	op("conv", "cross-correlation of x with weight [Cout, Cin/groups, kernel...], plus bias", inferConv,
		append([]Param{
			req("x", Floats).bind("T"),
			req("weight", Floats).bind("T").free(CoreML7),
			opt("bias", Floats, nil).bind("T").free(CoreML7),
		}, window(optAttr("pad_type", Strings, "valid"), dilations, groups)...)...),
	op("conv_transpose", "gradient of conv: weight is [Cin, Cout/groups, kernel...]", inferConvTranspose,
		append([]Param{
			req("x", Floats).bind("T"),
			req("weight", Floats).bind("T").free(CoreML7),
			opt("bias", Floats, nil).bind("T").free(CoreML7),
			optAttr("output_shape", Ints32, nil),
		}, window(optAttr("pad_type", Strings, "valid"), dilations, groups)...)...),
}, []OpSpec{
	pool("max_pool", "largest element of each window"),
	pool("l2_pool", "square root of the sum of squares of each window"),
	pool("avg_pool", "mean of each window", optAttr("exclude_padding_from_average", Bools, false)),
})

var (
	dilations = optAttr("dilations", Ints32, spatialFill(1, 1))
	groups    = optAttr("groups", Ints32, 1)
)

// window lists the parameters that place a kernel: strides, pad_type, pad.
func window(padType Param, more ...Param) []Param {
	return append([]Param{
		optAttr("strides", Ints32, spatialFill(1, 1)),
		padType,
		optAttr("pad", Ints32, spatialFill(2, 0)),
	}, more...)
}

func pool(kind, doc string, more ...Param) OpSpec {
	params := append([]Param{req("x", Floats), attr("kernel_sizes", Ints32)}, window(attr("pad_type", Strings), optAttr("ceil_mode", Bools, false))...)
	return op(kind, doc, inferPool, append(params, more...)...)
}

// spatialFill is a default of per values v for each spatial axis.
func spatialFill(per, v int) func(*Infer) any {
	return func(c *Infer) any {
		out := make([]int, max(0, per*(c.T("x").Rank()-2)))
		for i := range out {
			out[i] = v
		}
		return out
	}
}

// A Window is the geometry of a convolution or pool: for each spatial axis
// the kernel size, its stride and dilation, and how pads come about.
type Window struct {
	Kernel, Strides, Dilations []int
	PadType                    string // valid, same, same_lower or custom
	Pad                        []int  // before and after each axis, if custom
	Ceil                       bool   // round the output size up
}

// Window reads the geometry of the op. kernel holds the spatial sizes.
func (c *Infer) Window(kernel []int) (*Window, error) {
	c = &Infer{Op: c.Op, Spec: c.Spec, Opset: c.Opset} // errors go to the caller alone
	w := &Window{Kernel: kernel, PadType: c.Str("pad_type", "valid"), Ceil: c.Bool("ceil_mode", false)}
	n := len(kernel)
	read := func(name string, per, def, least int) []int {
		v, ok := c.Ints(name)
		if !ok {
			for range per * n {
				v = append(v, def)
			}
		}
		if len(v) != per*n {
			c.fail("%s has %d elements, want %d", name, len(v), per*n)
		}
		for _, x := range v {
			if x < least {
				c.fail("%s %v: values below %d", name, v, least)
			}
		}
		return v
	}
	w.Strides = read("strides", 1, 1, 1)
	w.Dilations = read("dilations", 1, 1, 1)
	w.Pad = read("pad", 2, 0, 0)
	switch w.PadType {
	case "valid", "same", "custom":
	case "same_lower":
		if c.Opset < CoreML6 {
			c.fail("pad_type same_lower needs CoreML6")
		}
	default:
		c.fail("unknown pad_type %q", w.PadType)
	}
	return w, c.err
}

// Extent is the size of the dilated kernel along spatial axis i.
func (w *Window) Extent(i int) int { return (w.Kernel[i]-1)*w.Dilations[i] + 1 }

// Pads is the padding before and after spatial axis i of input size in.
func (w *Window) Pads(i, in int) (before, after int) {
	switch w.PadType {
	case "custom":
		return w.Pad[2*i], w.Pad[2*i+1]
	case "same", "same_lower":
		s := w.Strides[i]
		total := max(0, (in+s-1)/s*s-in+w.Extent(i)-s)
		lo, hi := total/2, total-total/2
		if w.PadType == "same_lower" {
			lo, hi = hi, lo
		}
		return lo, hi
	}
	return 0, 0
}

// Out is the output size along spatial axis i for input size in.
func (w *Window) Out(i, in int) (int, error) {
	if in == Unknown || w.Kernel[i] == Unknown {
		return Unknown, nil
	}
	lo, hi := w.Pads(i, in)
	span, s := in+lo+hi-w.Extent(i), w.Strides[i]
	if span < 0 {
		return 0, fmt.Errorf("kernel extent %d exceeds padded size %d of spatial axis %d", w.Extent(i), in+lo+hi, i)
	}
	if !w.Ceil {
		return span/s + 1, nil
	}
	out := (span+s-1)/s + 1
	// a window must start inside the input or the padding before it
	if lo+hi > 0 && 2*(out-1)*s >= 2*in+lo+hi {
		out--
	}
	return out, nil
}

func (w *Window) outShape(n, channels int, spatial []int) ([]int, error) {
	out := []int{n, channels}
	for i, in := range spatial {
		d, err := w.Out(i, in)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// convOperands checks ranks, channels, groups and bias; cin and cout are the
// axes of weight that hold input and output channels.
func convOperands(c *Infer, cin, cout int) (x, w TensorType, g int, err error) {
	x, w, g = c.T("x"), c.T("weight"), c.Int("groups", 1)
	if x.Rank() < 3 || x.Rank() > 5 || w.Rank() != x.Rank() {
		return x, w, g, fmt.Errorf("x is %v, weight is %v: want equal ranks from 3 to 5", x, w)
	}
	in, out := w.Shape[cin], w.Shape[cout]
	if cin == 1 && in != Unknown {
		in *= g
	} else if cin == 0 && out != Unknown {
		out *= g
	}
	if g < 1 || !sameDim(x.Shape[1], in) || out != Unknown && out%g != 0 {
		return x, w, g, fmt.Errorf("x has %d channels, weight %v with %d groups takes %d", x.Shape[1], w, g, in)
	}
	if c.Has("bias") {
		if b := c.T("bias"); b.Rank() != 1 || !sameDim(b.Shape[0], out) {
			return x, w, g, fmt.Errorf("bias is %v, want %d elements", b, out)
		}
	}
	return x, w, g, nil
}

func inferConv(c *Infer) ([]Type, error) {
	x, w, _, err := convOperands(c, 1, 0)
	if err != nil {
		return nil, err
	}
	g, err := c.Window(w.Shape[2:])
	if err != nil {
		return nil, err
	}
	s, err := g.outShape(x.Shape[0], w.Shape[0], x.Shape[2:])
	return one(TensorType{x.DType, s}), err
}

func inferConvTranspose(c *Infer) ([]Type, error) {
	x, w, g, err := convOperands(c, 0, 1)
	if err != nil {
		return nil, err
	}
	win, err := c.Window(w.Shape[2:])
	if err != nil {
		return nil, err
	}
	s := []int{x.Shape[0], Unknown}
	if w.Shape[1] != Unknown {
		s[1] = w.Shape[1] * g
	}
	if want, ok := c.Ints("output_shape"); ok {
		if len(want) != x.Rank() || !sameDim(want[0], s[0]) || !sameDim(want[1], s[1]) {
			return nil, fmt.Errorf("output_shape is %v, want rank %d with N %d and %d channels", want, x.Rank(), s[0], s[1])
		}
		return one(TensorType{x.DType, want}), nil
	}
	for i, in := range x.Shape[2:] {
		out := win.TransposedOut(i, in)
		if in != Unknown && out < 0 {
			return nil, fmt.Errorf("the output has size %d on spatial axis %d (too much padding?)", out, i)
		}
		s = append(s, out)
	}
	return one(TensorType{x.DType, s}), nil
}

// TransposedOut is the output size of conv_transpose along spatial axis i.
func (w *Window) TransposedOut(i, in int) int {
	switch {
	case in == Unknown:
		return Unknown
	case w.PadType == "same" || w.PadType == "same_lower":
		return in * w.Strides[i]
	}
	lo, hi := w.Pads(i, in)
	return (in-1)*w.Strides[i] + w.Extent(i) - lo - hi
}

// TransposedBefore is what conv_transpose cuts off before spatial axis i.
func (w *Window) TransposedBefore(i, in int) int {
	switch w.PadType {
	case "custom":
		return w.Pad[2*i]
	case "same", "same_lower":
		total := max(0, (in-1)*w.Strides[i]+w.Extent(i)-in*w.Strides[i])
		if w.PadType == "same_lower" {
			return total - total/2
		}
		return total / 2
	}
	return 0
}

func inferPool(c *Infer) ([]Type, error) {
	x := c.T("x")
	n := x.Rank() - 2
	k, ok := c.Ints("kernel_sizes")
	if n < 1 || n > 3 || !ok || len(k) != n {
		return nil, fmt.Errorf("x is %v, kernel_sizes %v: want rank 3 to 5 and one size for each spatial axis", x, k)
	}
	if slices.Min(k) < 1 {
		return nil, fmt.Errorf("kernel_sizes %v holds a size below 1", k)
	}
	if c.Op.Kind == "l2_pool" && n > 2 {
		return nil, fmt.Errorf("x is %v: want at most two spatial axes", x)
	}
	w, err := c.Window(k)
	if err != nil {
		return nil, err
	}
	if w.Ceil {
		if n > 2 || w.PadType == "same" {
			return nil, fmt.Errorf("ceil_mode needs one or two spatial axes and pad_type other than same")
		}
		for i := range n {
			if w.Pad[2*i] != w.Pad[2*i+1] {
				return nil, fmt.Errorf("ceil_mode needs symmetric pad, have %v", w.Pad)
			}
		}
	}
	s, err := w.outShape(x.Shape[0], x.Shape[1], x.Shape[2:])
	return one(TensorType{x.DType, s}), err
}
