package mil

// emission flags forms that are legal but must not be written: the loader of
// coremltools refuses or changes them, or they lose information at run time.
func (v *verifier) emission(o *Op) {
	shape := func(param string) []int {
		t, _ := tensorOf(o.In(param))
		return t.Shape
	}
	switch o.Kind {
	case "matmul":
		if len(shape("x")) == 1 && len(shape("y")) == 1 {
			v.report("loader", true, "", "a product of two vectors cannot be loaded by coremltools (expand one to a matrix)")
		}
	case "layer_norm":
		if o.In("beta") != nil && o.In("gamma") == nil {
			v.report("loader", true, "beta", "without gamma it cannot be loaded by coremltools (bind a gamma of ones)")
		}
	case "slice_by_index", "slice_update":
		v.bounds(o, "begin", "begin_mask")
		v.bounds(o, "end", "end_mask")
	case "slice_by_size":
		v.bounds(o, "begin", "")
	case "topk":
		v.indexWidth(o, "axis", "output_indices_dtype")
	case "reduce_argmax", "reduce_argmin":
		v.indexWidth(o, "axis", "output_dtype")
	}
}

// bounds wants non-negative constants: type inference of coremltools rewrites
// negative ones in place and refuses some of the results later.
func (v *verifier) bounds(o *Op, param, maskParam string) {
	at := constInts(o.In(param))
	mask := constInts(o.In(maskParam))
	for i, x := range at {
		if x < 0 && !(i < len(mask) && mask[i] != 0) {
			v.report("loader", true, param, "element %d is negative, which coremltools rewrites at load (use a non-negative bound or a mask)", i)
		}
	}
}

func constInts(x *Value) []int {
	if x == nil || x.Const == nil {
		return nil
	}
	v, err := ConstInts(x.Const)
	if err != nil {
		return nil
	}
	return v
}

// indexWidth refuses uint16 indices into an axis they cannot number.
func (v *verifier) indexWidth(o *Op, axisParam, dtypeParam string) {
	d := o.In(dtypeParam)
	x, ok := tensorOf(o.In("x"))
	if d == nil || d.Const == nil || !ok {
		return
	}
	if s, err := ConstString(d.Const); err != nil || s != "uint16" {
		return
	}
	axis := x.Rank() - 1
	if a := constInts(o.In(axisParam)); len(a) == 1 {
		axis = a[0]
	}
	if axis, err := Axis(axis, x.Rank()); err == nil && x.Shape[axis] > 1<<16 {
		v.report("index-width", true, dtypeParam, "uint16 cannot number the %d entries of axis %d (use int32)", x.Shape[axis], axis)
	}
}
