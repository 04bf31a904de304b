package runtime

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/quant"
)

// stored is a constant in memory.
type stored struct {
	t    mil.TensorType
	data []byte
}

func (s stored) Type() mil.TensorType                   { return s.t }
func (s stored) Raw() []byte                            { return s.data }
func (s stored) WriteTo(w io.Writer) (n int64, e error) { m, e := w.Write(s.data); return int64(m), e }

// emit codes a matrix in a format and writes the operators that decode it.
func emit(t *testing.T, b *mil.Builder, f quant.Format, w []uint16, rows, cols int) *mil.Value {
	t.Helper()
	form, err := quant.NewForm(f, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	data, _, err := form.Encode(func(dst []uint16, first int) error { copy(dst, w[first:]); return nil }, quant.FormOptions{})
	if err != nil {
		t.Fatal(err)
	}
	types := map[quant.ElementType]mil.DType{
		{Bits: 16, Signed: true, Float: true}: mil.Float16,
		{Bits: 8, Signed: true}:               mil.Int8, {Bits: 4, Signed: true}: mil.Int4,
		{Bits: 1}: mil.UInt1, {Bits: 2}: mil.UInt2, {Bits: 3}: mil.UInt3, {Bits: 4}: mil.UInt4, {Bits: 6}: mil.UInt6, {Bits: 8}: mil.UInt8,
	}
	var results [][]*mil.Value
	for i, op := range form.Ops {
		args := mil.Args{}
		for _, in := range op.Inputs {
			switch in.From {
			case quant.FromConstant:
				c := form.Constants[in.Index]
				args[in.Param] = stored{mil.T(types[c.Type], c.Shape...), data[in.Index]}
			case quant.FromOp:
				args[in.Param] = results[in.Index][in.Result]
			case quant.FromNumber:
				args[in.Param] = int(in.Constant)
			}
		}
		name := "w" + string(rune('a'+i))
		if op.Kind == "constexpr_lut_to_sparse" || op.Kind == "constexpr_sparse_blockwise_shift_scale" {
			results = append(results, b.OpN(op.Kind, name, args))
		} else {
			results = append(results, []*mil.Value{b.Op(op.Kind, name, args)})
		}
	}
	return results[len(results)-1][0]
}

// TestEveryCodecIsFused: weights in every format of package quant are multiplied
// and looked up where they lie; none is decoded as a whole.
func TestEveryCodecIsFused(t *testing.T) {
	const n, k, rows = 544, 256, 3
	r := rand.New(rand.NewPCG(19, 20))
	x := randomTensor(r, mil.Float16, 1, rows, k)
	ids := &Tensor{DType: mil.Int32, Shape: []int{3}, I: []int32{0, n - 1, 77}}
	w := make([]uint16, n*k)
	for i := range w {
		w[i] = half.FromF32(float32(r.NormFloat64() / 50))
	}
	formats := []quant.Format{
		{Codec: "sparse", Sparsity: 0.6},
		{Codec: "sparse", Pattern: "2:4"},
		{Codec: "palette", Bits: 4, Table: "int8"},
		{Codec: "palette", Bits: 4, GroupSize: 32, ChannelScale: true},
		{Codec: "palette", Bits: 4, GroupSize: 32, Sparsity: 0.5},
		{Codec: "palette", Bits: 4, Vector: 2},
		{Codec: "palette", Bits: 6, Vector: 4},
		{Codec: "palette", Bits: 4, Tables: "uniform"},
		{Codec: "linear", Bits: 4, Granularity: "block", GroupSize: 32, Pattern: "1:4"},
	}
	for _, bits := range []int{1, 2, 3, 4, 6, 8} {
		formats = append(formats, quant.Format{Codec: "palette", Bits: bits}, quant.Format{Codec: "palette", Bits: bits, GroupSize: 16})
	}
	for _, bits := range []int{4, 8} {
		for _, unsigned := range []bool{false, true} {
			for _, asymmetric := range []bool{false, true} {
				for _, g := range []string{"tensor", "channel", "block"} {
					f := quant.Format{Codec: "linear", Bits: bits, Granularity: g, Unsigned: unsigned, Asymmetric: asymmetric}
					if g == "block" {
						f.GroupSize = 32
					}
					formats = append(formats, f)
				}
			}
		}
	}
	for _, f := range formats {
		for _, use := range []string{"linear", "matmul", "gather"} {
			t.Run(f.Describe()+" "+use, func(t *testing.T) {
				b := mil.NewBuilder("main", mil.CoreML8)
				v := emit(t, b, f, w, n, k)
				in := map[string]*Tensor{"x": x}
				switch use {
				case "gather":
					in = map[string]*Tensor{"ids": ids}
					b.Output("out", b.Op("gather", "op", mil.Args{"x": v, "indices": b.Input("ids", mil.T(mil.Int32, 3)), "axis": 0}))
				case "linear":
					b.Output("out", b.Op("linear", "op", mil.Args{"x": b.Input("x", mil.T(mil.Float16, 1, rows, k)), "weight": v}))
				default:
					b.Output("out", b.Op("matmul", "op", mil.Args{"x": b.Input("x", mil.T(mil.Float16, 1, rows, k)), "y": v, "transpose_y": true}))
				}
				fn, err := b.Func()
				if err != nil {
					t.Fatal(err)
				}
				fast, general := both(t, fn, in, Options{Threads: 2})
				if !near(fast, general, 1e-6) {
					t.Errorf("%v, decoded first %v", fast.F[:8], general.F[:8])
				}
				p := mil.NewProgram()
				p.Functions["main"] = fn
				for key, c := range load(t, p, Options{}).consts.tensors {
					if c.Len() >= n*k {
						t.Errorf("the weight was decoded: %s", key)
					}
				}
			})
		}
	}
}
