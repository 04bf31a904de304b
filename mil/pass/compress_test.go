package pass

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/internal/decompress"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/quant"
)

// namedConst is a constant that comes from a tensor of a checkpoint.
type namedConst struct {
	mil.Const
	name string
}

func (n namedConst) Name() string { return n.name }

// twoLinears are two functions that share a weight [out, in].
func twoLinears(t *testing.T, c mil.Const) *mil.Program {
	t.Helper()
	p := mil.NewProgram()
	out, in := c.Type().Shape[0], c.Type().Shape[1]
	for _, name := range []string{"a", "b"} {
		b := mil.NewBuilder(name, mil.CoreML8)
		x := b.Input("x", mil.T(mil.Float16, 1, in))
		w := b.Const("w", c)
		y := b.Op("linear", "y", mil.Args{"x": x, "weight": w, "bias": mil.NewFloats(mil.Float16, []int{out}, make([]float64, out)...)})
		b.Output("y", y)
		f, err := b.Func()
		if err != nil {
			t.Fatal(err)
		}
		p.Functions[name] = f
	}
	p.Default = "a"
	return p
}

func TestCompress(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	v := make([]float64, 64*96)
	for i := range v {
		v[i] = float64(half.ToF32(half.FromF32(float32(rng.NormFloat64() / 8))))
	}
	for _, tt := range []struct {
		format quant.Format
		bits   float64 // of a weight, parameters included
		mse    float64 // at most
	}{
		{quant.Format{Codec: "linear", Bits: 8}, 8 + 16./96, 1e-4},
		{quant.Format{Codec: "linear", Bits: 4, GroupSize: 32}, 4.5, 0.02},
		{quant.Format{Codec: "linear", Bits: 4, GroupSize: 32, Asymmetric: true, Unsigned: true}, 4.625, 0.02},
		{quant.Format{Codec: "linear", Bits: 8, Granularity: "tensor"}, 8 + 16./(64*96), 4e-4},
		{quant.Format{Codec: "palette", Bits: 4, GroupSize: 16}, 4 + 16.*16/(16*96), 0.012},
		{quant.Format{Codec: "palette", Bits: 3}, 3 + 16.*8/(64*96), 0.045},
		{quant.Format{Codec: "palette", Bits: 1}, 1 + 16.*2/(64*96), 0.4},
		{quant.Format{Codec: "palette", Bits: 6, GroupSize: 8}, 6 + 16.*64/(8*96), 0.001},
		{quant.Format{Codec: "palette", Bits: 8, GroupSize: 64}, 8 + 16.*256/(64*96), 2e-4},
		{quant.Format{Codec: "palette", Bits: 4, GroupSize: 1}, 4 + 16.*16/96, 0.009},
		{quant.Format{Codec: "palette", Bits: 2, Tables: "uniform"}, 2 + 16.*4/(64*96), 1},
		{quant.Format{Codec: "palette", Bits: 4, GroupSize: 16, Table: "int8"}, 4 + (8.*16*4+16)/(64*96), 0.0125},
		{quant.Format{Codec: "palette", Bits: 4, Table: "int8"}, 4 + (8.*16+16)/(64*96), 0.0125},
		{quant.Format{Codec: "palette", Bits: 4, GroupSize: 16, ChannelScale: true}, 4 + (16.*16*4+16*64)/(64*96), 0.013},
		{quant.Format{Codec: "palette", Bits: 4, ChannelScale: true, Table: "int8"}, 4 + (8.*16+16+16*64)/(64*96), 0.014},
		{quant.Format{Codec: "palette", Bits: 6, Vector: 2}, 3 + 16.*64*2/(64*96), 0.03},
		{quant.Format{Codec: "palette", Bits: 8, Vector: 4, GroupSize: 32}, 2 + 16.*256*4*2/(64*96), 0.1},
		{quant.Format{Codec: "palette", Bits: 8, Vector: 2, Table: "int8"}, 4 + (8.*256*2+16)/(64*96), 0.01},
		{quant.Format{Codec: "palette", Bits: 6, Vector: 2, ChannelScale: true}, 3 + (16.*64*2+16*64)/(64*96), 0.03},
		{quant.Format{Codec: "sparse", Sparsity: 0.4}, 1 + 16*.6, 0.04},
		{quant.Format{Codec: "sparse", Pattern: "2:4"}, 1 + 16*.5, 0.15},
		{quant.Format{Codec: "palette", Bits: 4, GroupSize: 16, Sparsity: 0.25}, 1 + 4*.75 + 16.*16*4/(64*96), 0.03},
		{quant.Format{Codec: "palette", Bits: 3, Pattern: "1:4"}, 1 + 3*.75 + 16.*8/(64*96), 0.06},
		{quant.Format{Codec: "palette", Bits: 4, Table: "int8", Sparsity: 0.5}, 1 + 4*.5 + (8.*16+16)/(64*96), 0.1},
		{quant.Format{Codec: "linear", Bits: 8, Sparsity: 0.5}, 1 + 8*.5 + 16./96, 0.1},
		{quant.Format{Codec: "linear", Bits: 4, GroupSize: 32, Pattern: "2:4"}, 1 + 4*.5 + 16./32, 0.15},
		{quant.Format{Codec: "linear", Bits: 4, GroupSize: 32, Asymmetric: true, Unsigned: true, Sparsity: 0.3}, 1 + 4*.7 + 20./32, 0.1},
	} {
		src := namedConst{mil.NewFloats(mil.Float16, []int{64, 96}, v...), "model.layers.0.mlp.up_proj.weight"}
		p := twoLinears(t, src)
		list, err := Compress(p, func(name string) (quant.Format, bool) { return tt.format, name == src.name })
		if err != nil {
			t.Fatalf("%+v: %v", tt.format, err)
		}
		if err := mil.VerifyDraft(p); err != nil {
			t.Fatalf("%+v: %v", tt.format, err)
		}
		if len(list) != 1 {
			t.Fatalf("%+v: %d weights, want one for both functions", tt.format, len(list))
		}
		if got := 8 * float64(list[0].Bytes) / float64(len(v)); math.Abs(got-tt.bits) > 16./float64(len(v)) {
			t.Errorf("%+v: %g bits a weight, want %g", tt.format, got, tt.bits)
		}
		var first *mil.Op
		for _, name := range p.Names() {
			var op *mil.Op
			p.Functions[name].Body.Walk(func(o *mil.Op) {
				if o.Kind == "linear" {
					op = o.In("weight").Op
				}
			})
			if op == nil {
				t.Fatalf("%+v: function %s has no constexpr", tt.format, name)
			}
			if first == nil {
				first = op
				continue
			}
			ours, theirs := constsOf(op), constsOf(first)
			for i, v := range ours {
				if v.Const != theirs[i].Const {
					t.Errorf("%+v: %s is not shared", tt.format, v.Name)
				}
			}
		}
		// Each part gives the same bytes again, in any order.
		for range 2 {
			for _, v := range constsOf(first) {
				x, y := bytesOf(t, v.Const), bytesOf(t, v.Const)
				if !bytes.Equal(x, y) {
					t.Errorf("%+v: %s is written differently", tt.format, v.Name)
				}
			}
		}
		// A decoder needs literals.
		for _, v := range constsOf(first) {
			v.Const = &mil.Literal{T: v.Const.Type(), Data: bytesOf(t, v.Const)}
		}
		d, err := decompress.Of(first.Out(), decompress.Options{})
		if err != nil {
			t.Fatalf("%+v: %v", tt.format, err)
		}
		var e, energy float64
		for i, x := range d.All() {
			e += (float64(x) - v[i]) * (float64(x) - v[i])
			energy += v[i] * v[i]
		}
		if e/energy > tt.mse {
			t.Errorf("%+v: relative error %g, want at most %g", tt.format, e/energy, tt.mse)
		}
		if s := list[0].Stats; math.Abs(s.Error-e) > 1e-3*e || math.Abs(s.Energy-energy) > 1e-9*energy || s.Elements != int64(len(v)) {
			t.Errorf("%+v: reported %+v, measured error %g of %g", tt.format, s, e, energy)
		}
	}
}

