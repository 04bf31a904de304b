package decompress

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/mil"
)

// apply makes a constexpr op of named operands, with n outputs.
func apply(kind string, n int, args ...any) []*mil.Value {
	op := &mil.Op{Kind: kind, Name: kind}
	for i := 0; i < len(args); i += 2 {
		switch a := args[i+1].(type) {
		case *mil.Value:
			op.Set(args[i].(string), a)
		case *mil.Literal:
			if a != nil {
				op.Set(args[i].(string), mil.Inline(a))
			}
		}
	}
	for range n {
		op.Outputs = append(op.Outputs, &mil.Value{Name: kind, Op: op})
	}
	return op.Outputs
}

func draw(t *rapid.T, what string, from ...int) int { return rapid.SampledFrom(from).Draw(t, what) }

// randomInts are random values of d.
func randomInts(d mil.DType, shape ...int) *mil.Literal {
	v := make([]int, mil.Volume(shape))
	for i := range v {
		v[i] = rand.IntN(1 << d.Bits())
	}
	return mil.NewInts(d, shape, v...)
}

func randomFloats(d mil.DType, shape ...int) *mil.Literal {
	v := make([]float64, mil.Volume(shape))
	for i := range v {
		v[i] = math.Round(rand.NormFloat64()*1024) / 512
	}
	return mil.NewFloats(d, shape, v...)
}

func values(t *rapid.T, l *mil.Literal) []float64 {
	if l == nil {
		return nil
	}
	v, err := mil.ConstFloats(l)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// groupOf is the block of element i, from the definition: coordinate by
// coordinate.
func groupOf(i int, shape, groups []int) int {
	g, scale := 0, 1
	for k := len(shape) - 1; k >= 0; k-- {
		c := i % shape[k]
		i /= shape[k]
		g += c * groups[k] / shape[k] * scale
		scale *= groups[k]
	}
	return g
}

// drawShape draws a shape and a number of blocks for every axis.
func drawShape(t *rapid.T) (shape, groups []int) {
	for range rapid.IntRange(1, 4).Draw(t, "rank") {
		g, w := draw(t, "groups", 1, 1, 2, 3), draw(t, "width", 1, 2, 3, 5, 40)
		if mil.Volume(shape)*g*w > 1<<12 {
			break
		}
		shape, groups = append(shape, g*w), append(groups, g)
	}
	return shape, groups
}

func f16(x float64) float64 { return float64(half.ToF32(half.FromF32(float32(x)))) }

// round is rounding to d.
func round(d mil.DType, x float64) float64 {
	if d == mil.Float16 {
		return f16(x)
	}
	return float64(float32(x))
}

// check decodes v in random pieces and compares with want.
func check(t *rapid.T, v *mil.Value, d mil.DType, shape []int, want []float64) {
	t.Helper()
	w, err := Of(v, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !w.Type.Equal(mil.TensorType{DType: d, Shape: shape}) {
		t.Fatalf("type is %v, want %v %v", w.Type, d, shape)
	}
	all := w.All()
	for i, x := range all {
		if float64(x) != want[i] {
			t.Fatalf("element %d of %v is %v, want %v", i, w.Type, x, want[i])
		}
	}
	for range 3 {
		first := rapid.IntRange(0, len(all)).Draw(t, "first")
		n := rapid.IntRange(0, len(all)-first).Draw(t, "n")
		part := make([]float32, n)
		w.Elements(part, first)
		if !slices.Equal(part, all[first:first+n]) {
			t.Fatalf("elements %d to %d differ from the same of all", first, first+n)
		}
	}
	row := make([]float32, w.RowLen())
	for r := range w.NumRows() {
		w.Rows(row, r, 1)
		if !slices.Equal(row, all[r*len(row):(r+1)*len(row)]) {
			t.Fatalf("row %d differs", r)
		}
	}
	if m := w.Matrix(); m != nil {
		got := make([]float32, len(all))
		m.Rows(got, 0, m.N)
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(all[i]) {
				t.Fatalf("element %d of %v as a matrix is %v, want %v", i, w.Type, got[i], all[i])
			}
		}
	}
}

func TestShiftScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape, groups := drawShape(t)
		d := rapid.SampledFrom([]mil.DType{mil.Int4, mil.UInt4, mil.Int8, mil.UInt8}).Draw(t, "data")
		out := rapid.SampledFrom([]mil.DType{mil.Float16, mil.Float32}).Draw(t, "scale")
		data, scale := randomInts(d, shape...), randomFloats(out, groups...)
		var offset *mil.Literal
		switch draw(t, "offset", 0, 1, 2) {
		case 1:
			offset = randomInts(d, groups...)
		case 2:
			offset = randomFloats(out, groups...)
		}
		q, s, o := values(t, data), values(t, scale), values(t, offset)
		want := make([]float64, len(q))
		for i, x := range q {
			g := groupOf(i, shape, groups)
			if o != nil {
				x = round(out, x-o[g])
			}
			want[i] = round(out, s[g]*x)
		}
		v := apply("constexpr_blockwise_shift_scale", 1, "data", data, "scale", scale, "offset", offset)
		check(t, v[0], out, shape, want)
	})
}

