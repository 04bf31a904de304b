package mil

import (
	"fmt"
	"strings"
	"testing"
)

// call makes an op from alternating parameter names and values; a TensorType
// is a run-time value, everything else a constant.
func call(kind string, args ...any) *Op {
	o := &Op{Kind: kind, Name: kind}
	for i := 0; i < len(args); i += 2 {
		var v *Value
		switch a := args[i+1].(type) {
		case TensorType:
			v = &Value{Name: args[i].(string), Type: a}
		case Const:
			v = Inline(a)
		case int:
			v = Inline(NewInts(Int32, nil, a))
		case []int:
			v = Inline(NewInts(Int32, []int{len(a)}, a...))
		case bool:
			v = Inline(NewBools(nil, a))
		case string:
			v = Inline(NewStr(a))
		case float64:
			v = Inline(NewFloats(Float32, nil, a))
		}
		if old := o.Ins(args[i].(string)); old != nil {
			o.Set(args[i].(string), append(old, v)...)
			continue
		}
		o.Set(args[i].(string), v)
	}
	return o
}

func TestInferCompute(t *testing.T) {
	f16 := func(s ...int) TensorType { return T(Float16, s...) }
	f32 := func(s ...int) TensorType { return T(Float32, s...) }
	i32 := func(s ...int) TensorType { return T(Int32, s...) }
	const u = Unknown
	half := NewFloats(Float16, []int{5, 3}, make([]float64, 15)...)
	for _, tt := range []struct {
		op    *Op
		opset Opset
		want  string // the types, or a part of the error
	}{
		{call("add", "x", f16(2, u, 1), "y", f16(u, 4)), 8, "tensor<fp16, [2, ?, 4]>"},
		{call("add", "x", f16(2, 3), "y", f16(4)), 8, "do not broadcast"},
		{call("less", "x", i32(u), "y", i32(1)), 8, "tensor<bool, [?]>"},
		{call("cast", "x", f16(u, 2), "dtype", "uint8"), 7, "tensor<uint8, [?, 2]>"},
		{call("cast", "x", f16(2), "dtype", "uint8"), 6, `cannot cast to "uint8"`},
		{call("clip", "x", f16(2), "alpha", 1.0, "beta", 1.0), 7, "must be below"},
		{call("clip", "x", f16(2), "alpha", 1.0, "beta", 1.0), 6, "tensor<fp16, [2]>"},
		{call("prelu", "x", f16(1, 3, 2, 2), "alpha", NewFloats(Float16, []int{2}, 1, 1)), 8, "3 channels"},
		{call("prelu", "x", f16(1, 2, 2), "alpha", NewFloats(Float16, []int{2}, 1, 2)), 8, "equal values"},
		{call("gelu", "x", f16(2), "mode", "FAST"), 8, `unknown mode "FAST"`},
		{call("softmax", "x", f16(2), "axis", 1), 8, "out of range"},

		{call("reduce_sum", "x", f16(2, u, 4), "axes", []int{-1, 0}), 8, "tensor<fp16, [?]>"},
		{call("reduce_max", "x", f16(2, u, 4), "axes", []int{1}, "keep_dims", true), 8, "tensor<fp16, [2, 1, 4]>"},
		{call("reduce_mean", "x", f16(2, u, 4)), 8, "tensor<fp16, []>"},
		{call("reduce_argmax", "x", f16(2, 7), "output_dtype", "uint16"), 7, "tensor<uint16, [2]>"},
		{call("topk", "x", f16(2, u), "k", 3), 8, "tensor<fp16, [2, 3]>, tensor<int32, [2, 3]>"},
		{call("topk", "x", f16(2, 2), "k", 3), 8, "out of range"},
		{call("topk", "x", f16(2, 5), "k", -1), 8, "tensor<fp16, [2, 5]>, tensor<int32, [2, 5]>"},
		{call("topk", "x", f16(2, 5), "k", 2, "return_indices", false), 8, "tensor<fp16, [2, 2]>"},
		{call("cumsum", "x", f16(2, 5), "axis", -2), 8, "out of range"},

		{call("linear", "x", f32(u, 3), "weight", half), 8, "tensor<fp32, [?, 5]>"},
		{call("linear", "x", f32(u, 4), "weight", half), 8, "last axis of x is 4"},
		{call("linear", "x", f32(2, 3), "weight", half, "bias", NewFloats(Float16, []int{1}, 0)), 8, "want 5 elements"},
		{call("matmul", "x", f32(2, 1, u, 3), "y", f32(4, 3, 7)), 8, "tensor<fp32, [2, 4, ?, 7]>"},
		{call("matmul", "x", f32(3), "y", f32(4, 3, 7)), 8, "tensor<fp32, [4, 7]>"},
		{call("matmul", "x", f32(3), "y", f32(3)), 8, "tensor<fp32, []>"},
		{call("matmul", "x", f32(4, 7, 3), "y", f32(3)), 8, "tensor<fp32, [4, 7]>"},
		{call("matmul", "x", f32(3, 2), "y", f32(7, 3), "transpose_x", true, "transpose_y", true), 8, "tensor<fp32, [2, 7]>"},
		{call("matmul", "x", half, "y", f32(3, 2)), 8, "tensor<fp32, [5, 2]>"},
		{call("matmul", "x", f16(5, 3), "y", f32(3, 2)), 8, "exactly one is a constant"},
		{call("matmul", "x", f32(3), "y", f32(3, 2), "transpose_x", true), 8, "cannot multiply"},
		{call("einsum", "values", f32(1, 5, 1, 3), "values", f32(2, 3, 4, u), "equation", "abcd,adce->abce"), 8, "tensor<fp32, [2, 5, 4, ?]>"},
		{call("einsum", "values", f32(5, 3), "values", f32(3, 4), "equation", "ab,bc->ac"), 8, "not supported"},
		{call("scaled_dot_product_attention", "query", f16(2, u, 8), "key", f16(2, 5, 8), "value", f16(2, 5, 4), "attn_mask", T(Bool, 1, 5)), 8, "tensor<fp16, [2, ?, 4]>"},
		{call("scaled_dot_product_attention", "query", f16(2, 3, 8), "key", f16(1, 5, 8), "value", f16(2, 5, 4)), 8, "batch axis 0"},

		{call("layer_norm", "x", f16(u, 3), "axes", []int{-1}, "gamma", NewFloats(Float16, []int{3}, 1, 1, 1)), 8, "tensor<fp16, [?, 3]>"},
		{call("layer_norm", "x", f16(2, 4), "axes", []int{-1}, "beta", NewFloats(Float16, []int{3}, 1, 1, 1)), 8, "beta is"},
		{call("l2_norm", "x", f16(2, 4)), 8, "at least 3"},

		{call("conv", "x", f32(1, 4, u, 9), "weight", f32(6, 2, 3, 3), "groups", 2, "strides", []int{2, 2}, "pad_type", "custom", "pad", []int{1, 0, 0, 1}), 8, "tensor<fp32, [1, 6, ?, 4]>"},
		{call("conv", "x", f32(1, 4, 9), "weight", f32(6, 4, 4), "pad_type", "same", "strides", []int{2}), 8, "tensor<fp32, [1, 6, 5]>"},
		{call("conv", "x", f32(1, 4, 9), "weight", f32(6, 4, 4), "pad_type", "same_lower"), 5, "needs CoreML6"},
		{call("conv", "x", f32(1, 4, 9), "weight", f32(6, 3, 4)), 8, "takes 3"},
		{call("conv", "x", f32(1, 4, 3), "weight", f32(6, 4, 4)), 8, "exceeds padded size"},
		{call("conv_transpose", "x", f32(1, 4, 5), "weight", f32(4, 3, 4), "strides", []int{2}), 8, "tensor<fp32, [1, 3, 12]>"},
		{call("conv_transpose", "x", f32(1, 4, 5), "weight", f32(4, 3, 4), "strides", []int{2}, "pad_type", "same"), 8, "tensor<fp32, [1, 3, 10]>"},
		{call("conv_transpose", "x", f32(1, 4, 5), "weight", f32(4, 3, 4), "output_shape", []int{1, 3, 9}), 8, "tensor<fp32, [1, 3, 9]>"},
		{call("max_pool", "x", f32(1, 4, 6), "kernel_sizes", []int{3}, "strides", []int{2}, "pad_type", "valid", "ceil_mode", true), 8, "tensor<fp32, [1, 4, 3]>"},
		{call("max_pool", "x", f32(1, 4, 6), "kernel_sizes", []int{3}, "strides", []int{2}, "pad_type", "valid"), 8, "tensor<fp32, [1, 4, 2]>"},

		{call("quantize", "input", f32(2, 3), "scale", 0.5, "output_dtype", "int8"), 8, "tensor<int8, [2, 3]>"},
		{call("quantize", "input", f32(2, 3), "scale", NewFloats(Float32, []int{2}, 1, 1), "axis", 1, "output_dtype", "int8"), 8, "want 3 elements"},
		{call("dequantize", "input", T(UInt8, 2, u), "scale", NewFloats(Float16, nil, 1)), 8, "tensor<fp16, [2, ?]>"},
	} {
		types, err := InferTypes(tt.op, tt.opset)
		var parts []string
		for _, ty := range types {
			parts = append(parts, ty.String())
		}
		got := strings.Join(parts, ", ")
		if err != nil {
			if got = err.Error(); !strings.Contains(got, tt.want) {
				t.Errorf("%s in %v: %v, want %s", tt.op.Kind, tt.opset, err, tt.want)
			}
			continue
		}
		if got != tt.want {
			t.Errorf("%s in %v: got %s, want %s", tt.op.Kind, tt.opset, got, tt.want)
		}
	}
}

