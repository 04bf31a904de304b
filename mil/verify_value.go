package mil

import (
	"fmt"
	"strings"
)

// trimOp drops the op's own name from an inference error: the finding already
// has it.
func trimOp(err error, o *Op) string {
	return strings.TrimPrefix(err.Error(), fmt.Sprintf("mil: %s %q: ", o.Kind, o.Name))
}

// constOp checks a const: one output that carries the contents.
func (v *verifier) constOp(o *Op) {
	defer v.defineAll(o)
	if len(o.Args) > 0 || len(o.Blocks) > 0 {
		v.report("param", false, "", "a const has no inputs: its contents are the Const of its output")
	}
	if len(o.Outputs) != 1 {
		v.report("structure", false, "", "a const has one output, not %d", len(o.Outputs))
		return
	}
	x := o.Outputs[0]
	if x.Const == nil {
		v.report("structure", false, x.Name, "the const has no contents")
		return
	}
	v.contents(x)
}

// storable is the set of element types that a constant can have in the
// opset's files and that an op can read.
func storable(o Opset) Domain {
	d := Dom(Bool, String, Float16, Float32, Int32, UInt8, Int8, UInt32)
	if o >= CoreML6 {
		d |= Dom(Int16, UInt16)
	}
	if o >= CoreML8 {
		d |= Dom(Int4, UInt1, UInt2, UInt3, UInt4, UInt6)
	}
	return d
}

// contents checks the constant behind x against its declared type.
func (v *verifier) contents(x *Value) {
	t := x.Const.Type()
	if u, ok := x.Type.(TensorType); !ok || !u.Equal(t) {
		v.report("type", false, x.Name, "declared %v, but the constant is %v", x.Type, t)
	}
	if d := storable(v.fn.Opset); !d.Has(t.DType) {
		v.report("const-dtype", true, x.Name, "constants are one of %v in %v, not %v", d, v.fn.Opset, t.DType)
	}
	for _, d := range t.Shape {
		if d < 0 {
			v.report("type", false, x.Name, "the constant %v has no fixed shape", t)
			return
		}
	}
	if !sizeOK(t) {
		v.report("type", false, x.Name, "the size of the constant %v overflows", t)
		return
	}
	l, isLiteral := x.Const.(*Literal)
	switch {
	case t.DType == String:
		if !isLiteral || len(l.Strs) != t.NumElements() {
			v.report("contents", false, x.Name, "the constant %v does not hold %d strings", t, t.NumElements())
		}
	default:
		if r, ok := x.Const.(RawConst); ok && int64(len(r.Raw())) != t.NumBytes() {
			v.report("contents", false, x.Name, "the constant %v has %d bytes, want %d", t, len(r.Raw()), t.NumBytes())
		}
	}
}

// sizeOK reports whether the number of bits fits an int64.
func sizeOK(t TensorType) bool {
	n := int64(max(t.DType.Bits(), 1))
	for _, d := range t.Shape {
		if d == 0 {
			return true
		}
		if n > (1<<62)/int64(d) {
			return false
		}
		n *= int64(d)
	}
	return true
}

// state checks a state input.
func (v *verifier) state(x *Value, t StateType) {
	if v.fn.Opset < CoreML8 {
		v.report("state", false, x.Name, "states need CoreML8, the function has %v", v.fn.Opset)
	}
	switch d := t.Tensor.DType; {
	case d == Float16, d == Float32 && v.draft:
	default:
		v.report("state", d == Int8, x.Name, "a state must be fp16, not %v", d)
	}
	if t.Tensor.NumElements() < 0 {
		v.report("state", false, x.Name, "the state %v must have a fixed shape", t.Tensor)
	}
	if t.Tensor.Rank() == 0 {
		v.report("state", true, x.Name, "a state of rank 0 is not supported (use shape [1])")
	}
}

// stateUses checks writes, and warns of states that nothing reads.
func (v *verifier) stateUses(f *Function) {
	f.Body.Walk(func(o *Op) {
		if o.Kind != "write_state" {
			return
		}
		v.op = o
		in, data := o.In("input"), o.In("data")
		if in == nil || data == nil {
			return
		}
		st, ok := in.Type.(StateType)
		if dt, isTensor := data.Type.(TensorType); ok && (!isTensor || !dt.Compatible(st.Tensor)) {
			v.report("state", false, "data", "%s is %v, but the state %s holds %v", data.Name, data.Type, in.Name, st.Tensor)
		}
	})
	v.op = nil
	for _, x := range f.Inputs {
		if v.uses[x] == nil {
			v.warn("unused", x.Name, "the input is never used")
		}
	}
}