func TestAffine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape, _ := drawShape(t)
		axis := rapid.IntRange(0, len(shape)-1).Draw(t, "axis")
		out := rapid.SampledFrom([]mil.DType{mil.Float16, mil.Float32}).Draw(t, "scale")
		vector := func(name string) []int {
			if rapid.Bool().Draw(t, name) {
				return []int{shape[axis]}
			}
			return nil
		}
		data, scale, zero := randomInts(mil.Int8, shape...), randomFloats(out, vector("scale is a vector")...), randomInts(mil.Int8, vector("zero is a vector")...)
		q, s, z := values(t, data), values(t, scale), values(t, zero)
		inner := mil.Volume(shape[axis+1:])
		want := make([]float64, len(q))
		for i, x := range q {
			c := i / inner % shape[axis]
			want[i] = round(out, s[c%len(s)]*(x-z[c%len(z)]))
		}
		v := apply("constexpr_affine_dequantize", 1, "quantized_data", data, "scale", scale, "zero_point", zero,
			"axis", mil.NewInts(mil.Int32, nil, axis-len(shape)))
		check(t, v[0], out, shape, want)
	})
}

// lutCase is a random palettized tensor and what it decodes to.
type lutCase struct {
	shape   []int // of the indices
	dtype   mil.DType
	lut     *mil.Literal
	axis    int
	vector  int
	out     []int
	entry   []float64
	groups  []int
	entries int
}

func drawLUT(t *rapid.T) lutCase {
	c := lutCase{}
	c.shape, c.groups = drawShape(t)
	c.dtype = rapid.SampledFrom([]mil.DType{mil.UInt1, mil.UInt2, mil.UInt3, mil.UInt4, mil.UInt6, mil.UInt8}).Draw(t, "indices")
	c.vector = draw(t, "vector", 1, 1, 2, 3)
	c.axis = rapid.IntRange(0, len(c.shape)-1).Draw(t, "vector_axis")
	c.entries = 1 << c.dtype.Bits()
	c.lut = randomFloats(mil.Float16, append(slices.Clone(c.groups), c.entries, c.vector)...)
	c.out = slices.Clone(c.shape)
	c.out[c.axis] *= c.vector
	c.entry = values(t, c.lut)
	return c
}

// code is the position of the code of element i of the result, and its
// component.
func (c lutCase) code(i int) (at, component int) {
	inner := mil.Volume(c.shape[c.axis+1:])
	outer, j, rest := i/inner/c.out[c.axis], i/inner%c.out[c.axis], i%inner
	return (outer*c.shape[c.axis]+j/c.vector)*inner + rest, j % c.vector
}

func (c lutCase) lookup(at, component, code int) float64 {
	return c.entry[(groupOf(at, c.shape, c.groups)*c.entries+code)*c.vector+component]
}

