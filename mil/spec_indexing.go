package mil

import (
	"fmt"
	"slices"
)

// Operators that read or write elements at positions held in a tensor.

var (
	gatherable = Dom(Float16, Float32, Int32, Int16, UInt16, Int8, UInt8)
	indices    = req("indices", Ints32).wide(Indices, CoreML6)
	validate   = optAttr("validate_indices", Bools, false).since(CoreML7)
	batchDims  = optAttr("batch_dims", Ints32, 0).since(CoreML6)
	indexAxis  = optAttr("axis", Ints32, 0)
)

var indexingSpecs = []OpSpec{
	op("gather", "the slices of axis at indices; batch_dims leading axes of both go together", inferGather,
		req("x", Numbers).wide(gatherable, CoreML7), indices, indexAxis, batchDims, validate),
	op("gather_along_axis", "as NumPy's take_along_axis", inferGatherAlong,
		req("x", Numbers).wide(gatherable, CoreML7), indices, indexAxis, validate),
	op("gather_nd", "the slices at index vectors held in the last axis of indices", inferGatherND,
		req("x", Numbers).wide(gatherable, CoreML7), indices, batchDims, validate),
	scatterOp("scatter", "data with the slices of axis at indices combined with updates by mode", checkScatter, true),
	scatterOp("scatter_along_axis", "data with elements along axis at indices combined with updates by mode", checkScatterAlong, true),
	scatterOp("scatter_nd", "data with the slices at index vectors combined with updates by mode", checkScatterND, false),
}

// ScatterModes are the modes of the scatter ops.
var ScatterModes = []string{"add", "div", "max", "min", "mul", "sub", "update"}

func scatterOp(kind, doc string, check func(*Infer) error, axis bool) OpSpec {
	ps := []Param{req("data", Numbers).bind("T"), req("indices", Ints32), req("updates", Numbers).bind("T")}
	if axis {
		ps = append(ps, indexAxis)
	}
	ps = append(ps, optAttr("mode", Strings, "add"), validate)
	return op(kind, doc, func(c *Infer) ([]Type, error) {
		if m := c.Str("mode", "add"); !slices.Contains(ScatterModes, m) {
			return nil, fmt.Errorf("mode is %q, want one of %v", m, ScatterModes)
		}
		if err := check(c); err != nil {
			return nil, err
		}
		return one(c.T("data")), nil
	}, ps...)
}

// checkIndices refuses what the two-step domain of indices lets through, and
// constants out of range if the op asks for validation. size is the number of
// valid positions of each component of an index, repeated.
func (c *Infer) checkIndices(size ...int) error {
	d := c.T("indices").DType
	if c.Opset < CoreML7 && (d == Int8 || d == UInt8) {
		return fmt.Errorf("indices are %v, which needs CoreML7 (function is %v)", d, c.Opset)
	}
	if !c.Bool("validate_indices", false) || len(size) == 0 {
		return nil
	}
	v, _ := c.Ints("indices")
	for i, k := range v {
		if n := size[i%len(size)]; k < 0 || n != Unknown && k >= n {
			return fmt.Errorf("index %d is out of range for size %d", k, n)
		}
	}
	return nil
}

// GatherDims normalises the axis and batch_dims of a gather.
func GatherDims(axis, batch, rank, indexRank int) (int, int, error) {
	a, err := Axis(axis, rank)
	if err != nil {
		return 0, 0, err
	}
	b := batch
	if b < 0 {
		b += indexRank
	}
	if b < 0 || b > indexRank || b > a {
		return 0, 0, fmt.Errorf("batch_dims %d does not fit indices of rank %d and axis %d", batch, indexRank, a)
	}
	return a, b, nil
}

