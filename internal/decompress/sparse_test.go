package decompress

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/mil"
)

// drawMask draws a mask of a tensor and the positions it marks.
func drawMask(t *rapid.T, shape []int) (m *mil.Literal, at []int) {
	n := mil.Volume(shape)
	v := make([]int, n)
	odds := draw(t, "one in", 1, 2, 9, 1000)
	for i := range v {
		if rand.IntN(odds) == 0 {
			v[i] = 1
			at = append(at, i)
		}
	}
	return mil.NewInts(mil.UInt1, shape, v...), at
}

func TestSparse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape, _ := drawShape(t)
		m, at := drawMask(t, shape)
		d := rapid.SampledFrom([]mil.DType{mil.Float16, mil.Int4, mil.UInt8}).Draw(t, "type")
		random := randomFloats
		if d.IsInt() {
			random = randomInts
		}
		data := random(d, len(at))
		want := make([]float64, mil.Volume(shape))
		for i, x := range values(t, data) {
			want[at[i]] = x
		}
		v := apply("constexpr_sparse_to_dense", 1, "nonzero_data", data, "mask", m)
		check(t, v[0], d, shape, want)
	})
}

// TestSparseLUT chains sparse palettized weights, and looks at the two
// results by themselves.
func TestSparseLUT(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawLUT(t)
		m, at := drawMask(t, c.shape)
		idx := randomInts(c.dtype, len(at))
		codes := map[int]int{}
		for i, x := range values(t, idx) {
			codes[at[i]] = int(x)
		}
		want := make([]float64, mil.Volume(c.out))
		mask := make([]float64, len(want))
		var kept []float64
		for i := range want {
			p, k := c.code(i)
			if code, ok := codes[p]; ok {
				want[i], mask[i] = c.lookup(p, k, code), 1
				kept = append(kept, want[i])
			}
		}
		v := apply("constexpr_lut_to_sparse", 2, "indices_mask", m, "indices_nonzero_data", idx, "lut", c.lut,
			"vector_axis", mil.NewInts(mil.Int32, nil, c.axis))
		check(t, v[0], mil.UInt1, c.out, mask)
		if len(kept) > 0 {
			check(t, v[1], mil.Float16, []int{len(kept)}, kept)
		}
		dense := apply("constexpr_sparse_to_dense", 1, "nonzero_data", v[1], "mask", v[0])
		check(t, dense[0], mil.Float16, c.out, want)
	})
}

// TestSparseShiftScale has an offset: masked positions are 0, not scale times
// minus offset.
func TestSparseShiftScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape, groups := drawShape(t)
		m, at := drawMask(t, shape)
		data, scale, offset := randomInts(mil.Int8, len(at)), randomFloats(mil.Float16, groups...), randomInts(mil.Int8, groups...)
		s, o := values(t, scale), values(t, offset)
		want := make([]float64, mil.Volume(shape))
		kept := make([]float64, len(at))
		for i, x := range values(t, data) {
			g := groupOf(at[i], shape, groups)
			kept[i] = f16(s[g] * (x - o[g]))
			want[at[i]] = kept[i]
		}
		v := apply("constexpr_sparse_blockwise_shift_scale", 2, "data_mask", m, "nonzero_data", data, "scale", scale, "offset", offset)
		if len(kept) > 0 {
			check(t, v[1], mil.Float16, []int{len(kept)}, kept)
		}
		dense := apply("constexpr_sparse_to_dense", 1, "nonzero_data", v[1], "mask", v[0])
		check(t, dense[0], mil.Float16, shape, want)
	})
}

// TestMaskFind crosses the strides of the mask's index.
func TestMaskFind(t *testing.T) {
	b := make([]byte, 1000)
	var at []int
	for i := range b {
		b[i] = byte(rand.IntN(3) * rand.IntN(256))
	}
	m, err := newMask(b, []int{8000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8000 {
		if m.before(i) != len(at) {
			t.Fatalf("before(%d) is %d, want %d", i, m.before(i), len(at))
		}
		if m.has(i) {
			at = append(at, i)
		}
	}
	ones := 0
	for _, x := range b {
		ones += bits.OnesCount8(x)
	}
	if ones != len(at) || m.total() != ones {
		t.Fatalf("%d, %d and %d marked elements", ones, len(at), m.total())
	}
	g := &gathered{&sparse{mask: m}}
	for k, want := range at {
		if got := g.find(k); got != want {
			t.Fatalf("element %d is at %d, want %d", k, got, want)
		}
	}
}
