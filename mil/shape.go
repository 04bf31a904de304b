package mil

import (
	"fmt"
	"slices"
)

// The shape rules that type inference and the interpreter share: inference
// calls them with Unknown dimensions and missing parameters, the interpreter
// with the sizes of the run.

// Volume is the product of the dimensions, or Unknown.
func Volume(shape []int) int { return TensorType{Shape: shape}.NumElements() }

// addDim, mulDim and divDim calculate with dimensions that may be Unknown.
func addDim(a, b int) int {
	if a == Unknown || b == Unknown {
		return Unknown
	}
	return a + b
}

func mulDim(a, b int) int {
	if a == Unknown || b == Unknown {
		return Unknown
	}
	return a * b
}

func divDim(a, b int) int {
	if a == Unknown {
		return Unknown
	}
	return a / b
}

// unknowns is a shape of n Unknown dimensions.
func unknowns(n int) []int { return slices.Repeat([]int{Unknown}, n) }

// insert returns shape with d inserted before axis.
func insert(shape []int, axis, d int) []int { return slices.Insert(slices.Clone(shape), axis, d) }

// ReshapeShape resolves the target of a reshape: one −1 takes what is left.
// A 0 copies a dimension of x; up to CoreML6 that with the same index and
// both ranks must be equal, later the one at the same distance from the right,
// or 1 if there is none.
func ReshapeShape(x, target []int, o Opset) ([]int, error) {
	out := slices.Clone(target)
	shift := len(target) - len(x)
	if o < CoreML7 && shift != 0 && slices.Contains(target, 0) {
		return nil, fmt.Errorf("shape %v holds a 0, which needs the rank of x (%d) before CoreML7", target, len(x))
	}
	free, rest := -1, 1
	for i, d := range out {
		switch {
		case d == 0 && i < shift:
			out[i] = 1
		case d == 0:
			out[i] = x[i-shift]
		case d == -1 && free >= 0:
			return nil, fmt.Errorf("shape %v holds more than one -1", target)
		case d == -1:
			free = i
			continue
		case d < 0:
			return nil, fmt.Errorf("shape %v holds a negative size", target)
		}
		rest = mulDim(rest, out[i])
	}
	n := Volume(x)
	if free >= 0 {
		switch {
		case n == Unknown || rest == Unknown:
			out[free] = Unknown
		case rest == 0:
			out[free] = 0
		default:
			out[free] = n / rest
			rest *= out[free]
		}
	}
	if n != Unknown && rest != Unknown && n != rest {
		return nil, fmt.Errorf("cannot reshape %s to %v", shapeString(x), target)
	}
	return out, nil
}

// SliceParams are the parameters of slice_by_index and slice_update. A nil
// Begin or End is known only at run time; nil masks and Stride mean their
// defaults.
type SliceParams struct {
	Begin, End, Stride             []int
	BeginMask, EndMask, SqueezeAll []bool
}

// SliceAxis is a resolved slice of one axis: N elements from Start on, Step
// apart. Squeeze drops the axis. Start and N may be Unknown.
type SliceAxis struct {
	Start, N, Step int
	Squeeze        bool
}

// Resolve finds the slice of every axis of a tensor of the given shape.
func (p SliceParams) Resolve(shape []int) ([]SliceAxis, error) {
	for _, v := range [][]int{p.Begin, p.End, p.Stride} {
		if len(v) != 0 && len(v) != len(shape) {
			return nil, fmt.Errorf("begin, end and stride want %d entries, one an axis, got %v", len(shape), v)
		}
	}
	out := make([]SliceAxis, len(shape))
	for k, d := range shape {
		mask := func(m []bool) bool { return k < len(m) && m[k] }
		at := func(v []int, masked bool) *int {
			if masked || len(v) == 0 {
				return nil
			}
			x := v[k]
			return &x
		}
		a := axisSlice{
			size: d, step: 1, fromStart: mask(p.BeginMask), toEnd: mask(p.EndMask),
			begin: at(p.Begin, mask(p.BeginMask)), end: at(p.End, mask(p.EndMask)),
		}
		if len(p.Stride) > 0 {
			a.step = p.Stride[k]
		}
		if a.step == 0 {
			return nil, fmt.Errorf("stride is 0 on axis %d", k)
		}
		var err error
		if mask(p.SqueezeAll) {
			out[k], err = a.single()
		} else {
			out[k], err = a.span()
		}
		if err != nil {
			return nil, fmt.Errorf("axis %d of %s: %w", k, shapeString(shape), err)
		}
	}
	return out, nil
}

