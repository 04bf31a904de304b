package runtime

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/smelt-go/smelt/mil"
)

// compressedWeights makes n×k matrices in the forms that compression tools
// write.
func compressedWeights(r *rand.Rand, n, k int) map[string]func(b *mil.Builder) *mil.Value {
	ints := func(d mil.DType, shape ...int) mil.Const {
		v := make([]int, mil.Volume(shape))
		for i := range v {
			v[i] = r.IntN(1 << d.Bits())
			if d.IsSigned() {
				v[i] -= 1 << (d.Bits() - 1)
			}
		}
		return mil.NewInts(d, shape, v...)
	}
	floats := func(d mil.DType, shape ...int) mil.Const {
		v := make([]float64, mil.Volume(shape))
		for i := range v {
			v[i] = r.NormFloat64() / 100
		}
		return mil.NewFloats(d, shape, v...)
	}
	op := func(kind string, args mil.Args) func(b *mil.Builder) *mil.Value {
		return func(b *mil.Builder) *mil.Value { return b.Op(kind, "w", args) }
	}
	shift, lut := "constexpr_blockwise_shift_scale", "constexpr_lut_to_dense"
	h := mil.Float16
	return map[string]func(b *mil.Builder) *mil.Value{
		"int8 tensor":   op(shift, mil.Args{"data": ints(mil.Int8, n, k), "scale": floats(h, 1, 1)}),
		"int8 channel":  op(shift, mil.Args{"data": ints(mil.Int8, n, k), "scale": floats(h, n, 1)}),
		"int4 block":    op(shift, mil.Args{"data": ints(mil.Int4, n, k), "scale": floats(h, n, k/32)}),
		"uint4 offsets": op(shift, mil.Args{"data": ints(mil.UInt4, n, k), "scale": floats(h, n, k/16), "offset": ints(mil.UInt4, n, k/16)}),
		"float32 scale": op(shift, mil.Args{"data": ints(mil.Int4, n, k), "scale": floats(mil.Float32, n, k/32)}),
		"float offset":  op(shift, mil.Args{"data": ints(mil.Int8, n, k), "scale": floats(h, n, 1), "offset": floats(h, n, 1)}),
		"affine":        op("constexpr_affine_dequantize", mil.Args{"quantized_data": ints(mil.UInt8, n, k), "scale": floats(h, n), "zero_point": ints(mil.UInt8, n), "axis": 0}),
		"lut4 tensor":   op(lut, mil.Args{"indices": ints(mil.UInt4, n, k), "lut": floats(h, 1, 1, 16, 1)}),
		"lut6 groups":   op(lut, mil.Args{"indices": ints(mil.UInt6, n, k), "lut": floats(h, n/8, 1, 64, 1)}),
		"lut8 tensor":   op(lut, mil.Args{"indices": ints(mil.UInt8, n, k), "lut": floats(h, 1, 1, 256, 1)}),
		"lut vectors":   op(lut, mil.Args{"indices": ints(mil.UInt3, n/2, k), "lut": floats(h, 1, 1, 8, 2), "vector_axis": 0}),
		"lut columns":   op(lut, mil.Args{"indices": ints(mil.UInt4, n, k), "lut": floats(h, 1, 4, 16, 1)}),
	}
}

// Compressed weights give the result of their decoded forms, in both modes,
// and no consumer decodes them as a whole.
func TestCompressedWeights(t *testing.T) {
	const n, k, rows = 528, 256, 3
	r := rand.New(rand.NewPCG(9, 9))
	x, y := randomTensor(r, mil.Float16, 1, rows, k), randomTensor(r, mil.Float16, 1, 1, k)
	ids := &Tensor{DType: mil.Int32, Shape: []int{3}, I: []int32{0, n - 1, 77}}
	for name, weight := range compressedWeights(r, n, k) {
		for _, use := range []string{"linear", "matmul", "gather"} {
			for _, mode := range []Mode{Typed, FP32} {
				t.Run(name+" "+use+" "+mode.String(), func(t *testing.T) {
					b := mil.NewBuilder("main", mil.CoreML8)
					w := weight(b)
					in := map[string]*Tensor{"ids": ids}
					if use == "gather" {
						b.Output("out", b.Op("gather", "op", mil.Args{"x": w, "indices": b.Input("ids", mil.T(mil.Int32, 3)), "axis": 0}))
					} else {
						in = map[string]*Tensor{"x": x, "y": y}
						param, args := "weight", mil.Args{}
						if use == "matmul" {
							param, args = "y", mil.Args{"transpose_y": true}
						}
						args[param] = w
						args["x"] = b.Input("x", mil.T(mil.Float16, 1, rows, k))
						many := b.Op(use, "many", args)
						args["x"] = b.Input("y", mil.T(mil.Float16, 1, 1, k))
						b.Output("out", b.Op("concat", "out", mil.Args{"values": []*mil.Value{many, b.Op(use, "one", args)}, "axis": 1}))
					}
					f, err := b.Func()
					if err != nil {
						t.Fatal(err)
					}
					fast, general := both(t, f, in, Options{Threads: 2, Mode: mode})
					if !near(fast, general, 1e-6) {
						t.Errorf("%v, general form %v", fast.F[:8], general.F[:8])
					}
					if use == "gather" && !slices.Equal(fast.F, general.F) {
						t.Errorf("rows differ from the general form")
					}
					p := mil.NewProgram()
					p.Functions["main"] = f
					for key, c := range load(t, p, Options{Mode: mode}).consts.tensors {
						if c.Len() >= n*k {
							t.Errorf("the weight was decoded: %s", key)
						}
					}
				})
			}
		}
	}
}

// A row has the same bits alone, where codes are multiplied as they lie, and
// among others, where they are decoded first, or many others, which are packed;
// and with any number of threads. So do rows of fused products.
func TestCompressedRowsAreIndependent(t *testing.T) {
	for _, s := range []struct{ rows, n, k int }{{5, 528, 256}, {40, 176, 1536}} {
		rows, n, k := s.rows, s.n, s.k
		r := rand.New(rand.NewPCG(10, 10))
		x := randomTensor(r, mil.Float16, rows, k)
		for name, weight := range compressedWeights(r, n, k) {
			run := func(rows, threads int, x []float32) map[string]*Tensor {
				b := mil.NewBuilder("main", mil.CoreML8)
				in := b.Input("x", mil.T(mil.Float16, rows, k))
				w := weight(b)
				b.Output("out", b.Op("linear", "op", mil.Args{"x": in, "weight": w}))
				// Another tensor, so that these two are on their own.
				y := b.Op("relu", "y", mil.Args{"x": in})
				gate := b.Op("silu", "act", mil.Args{"x": b.Op("linear", "gate", mil.Args{"x": y, "weight": w})})
				b.Output("gated", b.Op("mul", "mul", mil.Args{"x": gate, "y": b.Op("linear", "up", mil.Args{"x": y, "weight": w})}))
				out, err := load(t, program(t, b), Options{Threads: threads}).New().Run("main", map[string]*Tensor{
					"x": {DType: mil.Float16, Shape: []int{rows, k}, F: x},
				})
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			all := run(rows, 2, x.F)
			for i := 0; i < rows; i += max(1, rows/5) {
				for _, threads := range []int{1, 3} {
					for what, one := range run(1, threads, x.F[i*k:(i+1)*k]) {
						if !slices.Equal(one.F, all[what].F[i*n:(i+1)*n]) {
							t.Errorf("%s: row %d of %d of %s differs alone with %d threads", name, i, rows, what, threads)
						}
					}
				}
			}
		}
	}
}
