package decompress

import (
	"math"
	"testing"

	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil"
)

// The forms that coremltools writes have a matrix, whose numbers are those
// that reads give.
func TestMatrix(t *testing.T) {
	const n, k = 48, 64
	f := func(shape ...int) *mil.Literal { return randomFloats(mil.Float16, shape...) }
	ints := func(d mil.DType, shape ...int) *mil.Literal { return randomInts(d, shape...) }
	shift := "constexpr_blockwise_shift_scale"
	lut := "constexpr_lut_to_dense"
	axis := mil.NewInts(mil.Int32, nil, 0)
	for name, v := range map[string]*mil.Value{
		"int8 tensor":    apply(shift, 1, "data", ints(mil.Int8, n, k), "scale", f(1, 1))[0],
		"int8 channel":   apply(shift, 1, "data", ints(mil.Int8, n, k), "scale", f(n, 1))[0],
		"uint8 block":    apply(shift, 1, "data", ints(mil.UInt8, n, k), "scale", f(n, 4), "offset", ints(mil.UInt8, n, 4))[0],
		"int4 block":     apply(shift, 1, "data", ints(mil.Int4, n, k), "scale", f(n, 2))[0],
		"uint4 block":    apply(shift, 1, "data", ints(mil.UInt4, n, k), "scale", f(n, 4), "offset", ints(mil.UInt4, n, 4))[0],
		"blocks of rows": apply(shift, 1, "data", ints(mil.Int4, n, k), "scale", f(6, 2))[0],
		"rank 4":         apply(shift, 1, "data", ints(mil.Int8, n, k, 1, 1), "scale", f(n, 1, 1, 1))[0],
		"float32 scale":  apply(shift, 1, "data", ints(mil.Int4, n, k), "scale", randomFloats(mil.Float32, n, 2))[0],
		"affine":         apply("constexpr_affine_dequantize", 1, "quantized_data", ints(mil.UInt8, n, k), "scale", f(n), "zero_point", ints(mil.UInt8, n), "axis", axis)[0],
		"affine scalar":  apply("constexpr_affine_dequantize", 1, "quantized_data", ints(mil.Int8, n, k), "scale", f(), "zero_point", ints(mil.Int8), "axis", axis)[0],
		"lut tensor":     apply(lut, 1, "indices", ints(mil.UInt6, n, k), "lut", f(1, 1, 64, 1))[0],
		"lut groups":     apply(lut, 1, "indices", ints(mil.UInt4, n, k), "lut", f(6, 1, 16, 1))[0],
		"lut vectors":    apply(lut, 1, "indices", ints(mil.UInt3, n, k), "lut", f(1, 1, 8, 2), "vector_axis", axis)[0],
		"lut CoreML6":    apply(lut, 1, "indices", ints(mil.UInt8, n*k/4), "lut", f(4), "shape", mil.NewInts(mil.UInt32, []int{2}, n, k))[0],
		"quantized lut": apply(lut, 1, "indices", ints(mil.UInt4, n, k), "lut",
			apply(shift, 1, "data", ints(mil.Int8, 1, 1, 16, 1), "scale", f(1, 1, 1, 1))[0])[0],
	} {
		for _, o := range []Options{{}, {Exact: true}} {
			w, err := Of(v, o)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			m := w.Matrix()
			if m == nil {
				t.Fatalf("%s: no matrix", name)
			}
			all, got := w.All(), make([]float32, w.Len())
			m.Rows(got, 0, m.N)
			for i := range got {
				if math.Float32bits(got[i]) != math.Float32bits(all[i]) {
					t.Fatalf("%s %+v: element %d is %v, want %v", name, o, i, got[i], all[i])
				}
			}
		}
	}
}

// What kernels do not know has no matrix, and is none the worse for it.
func TestNoMatrix(t *testing.T) {
	f := func(shape ...int) *mil.Literal { return randomFloats(mil.Float16, shape...) }
	for name, v := range map[string]*mil.Value{
		"plain":           mil.Inline(f(4, 32)),
		"halves as data":  apply("constexpr_blockwise_shift_scale", 1, "data", f(4, 32), "scale", f(4, 1))[0],
		"uneven offsets":  apply("constexpr_blockwise_shift_scale", 1, "data", randomInts(mil.Int8, 4, 32), "scale", f(4, 1), "offset", mil.NewFloats(mil.Float16, []int{4, 1}, .3, 1, 2, 3))[0],
		"columns of lut":  apply("constexpr_lut_to_dense", 1, "indices", randomInts(mil.UInt4, 4, 32), "lut", f(1, 4, 16, 1))[0],
		"vectors in rows": apply("constexpr_lut_to_dense", 1, "indices", randomInts(mil.UInt4, 4, 32), "lut", f(1, 1, 16, 2), "vector_axis", mil.NewInts(mil.Int32, nil, 1))[0],
	} {
		w, err := Of(v, Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if m := w.Matrix(); m != nil {
			t.Errorf("%s: %+v", name, *m)
		}
	}
}

// Scales are read where they lie: a matrix takes no memory of its own.
func TestMatrixReadsInPlace(t *testing.T) {
	scale := randomFloats(mil.Float16, 48, 4)
	v := apply("constexpr_blockwise_shift_scale", 1, "data", randomInts(mil.Int4, 48, 64), "scale", scale)[0]
	w, err := Of(v, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var none kernel.Numbers
	m := w.Matrix()
	if m == nil || m.Scale.F32 != nil || m.Offset.Len() != none.Len() {
		t.Fatalf("%+v", m)
	}
	m.Scale.F16[0] ^= 1 << 15
	if scale.Data[1]>>7 == 0 != (m.Scale.F16[0]>>15 == 0) {
		t.Errorf("the scales were copied")
	}
}