// constsOf lists the weights that a value is made of, other constexprs' included.
func constsOf(op *mil.Op) (out []*mil.Value) {
	for _, a := range op.Args {
		v := a.Values[0]
		switch {
		case v.Op != nil && v.Op.Kind == "const":
			out = append(out, v)
		case v.Op != nil:
			out = append(out, constsOf(v.Op)...)
		}
	}
	return out
}

// Weights that no tensor of a checkpoint gives, that are small, or that another
// op reads as well, stay.
func TestCompressKeeps(t *testing.T) {
	all := func(string) (quant.Format, bool) { return quant.Format{Codec: "linear", Bits: 8}, true }
	zeros := make([]float64, 64*96)
	for name, c := range map[string]mil.Const{
		"unnamed": mil.NewFloats(mil.Float16, []int{64, 96}, zeros...),
		"small":   namedConst{mil.NewFloats(mil.Float16, []int{4, 8}, zeros[:32]...), "w"},
	} {
		list, err := Compress(twoLinears(t, c), all)
		if err != nil || len(list) != 0 {
			t.Errorf("%s: %d weights, error %v", name, len(list), err)
		}
	}
	bad := namedConst{mil.NewFloats(mil.Float16, []int{64, 96}, zeros...), "w.weight"}
	_, err := Compress(twoLinears(t, bad), func(string) (quant.Format, bool) {
		return quant.Format{Codec: "palette", Bits: 4, GroupSize: 48}, true
	})
	if want := `tensor "w.weight": quant: the first dimension is 64, which groups of 48 rows do not divide`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
