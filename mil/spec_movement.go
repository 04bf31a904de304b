package mil

import (
	"fmt"
	"slices"
)

// Operators that move elements without computing: reshaping, permuting,
// joining, repeating and reversing.

// basicMovable is what data movement ops take before CoreML7.
var basicMovable = Numbers | Bools

// signedIndices is what sizes and positions may be from CoreML7 on.
var signedIndices = Dom(Int8, Int16, Int32)

// movable is a tensor parameter of a movement op.
func movable(name string) Param { return req(name, basicMovable).wide(Movable, CoreML7) }

// position is an integer vector that may be computed at run time.
func position(name string) Param { return req(name, Ints32).wide(signedIndices, CoreML7).bind("U") }

var movementSpecs = concatSpecs(
	[]OpSpec{
		op("reshape", "x with another shape: one -1 is inferred, a 0 copies a dimension of x", inferReshape,
			movable("x"), position("shape")),
		op("reshape_like", "x with the shape that slices of the reference tensors' shapes make", inferReshapeLike,
			movable("x"), movable("ref_tensors").variadic(),
			attr("begins", Ints32).variadic(), attr("ends", Ints32).variadic(), attr("end_masks", Bools).variadic()).from(CoreML6),
		op("expand_dims", "insert axes of size 1, counted in the output", inferExpandDims,
			movable("x"), attr("axes", Ints32)),
		op("squeeze", "drop axes of size 1, all by default", inferSqueeze,
			movable("x"), optAttr("axes", Ints32, nil)),
		op("transpose", "permute the axes: output axis i is axis perm[i] of x", inferTranspose,
			movable("x"), attr("perm", Ints32)),
		op("flatten2d", "collapse the axes before and from axis on", inferFlatten2D,
			req("x", basicMovable), optAttr("axis", Ints32, 1)),
		op("concat", "join along an axis, in turns of one slice each if interleave", inferConcat,
			movable("values").variadic().bind("T"), attr("axis", Ints32), optAttr("interleave", Bools, false)),
		op("stack", "join along a new axis", inferStack,
			movable("values").variadic().bind("T"), attr("axis", Ints32)),
		op("split", "cut an axis into num_splits equal parts or parts of split_sizes", inferSplit,
			req("x", basicMovable), optAttr("num_splits", Ints32, nil), optAttr("split_sizes", Ints32, nil), attr("axis", Ints32)),
		op("tile", "repeat x reps[i] times along axis i", inferTile,
			req("x", basicMovable), req("reps", Ints32)),
		op("pad", "pad the last axes: a constant, reflected without the edge, or the edge replicated", inferPad,
			req("x", Floats).bind("T"), req("pad", Ints32), optAttr("mode", Strings, "constant"),
			optAttr("constant_val", Floats, 0.).bind("T")),
		op("reverse", "reverse the order along axes, all by default", checked(checkReverse),
			movable("x"), optAttr("axes", Ints32, nil)),
		op("reverse_sequence", "reverse the first lengths[b] elements of seq_axis for every b of batch_axis", checked(checkReverseSequence),
			movable("x"), req("lengths", Ints32).wide(signedIndices, CoreML7),
			optAttr("seq_axis", Ints32, 0), optAttr("batch_axis", Ints32, 0)),
		op("band_part", "zero outside a diagonal band of the last two axes; negative keeps that side whole", checked(checkBandPart),
			req("x", basicMovable), optAttr("lower", Ints32, -1), optAttr("upper", Ints32, -1)),
		op("sliding_windows", "all windows of size elements, stride apart, along a new axis behind axis", inferSlidingWindows,
			req("x", Numbers).wide(Movable, CoreML7), attr("axis", Ints32), attr("size", Ints32), optAttr("stride", Ints32, 1)),
	},
	spatialSpecs, sliceSpecs, generatorSpecs,
)

func inferReshape(c *Infer) ([]Type, error) {
	x, s := c.T("x"), c.T("shape")
	if s.Rank() != 1 || s.Shape[0] == Unknown {
		return nil, fmt.Errorf("shape is %v, want a vector of known length", s)
	}
	target, ok := c.Ints("shape")
	if !ok {
		return one(TensorType{x.DType, unknowns(s.Shape[0])}), nil
	}
	out, err := ReshapeShape(x.Shape, target, c.Opset)
	return one(TensorType{x.DType, out}), err
}