func TestLUT(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawLUT(t)
		idx := randomInts(c.dtype, c.shape...)
		codes := values(t, idx)
		want := make([]float64, mil.Volume(c.out))
		for i := range want {
			at, k := c.code(i)
			want[i] = c.lookup(at, k, int(codes[at]))
		}
		v := apply("constexpr_lut_to_dense", 1, "indices", idx, "lut", c.lut, "vector_axis", mil.NewInts(mil.Int32, nil, c.axis))
		check(t, v[0], mil.Float16, c.out, want)
	})
}

// TestNested quantizes the lookup table itself.
func TestNested(t *testing.T) {
	idx := mil.NewInts(mil.UInt1, []int{2, 3}, 0, 1, 1, 1, 0, 0)
	lut := apply("constexpr_blockwise_shift_scale", 1,
		"data", mil.NewInts(mil.Int8, []int{2, 1, 2, 1}, 10, -20, 3, 127),
		"scale", mil.NewFloats(mil.Float16, []int{2, 1, 1, 1}, 0.5, 0.25))[0]
	lut.Type = mil.T(mil.Float16, 2, 1, 2, 1)
	w, err := Of(apply("constexpr_lut_to_dense", 1, "indices", idx, "lut", lut)[0], Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []float32{5, -10, -10, 31.75, 0.75, 0.75}; !slices.Equal(w.All(), want) {
		t.Fatalf("%v, want %v", w.All(), want)
	}
}

// TestCoreML6 decodes the byte forms: packed codes straddle bytes.
func TestCoreML6(t *testing.T) {
	shape := mil.NewInts(mil.UInt32, []int{2}, 3, 3)
	lut := make([]float64, 64)
	for i := range lut {
		lut[i] = float64(i) / 4
	}
	// Codes 1, 2, 63, 0, 32, 5, 6, 7, 8 of 6 bits.
	idx := mil.NewInts(mil.UInt6, []int{9}, 1, 2, 63, 0, 32, 5, 6, 7, 8)
	bytes := &mil.Literal{T: mil.T(mil.UInt8, len(idx.Data)), Data: idx.Data}
	w, err := Of(apply("constexpr_lut_to_dense", 1, "indices", bytes, "lut", mil.NewFloats(mil.Float16, []int{64}, lut...), "shape", shape)[0], Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []float32{0.25, 0.5, 15.75, 0, 8, 1.25, 1.5, 1.75, 2}; !slices.Equal(w.All(), want) {
		t.Errorf("lut: %v, want %v", w.All(), want)
	}
	mask := mil.NewInts(mil.UInt8, []int{2}, 0b10000010, 1)
	w, err = Of(apply("constexpr_sparse_to_dense", 1, "nonzero_data", mil.NewFloats(mil.Float16, []int{3}, 1, 2, 3), "mask", mask, "shape", shape)[0], Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []float32{0, 1, 0, 0, 0, 0, 0, 2, 3}; !slices.Equal(w.All(), want) {
		t.Errorf("sparse: %v, want %v", w.All(), want)
	}
}

// TestExact leaves fp16 rounding out: 0.1 in fp16 times 3 is not an fp16
// number.
func TestExact(t *testing.T) {
	v := apply("constexpr_blockwise_shift_scale", 1, "data", mil.NewInts(mil.Int8, []int{1}, 3), "scale", mil.NewFloats(mil.Float16, []int{1}, 0.1))[0]
	scale := half.ToF32(half.FromF32(0.1))
	for _, tt := range []struct {
		o    Options
		want float32
	}{{Options{}, half.ToF32(half.FromF32(3 * scale))}, {Options{Exact: true}, 3 * scale}} {
		w, err := Of(v, tt.o)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.All()[0]; got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.o, got, tt.want)
		}
	}
}

func TestRefuses(t *testing.T) {
	f := func(shape ...int) *mil.Literal { return randomFloats(mil.Float16, shape...) }
	mask := mil.NewInts(mil.UInt1, []int{4}, 1, 0, 1, 0)
	short := &mil.Literal{T: mil.T(mil.Int8, 8), Data: make([]byte, 7)}
	for _, tt := range []struct {
		v    *mil.Value
		want string
	}{
		{&mil.Value{Name: "x"}, `value "x" is not known at compile time`},
		{mil.Inline(short), "7 bytes, want 8"},
		{apply("constexpr_blockwise_shift_scale", 1, "data", randomInts(mil.Int8, 6), "scale", f(4))[0], "4 blocks do not divide axis 0"},
		{apply("constexpr_blockwise_shift_scale", 1, "data", randomInts(mil.Int8, 6), "scale", f(2), "offset", f(3))[0], "want the shape of scale"},
		{apply("constexpr_blockwise_shift_scale", 1, "scale", f(4))[0], "input data is missing"},
		{apply("constexpr_affine_dequantize", 1, "quantized_data", randomInts(mil.Int8, 6), "scale", f(4), "zero_point", f(), "axis", mil.NewInts(mil.Int32, nil, 0))[0], "want a scalar or 6"},
		{apply("constexpr_lut_to_dense", 1, "indices", randomInts(mil.UInt4, 6), "lut", f(1, 8, 1))[0], "want 16 entries"},
		{apply("constexpr_sparse_to_dense", 1, "nonzero_data", f(3), "mask", mask)[0], "the mask marks 2 elements"},
		{apply("constexpr_sparse_to_dense", 1, "nonzero_data", f(1), "mask", mil.NewInts(mil.UInt8, []int{1}, 0x80), "shape", mil.NewInts(mil.UInt32, []int{1}, 5))[0], "behind the last"},
		{apply("constexpr_unheard_of", 1)[0], "no decoder"},
	} {
		_, err := Of(tt.v, Options{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}

func BenchmarkRows(b *testing.B) {
	const rows, cols = 256, 2048
	for _, bc := range []struct {
		name string
		v    *mil.Value
	}{
		{"fp16", mil.Inline(randomFloats(mil.Float16, rows, cols))},
		{"int8 per channel", apply("constexpr_blockwise_shift_scale", 1, "data", randomInts(mil.Int8, rows, cols), "scale", randomFloats(mil.Float16, rows, 1))[0]},
		{"int4 block 32", apply("constexpr_blockwise_shift_scale", 1, "data", randomInts(mil.Int4, rows, cols), "scale", randomFloats(mil.Float16, rows, cols/32))[0]},
		{"lut 4 bits", apply("constexpr_lut_to_dense", 1, "indices", randomInts(mil.UInt4, rows, cols), "lut", randomFloats(mil.Float16, rows/32, 1, 16, 1))[0]},
		{"lut 6 bits", apply("constexpr_lut_to_dense", 1, "indices", randomInts(mil.UInt6, rows, cols), "lut", randomFloats(mil.Float16, rows/32, 1, 64, 1))[0]},
	} {
		b.Run(bc.name, func(b *testing.B) {
			w, err := Of(bc.v, Options{})
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]float32, 16*cols)
			b.SetBytes(int64(4 * rows * cols))
			for b.Loop() {
				for r := 0; r < rows; r += 16 {
					w.Rows(dst, r, 16)
				}
			}
		})
	}
}

func ExampleOf() {
	v := apply("constexpr_blockwise_shift_scale", 1,
		"data", mil.NewInts(mil.Int4, []int{2, 4}, 1, 2, 3, 4, -1, -2, -3, -4),
		"scale", mil.NewFloats(mil.Float16, []int{2, 2}, 1, 10, 2, 0.5))
	w, err := Of(v[0], Options{})
	if err != nil {
		panic(err)
	}
	row := make([]float32, w.RowLen())
	for r := range w.NumRows() {
		w.Rows(row, r, 1)
		fmt.Println(row)
	}
	// Output:
	// [1 2 30 40]
	// [-2 -4 -1.5 -2]
}