// The type of a default decides whether a loader accepts the op, and in fp16
// whether a tiny epsilon exists at all.
func TestDefaults(t *testing.T) {
	x := T(Float16, 2, 3, 4)
	gamma := NewFloats(Float32, []int{4}, 1, 1, 1, 1)
	for _, tt := range []struct {
		op    *Op
		opset Opset
		param string
		want  string
	}{
		{call("rsqrt", "x", x), 8, "epsilon", "tensor<fp16, []> [0]"},
		{call("rsqrt", "x", T(Float32, 2)), 8, "epsilon", "tensor<fp32, []> [9.999999960041972e-13]"},
		{call("layer_norm", "x", x), 6, "epsilon", "tensor<fp16, []> [1.0013580322265625e-05]"},
		{call("layer_norm", "x", x), 8, "epsilon", "tensor<fp32, []> [9.999999747378752e-06]"},
		{call("layer_norm", "x", x, "gamma", NewFloats(Float16, []int{4}, 1, 1, 1, 1)), 8, "epsilon", "tensor<fp16, []> [1.0013580322265625e-05]"},
		{call("layer_norm", "x", x, "gamma", gamma), 8, "axes", "tensor<int32, [3]> [0 1 2]"},
		{call("linear", "x", x, "weight", NewFloats(Float32, []int{2, 1}, 1, 1)), 8, "bias", "tensor<fp32, [2]> [0 0]"},
		{call("conv", "x", x), 8, "pad", "tensor<int32, [2]> [0 0]"},
		{call("topk", "x", x), 5, "sort", "<nil>"},
		{call("topk", "x", x, "return_indices", false), 8, "output_indices_dtype", "<nil>"},
	} {
		c, err := NewInfer(tt.op, tt.opset)
		if err != nil {
			t.Fatal(err)
		}
		got := "<nil>"
		if k := c.Const(tt.param); k != nil {
			v, err := ConstFloats(k)
			if err != nil {
				t.Fatal(err)
			}
			got = fmt.Sprint(k.Type(), " ", v)
		}
		if got != tt.want {
			t.Errorf("%s of %s in %v: got %s, want %s", tt.param, tt.op.Kind, tt.opset, got, tt.want)
		}
	}
}

func TestLeftOutIsNotInTable(t *testing.T) {
	for kind := range leftOut {
		if _, ok := Spec(kind); ok {
			t.Errorf("%s is listed as left out, but has an entry", kind)
		}
		_, err := InferTypes(&Op{Kind: kind}, CoreML8)
		if err == nil || !strings.Contains(err.Error(), kind+" is not supported") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