// SliceShape is the shape that the axes leave.
func SliceShape(axes []SliceAxis) []int {
	out := []int{}
	for _, a := range axes {
		if !a.Squeeze {
			out = append(out, a.N)
		}
	}
	return out
}

type axisSlice struct {
	size, step       int
	fromStart, toEnd bool // begin or end is masked
	begin, end       *int // nil if masked or not known
}

// single is the one element at begin, for a squeezed axis.
func (a axisSlice) single() (SliceAxis, error) {
	r := SliceAxis{Start: 0, N: 1, Step: 1, Squeeze: true}
	switch {
	case a.fromStart:
	case a.begin == nil:
		r.Start = Unknown
	default:
		r.Start = wrap(*a.begin, a.size)
		if a.size != Unknown && (r.Start < 0 || r.Start >= a.size) {
			return r, fmt.Errorf("index %d is out of range for size %d", *a.begin, a.size)
		}
	}
	return r, nil
}

func wrap(i, size int) int {
	if i < 0 && size != Unknown {
		return i + size
	}
	return i
}

// span follows NumPy, with Core ML's exceptions: an axis of size 1 always
// yields its element, and begin > end is an error where both count from the
// same side.
func (a axisSlice) span() (SliceAxis, error) {
	n, err := a.count()
	r := SliceAxis{Start: Unknown, N: n, Step: a.step}
	if err != nil || n == Unknown || a.size == Unknown || (a.begin == nil && !a.fromStart) {
		return r, err
	}
	switch {
	case a.begin == nil && a.step < 0:
		r.Start = a.size - 1
	case a.begin == nil:
		r.Start = 0
	case a.step > 0 && n > 0 && a.size > 1 && *a.begin >= a.size:
		return r, fmt.Errorf("begin %d is out of range for size %d", *a.begin, a.size)
	default:
		r.Start = min(max(wrap(*a.begin, a.size), 0), a.size-1)
	}
	if last := r.Start + (n-1)*a.step; n > 0 && (last < 0 || last >= a.size) {
		return r, fmt.Errorf("begin %v takes %d elements, %d apart, out of %d", r.Start, n, a.step, a.size)
	}
	return r, nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func (a axisSlice) count() (int, error) {
	mag := max(a.step, -a.step)
	b, e := a.begin, a.end
	if a.fromStart && a.toEnd {
		if a.size == Unknown {
			return Unknown, nil
		}
		return ceilDiv(a.size, mag), nil
	}
	if b != nil && e != nil {
		d := 0
		switch {
		case *b >= 0 && *e >= 0 && a.step > 0:
			d = *e - *b
		case *b < 0 && *e < 0 && a.step < 0:
			d = *b - *e
		default:
			d = 2 * mag // either side may be empty: no early answer
		}
		if d < 0 {
			return 0, fmt.Errorf("begin %d, end %d and stride %d select nothing", *b, *e, a.step)
		}
		if n := ceilDiv(d, mag); n <= 1 {
			return n, nil
		}
	}
	if b != nil && a.toEnd && (*b == 0 && a.step < 0 || *b == -1 && a.step > 0) {
		return 1, nil
	}
	switch {
	case a.size == Unknown:
		return Unknown, nil
	case a.size == 1:
		return 1, nil
	case b == nil && !a.fromStart, e == nil && !a.toEnd:
		return Unknown, nil
	}
	clip := func(v *int) int { return min(max(wrap(*v, a.size), 0), a.size) }
	lo, hi := 0, a.size
	if a.step > 0 {
		if b != nil {
			lo = clip(b)
		}
		if e != nil {
			hi = clip(e)
		}
	} else {
		lo, hi = -1, a.size-1
		if e != nil {
			lo = clip(e)
		}
		if b != nil {
			hi = min(clip(b), a.size-1)
		}
	}
	return ceilDiv(max(0, hi-lo), mag), nil
}