func inferGather(c *Infer) ([]Type, error) {
	x, ix := c.T("x"), c.T("indices")
	axis, batch, err := GatherDims(c.Int("axis", 0), c.Int("batch_dims", 0), x.Rank(), ix.Rank())
	if err != nil {
		return nil, err
	}
	for i := range batch {
		if !sameDim(x.Shape[i], ix.Shape[i]) {
			return nil, fmt.Errorf("x %v and indices %v differ in batch axis %d", x, ix, i)
		}
	}
	out := slices.Concat(x.Shape[:axis], ix.Shape[batch:], x.Shape[axis+1:])
	return one(TensorType{x.DType, out}), c.checkIndices(x.Shape[axis])
}

// alongAxis checks that t and u differ only in the size of the axis.
func (c *Infer) alongAxis(t, u TensorType) (int, error) {
	axis, err := Axis(c.Int("axis", 0), t.Rank())
	if err != nil {
		return 0, err
	}
	if t.Rank() != u.Rank() {
		return 0, fmt.Errorf("indices are %v, want the rank of %v", u, t)
	}
	for i := range t.Shape {
		if i != axis && !sameDim(t.Shape[i], u.Shape[i]) {
			return 0, fmt.Errorf("indices %v and %v differ in axis %d", u, t, i)
		}
	}
	return axis, nil
}

func inferGatherAlong(c *Infer) ([]Type, error) {
	x, ix := c.T("x"), c.T("indices")
	axis, err := c.alongAxis(x, ix)
	if err != nil {
		return nil, err
	}
	return one(TensorType{x.DType, ix.Shape}), c.checkIndices(x.Shape[axis])
}

// NDShape is the shape that index vectors select from a tensor of shape x:
// indices without its last axis, then the axes of x that are not indexed.
func NDShape(x, indices []int, batch int) ([]int, error) {
	n := len(indices) - 1
	if n < 0 || indices[n] == Unknown {
		return nil, fmt.Errorf("indices are %s, want a last axis of known size", shapeString(indices))
	}
	if batch < 0 || batch > n || batch+indices[n] > len(x) {
		return nil, fmt.Errorf("index vectors of %d behind %d batch axes do not fit %s", indices[n], batch, shapeString(x))
	}
	return slices.Concat(indices[:n], x[batch+indices[n]:]), nil
}

func inferGatherND(c *Infer) ([]Type, error) {
	x, ix, batch := c.T("x"), c.T("indices"), c.Int("batch_dims", 0)
	out, err := NDShape(x.Shape, ix.Shape, batch)
	if err != nil {
		return nil, err
	}
	return one(TensorType{x.DType, out}), c.checkIndices(x.Shape[batch : batch+ix.Shape[ix.Rank()-1]]...)
}

func checkUpdates(u TensorType, want []int) error {
	if !u.Compatible(TensorType{u.DType, want}) {
		return fmt.Errorf("updates are %v, want the shape %s", u, shapeString(want))
	}
	return nil
}

func checkScatter(c *Infer) error {
	x, ix := c.T("data"), c.T("indices")
	axis, err := Axis(c.Int("axis", 0), x.Rank())
	if err != nil {
		return err
	}
	if err := checkUpdates(c.T("updates"), slices.Concat(x.Shape[:axis], ix.Shape, x.Shape[axis+1:])); err != nil {
		return err
	}
	return c.checkIndices(x.Shape[axis])
}

func checkScatterAlong(c *Infer) error {
	x, ix := c.T("data"), c.T("indices")
	axis, err := c.alongAxis(x, ix)
	if err != nil {
		return err
	}
	if err := checkUpdates(c.T("updates"), ix.Shape); err != nil {
		return err
	}
	return c.checkIndices(x.Shape[axis])
}

func checkScatterND(c *Infer) error {
	x, ix := c.T("data"), c.T("indices")
	want, err := NDShape(x.Shape, ix.Shape, 0)
	if err != nil {
		return err
	}
	if err := checkUpdates(c.T("updates"), want); err != nil {
		return err
	}
	return c.checkIndices(x.Shape[:ix.Shape[ix.Rank()-1]]...)
}
