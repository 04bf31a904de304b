package mil

import (
	"fmt"
	"strings"
	"testing"
)

func TestInferMovement(t *testing.T) {
	f16 := func(s ...int) TensorType { return T(Float16, s...) }
	i32 := func(s ...int) TensorType { return T(Int32, s...) }
	const u = Unknown
	ints := func(shape []int, v ...int) Const { return NewInts(Int32, shape, v...) }
	x := f16(2, u, 4)
	for _, tt := range []struct {
		op    *Op
		opset Opset
		want  string // the types, or a part of the error
	}{
		{call("reshape", "x", x, "shape", i32(3)), 8, "tensor<fp16, [?, ?, ?]>"},
		{call("reshape", "x", x, "shape", i32(u)), 8, "known length"},
		{call("reshape", "x", f16(6), "shape", []int{4, 2}), 8, "cannot reshape"},
		{call("reshape_like", "x", f16(24), "ref_tensors", f16(2, 3, 4), "ref_tensors", f16(9, 4),
			"begins", 0, "begins", 1, "ends", 2, "ends", 0, "end_masks", false, "end_masks", true), 8, "tensor<fp16, [2, 3, 4]>"},
		{call("reshape_like", "x", f16(24), "ref_tensors", f16(2, 3), "begins", 0, "ends", 2, "end_masks", false), 8, "cannot reshape"},
		{call("expand_dims", "x", x, "axes", []int{-1, 0}), 8, "tensor<fp16, [1, 2, ?, 4, 1]>"},
		{call("expand_dims", "x", f16(), "axes", []int{0}), 8, "tensor<fp16, [1]>"},
		{call("expand_dims", "x", x, "axes", []int{5}), 8, "out of range"},
		{call("squeeze", "x", f16(1, u, 1, 3)), 8, "tensor<fp16, [?, 3]>"},
		{call("squeeze", "x", f16(1, u, 1, 3), "axes", []int{0, 1}), 8, "tensor<fp16, [?, 1, 3]>"},
		{call("transpose", "x", x, "perm", []int{-1, 0, 1}), 8, "tensor<fp16, [4, 2, ?]>"},
		{call("transpose", "x", x, "perm", []int{0, 0, 1}), 8, "repeats axis 0"},
		{call("flatten2d", "x", f16(3), "axis", 1), 8, "tensor<fp16, [3, 1]>"},
		{call("flatten2d", "x", f16(2, u, 4), "axis", -1), 8, "tensor<fp16, [?, 4]>"},
		{call("concat", "values", x, "values", f16(2, 3, 4), "axis", -2), 8, "tensor<fp16, [2, ?, 4]>"},
		{call("concat", "values", f16(2, 1), "values", f16(2, 3), "axis", 1), 8, "tensor<fp16, [2, 4]>"},
		{call("concat", "values", f16(2, 1), "values", f16(2, 3), "axis", 1, "interleave", true), 8, "does not fit"},
		{call("concat", "values", i32(), "values", i32(), "axis", 0), 8, "tensor<int32, [2]>"},
		{call("concat", "values", f16(2), "values", i32(2), "axis", 0), 8, "same element type"},
		{call("stack", "values", x, "values", f16(2, 3, 4), "axis", -1), 8, "tensor<fp16, [2, 3, 4, 2]>"},
		{call("split", "x", f16(2, 6), "num_splits", 3, "axis", 1), 8, "tensor<fp16, [2, 2]>, tensor<fp16, [2, 2]>, tensor<fp16, [2, 2]>"},
		{call("split", "x", f16(2, 6), "split_sizes", []int{1, 5}, "axis", -1), 8, "tensor<fp16, [2, 1]>, tensor<fp16, [2, 5]>"},
		{call("split", "x", f16(2, 6), "split_sizes", []int{1, 4}, "axis", -1), 8, "do not add up to 6"},
		{call("split", "x", f16(2, 7), "num_splits", 3, "axis", 1), 8, "3 equal parts"},
		{call("tile", "x", x, "reps", []int{2, 3, 1}), 8, "tensor<fp16, [4, ?, 4]>"},
		{call("tile", "x", x, "reps", i32(3)), 8, "tensor<fp16, [?, ?, ?]>"},
		{call("tile", "x", f16(2), "reps", []int{0}), 8, "below 1"},
		{call("pad", "x", f16(2, 3), "pad", []int{1, 2}), 8, "tensor<fp16, [2, 6]>"},
		{call("pad", "x", f16(2, 3), "pad", i32(4)), 8, "tensor<fp16, [?, ?]>"},
		{call("pad", "x", f16(2, 3), "pad", i32(2)), 8, "not a constant"},
		{call("pad", "x", f16(2, 3), "pad", []int{0, 0}, "mode", "wrap"), 8, `mode is "wrap"`},
		{call("reverse", "x", x, "axes", []int{3}), 8, "out of range"},
		{call("reverse_sequence", "x", f16(4, 3), "lengths", i32(3), "batch_axis", 1), 8, "tensor<fp16, [4, 3]>"},
		{call("reverse_sequence", "x", f16(4, 3), "lengths", i32(3)), 8, "one for each of the 4"},
		{call("sliding_windows", "x", f16(2, 7), "axis", 1, "size", 3, "stride", 2), 8, "tensor<fp16, [2, 3, 3]>"},
		{call("sliding_windows", "x", f16(2, 7), "axis", 1, "size", 8), 8, "do not fit"},

		{call("crop", "x", f16(1, 1, 4, 5), "crop_height", []int{0, 1}, "crop_width", []int{2, 1}), 8, "tensor<fp16, [1, 1, 3, 2]>"},
		{call("crop", "x", f16(1, 1, 4, 5), "crop_height", []int{3, 2}, "crop_width", []int{0, 0}), 8, "cannot crop"},
		{call("pixel_shuffle", "x", f16(u, 8, 2, 3), "upscale_factor", 2), 8, "tensor<fp16, [?, 2, 4, 6]>"},
		{call("pixel_shuffle", "x", f16(1, 6, 2, 3), "upscale_factor", 2), 8, "not a multiple"},
		{call("space_to_depth", "x", f16(1, 2, 4, u), "block_size", 2), 8, "tensor<fp16, [1, 8, 2, ?]>"},
		{call("space_to_batch", "x", f16(2, 3, 4, 4), "block_shape", []int{2, 3}, "paddings", ints([]int{2, 2}, 0, 0, 1, 1)), 8, "tensor<fp16, [12, 3, 2, 2]>"},
		{call("batch_to_space", "x", f16(12, 3, 2, 2), "block_shape", []int{2, 3}, "crops", ints([]int{2, 2}, 0, 0, 1, 1)), 8, "tensor<fp16, [2, 3, 4, 4]>"},
		{call("batch_to_space", "x", f16(7, 3, 2, 2), "block_shape", []int{2, 3}, "crops", ints([]int{2, 2}, 0, 0, 1, 1)), 8, "not a multiple"},

		{call("shape", "x", x), 8, "tensor<int32, [3]>"},
		{call("fill", "shape", []int{2, 0}), 8, "tensor<fp32, [2, 0]>"},
		{call("fill", "shape", i32(2), "value", 3), 8, "tensor<int32, [?, ?]>"},
		{call("fill_like", "ref_tensor", x, "value", true), 8, "tensor<bool, [2, ?, 4]>"},
		{call("range_1d", "start", 0, "end", 7, "step", 2), 8, "tensor<int32, [4]>"},
		{call("range_1d", "start", 5, "end", 0, "step", 2), 8, "tensor<int32, [0]>"},
		{call("range_1d", "start", 0, "end", i32(), "step", 2), 8, "tensor<int32, [?]>"},
		{call("range_1d", "start", 0, "end", 7, "step", 0), 8, "has no end"},
		{call("one_hot", "indices", i32(2, 3), "one_hot_vector_size", 5, "axis", 1), 8, "tensor<int32, [2, 5, 3]>"},
		{call("one_hot", "indices", i32(2), "one_hot_vector_size", i32(), "off_value", 0.5), 8, "tensor<fp32, [2, ?]>"},
		{call("non_zero", "x", x), 8, "tensor<int32, [?, 3]>"},
		{call("select", "cond", T(Bool, 2, 3), "a", f16(), "b", f16(1, 3)), 8, "tensor<fp16, [2, 3]>"},

		{call("slice_by_index", "x", x, "begin", []int{0, 1, -1}, "end", []int{2, 3, 0}, "end_mask", NewBools([]int{3}, false, true, true),
			"squeeze_mask", NewBools([]int{3}, true, false, false)), 8, "tensor<fp16, [?, 1]>"},
		{call("slice_by_index", "x", f16(5, 6), "begin", i32(2), "end", i32(2), "squeeze_mask", NewBools([]int{2}, true, false)), 8, "tensor<fp16, [?]>"},
		{call("slice_by_size", "x", f16(5, 6), "begin", i32(2), "size", []int{2, -1}), 8, "tensor<fp16, [2, ?]>"},
		{call("slice_by_size", "x", f16(5, 6), "begin", []int{0, 4}, "size", []int{2, 3}), 8, "do not lie inside"},
		{call("slice_update", "x", f16(5, 6), "update", f16(2, 6), "begin", i32(2), "end", i32(2)), 8, "tensor<fp16, [5, 6]>"},
		{call("slice_update", "x", f16(5, 6), "update", f16(2, 5), "begin", []int{0, 0}, "end", []int{2, 6}), 8, "the slice is"},
		{call("slice_update", "x", f16(5), "update", f16(), "begin", []int{2}, "end", []int{0}, "squeeze_mask", NewBools([]int{1}, true)), 8, "scalar"},

		{call("gather", "x", f16(7, 4), "indices", i32(2, u)), 8, "tensor<fp16, [2, ?, 4]>"},
		{call("gather", "x", f16(2, 7, 4), "indices", i32(2, 3), "axis", 1, "batch_dims", 1), 8, "tensor<fp16, [2, 3, 4]>"},
		{call("gather", "x", f16(2, 7, 4), "indices", i32(3, 3), "axis", 1, "batch_dims", 1), 8, "differ in batch axis 0"},
		{call("gather", "x", f16(7), "indices", 7, "validate_indices", true), 8, "index 7 is out of range for size 7"},
		{call("gather", "x", f16(7), "indices", T(Int8, 2)), 6, "needs CoreML7"},
		{call("gather_along_axis", "x", f16(2, 7), "indices", i32(2, 3), "axis", -1), 8, "tensor<fp16, [2, 3]>"},
		{call("gather_along_axis", "x", f16(2, 7), "indices", i32(3, 3), "axis", -1), 8, "differ in axis 0"},
		{call("gather_nd", "x", f16(2, 7, 4), "indices", i32(5, 2)), 8, "tensor<fp16, [5, 4]>"},
		{call("gather_nd", "x", f16(2, 7, 4), "indices", i32(2, 5, 1), "batch_dims", 1), 8, "tensor<fp16, [2, 5, 4]>"},
		{call("gather_nd", "x", f16(2), "indices", i32(5, 2)), 8, "do not fit"},
		{call("scatter", "data", f16(5, 4), "indices", i32(2), "updates", f16(2, 4)), 8, "tensor<fp16, [5, 4]>"},
		{call("scatter", "data", f16(5, 4), "indices", i32(2), "updates", f16(2, 4), "mode", "set"), 8, `mode is "set"`},
		{call("scatter_along_axis", "data", f16(5, 4), "indices", i32(2, 4), "updates", f16(3, 4)), 8, "want the shape [2, 4]"},
		{call("scatter_nd", "data", f16(5, 4), "indices", i32(3, 1), "updates", f16(3, 4), "mode", "update"), 8, "tensor<fp16, [5, 4]>"},
	} {
		ts, err := InferTypes(tt.op, tt.opset)
		got := make([]string, len(ts))
		for i, x := range ts {
			got[i] = x.String()
		}
		if s := strings.Join(got, ", "); err == nil && s != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s in %v: got %s, %v, want %s", describe(tt.op), tt.opset, s, err, tt.want)
		}
	}
}