func inferReshapeLike(c *Infer) ([]Type, error) {
	x := c.T("x")
	var params [3][]int
	refs := c.Op.Ins("ref_tensors")
	for i, name := range []string{"begins", "ends", "end_masks"} {
		for _, v := range c.Op.Ins(name) {
			k, err := constScalar(v)
			if err != nil {
				return nil, fmt.Errorf("input %s: %w", name, err)
			}
			params[i] = append(params[i], k)
		}
		if len(params[i]) != len(refs) {
			return nil, fmt.Errorf("%d ref_tensors but %d %s", len(refs), len(params[i]), name)
		}
	}
	out := []int{}
	for i, v := range refs {
		t, ok := v.Tensor()
		if !ok {
			return nil, fmt.Errorf("ref_tensors[%d] is %v, want a tensor", i, v.Type)
		}
		out = append(out, LikeDims(t.Shape, params[0][i], params[1][i], params[2][i] != 0)...)
	}
	if n, m := Volume(x.Shape), Volume(out); !sameDim(n, m) {
		return nil, fmt.Errorf("cannot reshape %s to %s", shapeString(x.Shape), shapeString(out))
	}
	return one(TensorType{x.DType, out}), nil
}

// LikeDims is the part of a reference tensor's shape that reshape_like takes:
// shape[begin:end] as Python slices it, or shape[begin:] if toEnd.
func LikeDims(shape []int, begin, end int, toEnd bool) []int {
	n := len(shape)
	clip := func(i int) int {
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	lo, hi := clip(begin), clip(end)
	if toEnd {
		hi = n
	}
	return shape[lo:max(lo, hi)]
}

func constScalar(v *Value) (int, error) {
	if v.Const == nil {
		return 0, fmt.Errorf("%q is not a constant", v.Name)
	}
	k, err := ConstInts(v.Const)
	if err == nil && len(k) != 1 {
		err = fmt.Errorf("want scalars, got %v", v.Type)
	}
	if err != nil {
		return 0, err
	}
	return k[0], nil
}

// axes reads a constant vector of axes, normalised against rank.
func (c *Infer) axes(param string, rank int) ([]int, error) {
	v, _ := c.Ints(param)
	out := make([]int, len(v))
	for i, a := range v {
		var err error
		if out[i], err = Axis(a, rank); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func inferExpandDims(c *Infer) ([]Type, error) {
	x := c.T("x")
	v, _ := c.Ints("axes")
	axes, err := c.axes("axes", x.Rank()+len(v))
	if err != nil {
		return nil, err
	}
	slices.Sort(axes)
	out := slices.Clone(x.Shape)
	for _, a := range axes {
		if a > len(out) {
			return nil, fmt.Errorf("axes %v repeat an axis", v)
		}
		out = slices.Insert(out, a, 1)
	}
	return one(TensorType{x.DType, out}), nil
}

// SqueezeAxes says which axes of a tensor of shape x a squeeze drops: those
// of size 1 among axes, or all of size 1 if axes is nil. An Unknown size is
// taken to be other than 1.
func SqueezeAxes(x, axes []int) ([]bool, error) {
	drop := make([]bool, len(x))
	for i := range x {
		drop[i] = axes == nil && x[i] == 1
	}
	for _, a := range axes {
		k, err := Axis(a, len(x))
		if err != nil {
			return nil, err
		}
		drop[k] = x[k] == 1
	}
	return drop, nil
}

func inferSqueeze(c *Infer) ([]Type, error) {
	x := c.T("x")
	axes, _ := c.Ints("axes")
	drop, err := SqueezeAxes(x.Shape, axes)
	if err != nil {
		return nil, err
	}
	out := []int{}
	for i, d := range x.Shape {
		if !drop[i] {
			out = append(out, d)
		}
	}
	return one(TensorType{x.DType, out}), nil
}

func inferTranspose(c *Infer) ([]Type, error) {
	x := c.T("x")
	perm, err := c.axes("perm", x.Rank())
	if err != nil {
		return nil, err
	}
	if len(perm) != x.Rank() {
		return nil, fmt.Errorf("perm %v wants %d entries", perm, x.Rank())
	}
	out, seen := make([]int, len(perm)), make([]bool, len(perm))
	for i, p := range perm {
		if seen[p] {
			return nil, fmt.Errorf("perm %v repeats axis %d", perm, p)
		}
		seen[p], out[i] = true, x.Shape[p]
	}
	return one(TensorType{x.DType, out}), nil
}

func inferFlatten2D(c *Infer) ([]Type, error) {
	x, axis := c.T("x"), c.Int("axis", 1)
	if axis < 0 {
		axis += x.Rank()
	}
	if axis < 0 || axis > x.Rank() {
		return nil, fmt.Errorf("axis %d is out of range for rank %d", c.Int("axis", 1), x.Rank())
	}
	return one(T(x.DType, Volume(x.Shape[:axis]), Volume(x.Shape[axis:]))), nil
}

// tensors reads the types of a variadic parameter, which must share one
// element type and rank.
func (c *Infer) tensors(param string) ([]TensorType, error) {
	var ts []TensorType
	for i, v := range c.Op.Ins(param) {
		t, ok := v.Tensor()
		if !ok {
			return nil, fmt.Errorf("%s[%d] is %v, want a tensor", param, i, v.Type)
		}
		if i > 0 && (t.DType != ts[0].DType || t.Rank() != ts[0].Rank()) {
			return nil, fmt.Errorf("%s[%d] is %v, %s[0] is %v: want the same element type and rank", param, i, t, param, ts[0])
		}
		ts = append(ts, t)
	}
	if len(ts) == 0 {
		return nil, fmt.Errorf("%s is empty", param)
	}
	return ts, nil
}

func inferConcat(c *Infer) ([]Type, error) {
	ts, err := c.tensors("values")
	if err != nil {
		return nil, err
	}
	rank := ts[0].Rank()
	axis := c.Int("axis", 0)
	if rank == 0 {
		return one(T(ts[0].DType, len(ts))), nil
	}
	if axis, err = Axis(axis, rank); err != nil {
		return nil, err
	}
	out := slices.Clone(ts[0].Shape)
	for i, t := range ts[1:] {
		for k, d := range t.Shape {
			if !sameDim(d, ts[0].Shape[k]) && (k != axis || c.Bool("interleave", false)) {
				return nil, fmt.Errorf("values[%d] is %v, which does not fit %v along axis %d", i+1, t, ts[0], axis)
			}
		}
		out[axis] = addDim(out[axis], t.Shape[axis])
	}
	return one(TensorType{ts[0].DType, out}), nil
}

func inferStack(c *Infer) ([]Type, error) {
	ts, err := c.tensors("values")
	if err != nil {
		return nil, err
	}
	axis, err := Axis(c.Int("axis", 0), ts[0].Rank()+1)
	if err != nil {
		return nil, err
	}
	known := ts[0]
	for i, t := range ts {
		if !t.Compatible(ts[0]) {
			return nil, fmt.Errorf("values[%d] is %v, values[0] is %v", i, t, ts[0])
		}
		if t.NumElements() != Unknown && known.NumElements() == Unknown {
			known = t
		}
	}
	return one(TensorType{known.DType, insert(known.Shape, axis, len(ts))}), nil
}

func inferSplit(c *Infer) ([]Type, error) {
	x := c.T("x")
	axis, err := Axis(c.Int("axis", 0), x.Rank())
	if err != nil {
		return nil, err
	}
	sizes, ok := c.Ints("split_sizes")
	n := c.Int("num_splits", len(sizes))
	d := x.Shape[axis]
	switch {
	case n < 1:
		return nil, fmt.Errorf("want num_splits or split_sizes")
	case !ok && d != Unknown && d%n != 0:
		return nil, fmt.Errorf("size %d of axis %d does not split into %d equal parts", d, axis, n)
	case !ok:
		sizes = slices.Repeat([]int{divDim(d, n)}, n)
	case len(sizes) != n:
		return nil, fmt.Errorf("num_splits is %d but split_sizes is %v", n, sizes)
	}
	sum := 0
	out := make([]Type, n)
	for i, s := range sizes {
		if ok && s < 0 {
			return nil, fmt.Errorf("split_sizes %v holds a negative size", sizes)
		}
		shape := slices.Clone(x.Shape)
		shape[axis] = s
		out[i] = TensorType{x.DType, shape}
		sum = addDim(sum, s)
	}
	if !sameDim(sum, d) {
		return nil, fmt.Errorf("split_sizes %v do not add up to %d, the size of axis %d", sizes, d, axis)
	}
	return out, nil
}

func inferTile(c *Infer) ([]Type, error) {
	x := c.T("x")
	reps, ok := c.Ints("reps")
	if !ok {
		return one(TensorType{x.DType, unknowns(x.Rank())}), nil
	}
	if len(reps) == 0 || len(reps) != x.Rank() {
		return nil, fmt.Errorf("reps %v wants %d entries, one an axis", reps, x.Rank())
	}
	out := make([]int, len(reps))
	for i, r := range reps {
		if r <= 0 {
			return nil, fmt.Errorf("reps %v holds a number below 1", reps)
		}
		out[i] = mulDim(x.Shape[i], r)
	}
	return one(TensorType{x.DType, out}), nil
}

func inferPad(c *Infer) ([]Type, error) {
	x, p := c.T("x"), c.T("pad")
	switch m := c.Str("mode", "constant"); m {
	case "constant", "reflect", "replicate":
	default:
		return nil, fmt.Errorf("mode is %q, want constant, reflect or replicate", m)
	}
	if p.Rank() != 1 || p.Shape[0]%2 != 0 || p.Shape[0] > 2*x.Rank() {
		return nil, fmt.Errorf("pad is %v, want two numbers for each of at most %d axes", p, x.Rank())
	}
	out := slices.Clone(x.Shape)
	v, ok := c.Ints("pad")
	if !ok {
		if p.Shape[0] != 2*x.Rank() {
			return nil, fmt.Errorf("pad of %d numbers is not a constant (then it must have %d)", p.Shape[0], 2*x.Rank())
		}
		return one(TensorType{x.DType, unknowns(x.Rank())}), nil
	}
	for i, d := range v {
		if d < 0 {
			return nil, fmt.Errorf("pad %v holds a negative number", v)
		}
		k := len(out) - len(v)/2 + i/2
		out[k] = addDim(out[k], d)
	}
	return one(TensorType{x.DType, out}), nil
}

func checkReverse(c *Infer) error {
	_, err := c.axes("axes", c.T("x").Rank())
	return err
}

func checkReverseSequence(c *Infer) error {
	x, n := c.T("x"), c.T("lengths")
	if _, err := Axis(c.Int("seq_axis", 0), x.Rank()); err != nil {
		return err
	}
	b, err := Axis(c.Int("batch_axis", 0), x.Rank())
	if err == nil && (n.Rank() != 1 || !sameDim(n.Shape[0], x.Shape[b])) {
		err = fmt.Errorf("lengths is %v, want one for each of the %d slices of axis %d", n, x.Shape[b], b)
	}
	return err
}

func checkBandPart(c *Infer) error {
	if x := c.T("x"); x.Rank() < 2 {
		return fmt.Errorf("x is %v, want rank 2 or more", x)
	}
	return nil
}

func inferSlidingWindows(c *Infer) ([]Type, error) {
	x := c.T("x")
	axis, err := Axis(c.Int("axis", 0), x.Rank())
	if err != nil {
		return nil, err
	}
	size, stride := c.Int("size", 0), c.Int("stride", 1)
	if size < 1 || stride < 1 || x.Shape[axis] != Unknown && size > x.Shape[axis] {
		return nil, fmt.Errorf("windows of %d, %d apart, do not fit axis %d of %v", size, stride, axis, x)
	}
	out := insert(x.Shape, axis+1, size)
	if out[axis] != Unknown {
		out[axis] = (out[axis]-size)/stride + 1
	}
	return one(TensorType{x.DType, out}), nil
}