func describe(o *Op) string {
	s := o.Kind + "("
	for _, a := range o.Args {
		for _, v := range a.Values {
			s += fmt.Sprintf("%s: %v, ", a.Param, v.Type)
		}
	}
	return s + ")"
}

func TestInferConstexpr(t *testing.T) {
	q := func(d DType, shape ...int) Const { return NewInts(d, shape, make([]int, Volume(shape))...) }
	f := func(shape ...int) Const { return NewFloats(Float16, shape, make([]float64, Volume(shape))...) }
	shape := NewInts(UInt32, []int{2}, 3, 5)
	mask := NewInts(UInt1, []int{2, 3}, 1, 0, 1, 1, 0, 0)
	for _, tt := range []struct {
		op    *Op
		opset Opset
		want  string
	}{
		{call("constexpr_affine_dequantize", "quantized_data", q(Int8, 4, 6), "zero_point", q(Int8), "scale", f(6), "axis", -1), 6, "tensor<fp16, [4, 6]>"},
		{call("constexpr_affine_dequantize", "quantized_data", q(Int8, 4, 6), "zero_point", q(Int8), "scale", f(4), "axis", -1), 6, "want a scalar or 6"},
		{call("constexpr_blockwise_shift_scale", "data", q(Int4, 4, 6), "scale", f(4, 2)), 8, "tensor<fp16, [4, 6]>"},
		{call("constexpr_blockwise_shift_scale", "data", q(Int4, 4, 6), "scale", f(4, 4)), 8, "4 blocks do not divide axis 1"},
		{call("constexpr_blockwise_shift_scale", "data", q(Int4, 4, 6), "scale", f(4, 2), "offset", q(Int8, 4, 2)), 8, "offset is"},
		{call("constexpr_lut_to_dense", "indices", q(UInt8, 4), "lut", f(4), "shape", shape), 7, "tensor<fp16, [3, 5]>"},
		{call("constexpr_lut_to_dense", "indices", q(UInt8, 3), "lut", f(4), "shape", shape), 7, "want 4 bytes"},
		{call("constexpr_lut_to_dense", "indices", q(UInt8, 4), "lut", f(4), "shape", shape), 8, "no place in CoreML8"},
		{call("constexpr_lut_to_dense", "indices", q(UInt3, 4, 6), "lut", f(2, 1, 8, 1)), 8, "tensor<fp16, [4, 6]>"},
		{call("constexpr_lut_to_dense", "indices", q(UInt3, 4, 6), "lut", f(2, 1, 8, 2), "vector_axis", -1), 8, "tensor<fp16, [4, 12]>"},
		{call("constexpr_lut_to_dense", "indices", q(UInt3, 4, 6), "lut", f(2, 1, 8, 2)), 8, "need vector_axis"},
		{call("constexpr_lut_to_dense", "indices", q(UInt3, 4, 6), "lut", f(2, 1, 4, 1)), 8, "uint3 indices want 8"},
		{call("constexpr_sparse_to_dense", "nonzero_data", f(3), "mask", mask), 8, "tensor<fp16, [2, 3]>"},
		{call("constexpr_sparse_to_dense", "nonzero_data", f(2), "mask", mask), 8, "marks 3 positions"},
		{call("constexpr_sparse_to_dense", "nonzero_data", f(0), "mask", q(UInt8, 2), "shape", shape), 6, "tensor<fp16, [3, 5]>"},
		{call("constexpr_cast", "source_val", f(3), "output_dtype", "fp32"), 8, "tensor<fp32, [3]>"},
		{call("constexpr_cast", "source_val", f(3), "output_dtype", "fp16"), 8, "want fp32"},
		{call("constexpr_lut_to_sparse", "indices_mask", mask, "indices_nonzero_data", q(UInt1, 3), "lut", f(1, 1, 2, 4), "vector_axis", 0), 8,
			"tensor<uint1, [8, 3]>, tensor<fp16, [12]>"},
		{call("constexpr_sparse_blockwise_shift_scale", "data_mask", mask, "nonzero_data", q(Int8, 3), "scale", f(2, 1)), 8,
			"tensor<uint1, [2, 3]>, tensor<fp16, [3]>"},
	} {
		ts, err := InferTypes(tt.op, tt.opset)
		got := make([]string, len(ts))
		for i, x := range ts {
			got[i] = x.String()
		}
		if s := strings.Join(got, ", "); err == nil && s != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s in %v: got %s, %v, want %s", describe(tt.op), tt.opset, s, err, tt.want)
		}
	}
}
