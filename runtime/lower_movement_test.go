package runtime

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/mil"
)

// iota is 0, 1, 2, … in a shape.
func iota32(d mil.DType, shape ...int) *Tensor {
	t := NewTensor(d, shape...)
	for i := range t.Len() {
		if t.F != nil {
			t.F[i] = float32(i)
		} else {
			t.I[i] = int32(i)
		}
	}
	return t
}

func shaped(t *Tensor, shape ...int) *Tensor { t.Shape = shape; return t }

func bools(v ...bool) mil.Const           { return mil.NewBools([]int{len(v)}, v...) }
func scalarF(v float64) mil.Const         { return mil.NewFloats(mil.Float32, nil, v) }
func matrix(r, c int, v ...int) mil.Const { return mil.NewInts(mil.Int32, []int{r, c}, v...) }

// TestMovement has results that NumPy gave.
func TestMovement(t *testing.T) {
	cube := iota32(mil.Int32, 2, 3, 4)
	image := iota32(mil.Float32, 2, 3)
	for _, tt := range []struct {
		kind string
		args mil.Args
		want *Tensor
	}{
		{"transpose", mil.Args{"x": cube, "perm": []int{2, 0, -2}},
			shaped(intsOf(0, 4, 8, 12, 16, 20, 1, 5, 9, 13, 17, 21, 2, 6, 10, 14, 18, 22, 3, 7, 11, 15, 19, 23), 4, 2, 3)},
		{"reverse", mil.Args{"x": cube, "axes": []int{0, -1}},
			shaped(intsOf(15, 14, 13, 12, 19, 18, 17, 16, 23, 22, 21, 20, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8), 2, 3, 4)},
		{"reverse", mil.Args{"x": intsOf(1, 2, 3)}, intsOf(3, 2, 1)},
		{"tile", mil.Args{"x": iota32(mil.Int32, 2, 2), "reps": intsOf(2, 2)},
			shaped(intsOf(0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3), 4, 4)},
		{"reshape", mil.Args{"x": cube, "shape": intsOf(4, -1)}, iota32(mil.Int32, 4, 6)},
		{"reshape", mil.Args{"x": cube, "shape": intsOf(0, 0, 1, -1)}, iota32(mil.Int32, 1, 2, 1, 12)},
		{"slice_by_index", mil.Args{"x": cube, "begin": intsOf(1, 0, 3), "end": intsOf(2, 0, 0), "stride": []int{1, -1, -2},
			"begin_mask": bools(false, true, false), "end_mask": bools(false, true, false)},
			shaped(intsOf(23, 21, 19, 17, 15, 13), 1, 3, 2)},
		{"slice_by_index", mil.Args{"x": cube, "begin": intsOf(-1, 1, 2), "end": intsOf(0, 3, 4), "squeeze_mask": bools(true, false, true)},
			intsOf(18, 22)},
		{"slice_by_index", mil.Args{"x": cube, "begin": intsOf(1, 1, 2), "end": intsOf(0, 0, 0), "squeeze_mask": bools(true, true, true)},
			shaped(intsOf(18))},
		{"slice_by_size", mil.Args{"x": cube, "begin": intsOf(0, -2, 1), "size": intsOf(1, -1, 2)}, shaped(intsOf(5, 6, 9, 10), 1, 2, 2)},
		{"slice_update", mil.Args{"x": iota32(mil.Int32, 3, 3), "update": shaped(intsOf(90, 91), 2, 1), "begin": intsOf(0, 1), "end": intsOf(3, 2), "stride": []int{2, 1}},
			shaped(intsOf(0, 90, 2, 3, 4, 5, 6, 91, 8), 3, 3)},
		{"slice_update", mil.Args{"x": iota32(mil.Int32, 2, 2), "update": intsOf(8, 9), "begin": intsOf(1, 0), "end": intsOf(0, 0),
			"squeeze_mask": bools(true, false), "end_mask": bools(false, true)}, shaped(intsOf(0, 1, 8, 9), 2, 2)},
		{"split", mil.Args{"x": iota32(mil.Int32, 2, 3), "split_sizes": []int{2, 1}, "axis": 1}, shaped(intsOf(0, 1, 3, 4), 2, 2)},
		{"sliding_windows", mil.Args{"x": iota32(mil.Int32, 7), "axis": 0, "size": 3, "stride": 2}, shaped(intsOf(0, 1, 2, 2, 3, 4, 4, 5, 6), 3, 3)},
		{"pad", mil.Args{"x": image, "pad": intsOf(1, 1, 2, 1), "mode": "reflect"},
			shaped(floatsOf(5, 4, 3, 4, 5, 4, 2, 1, 0, 1, 2, 1, 5, 4, 3, 4, 5, 4, 2, 1, 0, 1, 2, 1), 4, 6)},
		{"pad", mil.Args{"x": image, "pad": []int{0, 1, 2, 1}, "mode": "replicate"},
			shaped(floatsOf(0, 0, 0, 1, 2, 2, 3, 3, 3, 4, 5, 5, 3, 3, 3, 4, 5, 5), 3, 6)},
		{"pad", mil.Args{"x": image, "pad": []int{1, 0}, "constant_val": 7.0}, shaped(floatsOf(7, 0, 1, 2, 7, 3, 4, 5), 2, 4)},
		{"reverse_sequence", mil.Args{"x": iota32(mil.Int32, 3, 2), "lengths": intsOf(2, 3), "batch_axis": 1}, shaped(intsOf(2, 5, 0, 3, 4, 1), 3, 2)},
		{"band_part", mil.Args{"x": iota32(mil.Int32, 3, 4), "lower": 0, "upper": 1}, shaped(intsOf(0, 1, 0, 0, 0, 5, 6, 0, 0, 0, 10, 11), 3, 4)},
		{"band_part", mil.Args{"x": iota32(mil.Int32, 4, 2), "lower": 1}, shaped(intsOf(0, 1, 2, 3, 0, 5, 0, 0), 4, 2)},
		{"crop", mil.Args{"x": iota32(mil.Float32, 3, 3), "crop_height": []int{1, 0}, "crop_width": []int{0, 2}}, shaped(floatsOf(3, 6), 2, 1)},
		// PyTorch's PixelShuffle: channel 4c+2i+j goes to row i and column j of a block.
		{"pixel_shuffle", mil.Args{"x": iota32(mil.Float32, 1, 4, 1, 2), "upscale_factor": 2}, shaped(floatsOf(0, 2, 1, 3, 4, 6, 5, 7), 1, 1, 2, 4)},
		{"depth_to_space", mil.Args{"x": iota32(mil.Float32, 1, 8, 1, 1), "block_size": 2}, shaped(floatsOf(0, 2, 4, 6, 1, 3, 5, 7), 1, 2, 2, 2)},
		{"space_to_depth", mil.Args{"x": shaped(floatsOf(0, 2, 4, 6, 1, 3, 5, 7), 1, 2, 2, 2), "block_size": 2}, iota32(mil.Float32, 1, 8, 1, 1)},
		{"space_to_batch", mil.Args{"x": iota32(mil.Float32, 1, 1, 2, 3), "block_shape": []int{2, 2}, "paddings": matrix(2, 2, 0, 0, 1, 0)},
			shaped(floatsOf(0, 1, 0, 2, 0, 4, 3, 5), 4, 1, 1, 2)},
		{"batch_to_space", mil.Args{"x": shaped(floatsOf(0, 1, 0, 2, 0, 4, 3, 5), 4, 1, 1, 2), "block_shape": []int{2, 2}, "crops": matrix(2, 2, 0, 0, 1, 0)},
			iota32(mil.Float32, 1, 1, 2, 3)},

		{"shape", mil.Args{"x": cube}, intsOf(2, 3, 4)},
		{"fill", mil.Args{"shape": intsOf(2, 2), "value": 3}, shaped(intsOf(3, 3, 3, 3), 2, 2)},
		{"range_1d", mil.Args{"start": scalarF(1), "end": scalarF(2), "step": scalarF(0.4)}, floatsOf(1, 1.4, 1.8)},
		{"range_1d", mil.Args{"start": 5, "end": 0, "step": -2}, intsOf(5, 3, 1)},
		{"range_1d", mil.Args{"start": 5, "end": 0, "step": 2}, intsOf()},
		{"one_hot", mil.Args{"indices": intsOf(2, -1, 0), "one_hot_vector_size": 3, "axis": 0, "on_value": 5, "off_value": 1},
			shaped(intsOf(1, 1, 5, 1, 1, 1, 5, 1, 1), 3, 3)},
		{"non_zero", mil.Args{"x": shaped(floatsOf(0, 1, 0, 2), 2, 2)}, shaped(intsOf(0, 1, 1, 1), 2, 2)},
		{"select", mil.Args{"cond": bools(true, false, true), "a": shaped(intsOf(1, 2), 2, 1), "b": 7}, shaped(intsOf(1, 7, 1, 2, 7, 2), 2, 3)},
	} {
		got := runOp(t, Options{Threads: 2}, tt.kind, tt.args)[0]
		if d := cmp.Diff(tt.want, got, cmpopts.EquateEmpty(), cmpopts.EquateApprox(0, 1e-6)); d != "" {
			t.Errorf("%s %v: (-want +got)\n%s", tt.kind, tt.args, d)
		}
	}
}

// TestConcatSplitRoundTrip joins parts and cuts them again, and compares
// interleaving with its definition.
func TestConcatSplitRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := []int{rapid.IntRange(1, 4).Draw(t, "a"), rapid.IntRange(1, 20).Draw(t, "b"), rapid.IntRange(1, 5).Draw(t, "c")}
		axis := rapid.IntRange(0, 2).Draw(t, "axis")
		shape[axis] *= 2
		interleave := rapid.Bool().Draw(t, "interleave")
		x := iota32(mil.Float32, shape...)
		b := mil.NewBuilder("main", mil.CoreML8)
		v := b.Input("x", mil.T(mil.Float32, shape...))
		parts := b.OpN("split", "parts", mil.Args{"x": v, "num_splits": 2, "axis": axis})
		b.Output("y", b.Op("concat", "y", mil.Args{"values": parts[:2], "axis": axis - 3, "interleave": interleave}))
		fn, err := b.Func()
		if err != nil {
			t.Fatal(err)
		}
		p := mil.NewProgram()
		p.Functions["main"] = fn
		prog, err := Load(p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		out, err := prog.New().Run("", map[string]*Tensor{"x": x})
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(x.F)
		if interleave {
			outer, n, inner := axisSplit(shape, axis)
			for o := range outer {
				for j := range n {
					from := j/2 + j%2*n/2
					copy(want[(o*n+j)*inner:(o*n+j+1)*inner], x.F[(o*n+from)*inner:])
				}
			}
		}
		if got := out["y"]; !slices.Equal(got.Shape, shape) || !slices.Equal(got.F, want) {
			t.Fatalf("%v %v, want %v", got, got.F, want)
		}
	})
}

// TestUnknownSizes runs one program at several sizes: shapes, lengths and
// positions are all computed at run time.
func TestUnknownSizes(t *testing.T) {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float32, mil.Unknown, 4))
	n := b.Input("n", mil.T(mil.Int32, 1))
	shape := b.Op("shape", "s", mil.Args{"x": x})
	rows := b.Op("slice_by_index", "rows", mil.Args{"x": shape, "begin": []int{0}, "end": []int{1}})
	flat := b.Op("reshape", "flat", mil.Args{"x": x, "shape": b.Op("mul", "count", mil.Args{"x": rows, "y": 4})})
	end := b.Op("concat", "end", mil.Args{"values": []*mil.Value{n}, "axis": 0})
	b.Output("head", b.Op("slice_by_index", "head", mil.Args{"x": flat, "begin": []int{0}, "end": end}))
	b.Output("tail", b.Op("slice_by_size", "tail", mil.Args{"x": flat, "begin": n, "size": []int{-1}}))
	b.Output("twice", b.Op("tile", "twice", mil.Args{"x": n, "reps": rows}))
	b.Output("nonzero", b.Op("non_zero", "nonzero", mil.Args{"x": x}))
	prog := load(t, program(t, b), Options{})
	inst := prog.New()
	for _, rows := range []int{3, 1, 5} {
		x := iota32(mil.Float32, rows, 4)
		got, err := inst.Run("", map[string]*Tensor{"x": x, "n": intsOf(2)})
		if err != nil {
			t.Fatal(err)
		}
		if h := got["head"]; !slices.Equal(h.F, x.F[:2]) {
			t.Errorf("%d rows: head is %v", rows, h.F)
		}
		if h := got["tail"]; !slices.Equal(h.F, x.F[2:]) {
			t.Errorf("%d rows: tail is %v", rows, h.F)
		}
		if h := got["twice"]; !slices.Equal(h.I, slices.Repeat([]int32{2}, rows)) {
			t.Errorf("%d rows: twice is %v", rows, h.I)
		}
		if h := got["nonzero"]; !slices.Equal(h.Shape, []int{4*rows - 1, 2}) || h.I[len(h.I)-1] != 3 {
			t.Errorf("%d rows: nonzero is %v", rows, h)
		}
	}
}

// A wrong size or position that only shows at run time is an error that says
// which.
func TestMovementRunErrors(t *testing.T) {
	for _, tt := range []struct {
		kind string
		args mil.Args
		want string
	}{
		{"reshape", mil.Args{"x": floatsOf(1, 2, 3), "shape": intsOf(2, -1)}, "cannot reshape [3] to [2 -1]"},
		{"slice_by_size", mil.Args{"x": floatsOf(1, 2, 3), "begin": intsOf(2), "size": intsOf(2)}, "do not lie inside [3]"},
		{"slice_by_index", mil.Args{"x": floatsOf(1, 2, 3), "begin": intsOf(3), "end": intsOf(4)}, "begin 3 is out of range for size 3"},
		{"tile", mil.Args{"x": floatsOf(1, 2, 3), "reps": intsOf(0)}, "do not fit"},
		{"gather", mil.Args{"x": floatsOf(1, 2, 3), "indices": intsOf(0, 3)}, "indices[1] is 3, out of range for axis 0 of size 3"},
		{"gather", mil.Args{"x": floatsOf(1, 2, 3), "indices": intsOf(-4)}, "indices[0] is -4"},
		{"gather_along_axis", mil.Args{"x": floatsOf(1, 2, 3), "indices": intsOf(7)}, "indices[0] is 7, out of range"},
		{"gather_nd", mil.Args{"x": iota32(mil.Float32, 2, 3), "indices": shaped(intsOf(0, 0, 1, 3), 2, 2)}, "index vector 1 holds 3, out of range for axis 1 of size 3"},
		{"scatter", mil.Args{"data": floatsOf(1, 2), "indices": intsOf(2), "updates": floatsOf(1)}, "indices[0] is 2"},
		{"scatter_nd", mil.Args{"data": floatsOf(1, 2), "indices": shaped(intsOf(-3), 1, 1), "updates": floatsOf(1)}, "index vector 0 holds -3"},
		{"fill", mil.Args{"shape": intsOf(-2)}, "negative size"},
		{"reverse_sequence", mil.Args{"x": floatsOf(1, 2), "lengths": intsOf(3, 0)}, "lengths[0] is 3"},
	} {
		f := &failure{}
		func() {
			defer func() { _ = recover() }()
			runOp(f, Options{}, tt.kind, tt.args)
		}()
		if !strings.Contains(f.msg, tt.want) || !strings.Contains(f.msg, `op "out0" (`+tt.kind) {
			t.Errorf("%s: got %q, want %q", tt.kind, f.msg, tt.want)
		}
	}
}

// TestEmptySliceOfOne gives run-time bounds that leave nothing of an axis of
// one element, which inference takes for kept.
func TestEmptySliceOfOne(t *testing.T) {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("x", mil.T(mil.Float32, 1))
	end := b.Input("end", mil.T(mil.Int32, 1))
	b.Output("out", b.Op("slice_by_index", "cut", mil.Args{"x": x, "begin": []int{0}, "end": end}))
	fn, err := b.Func()
	if err != nil {
		t.Fatal(err)
	}
	p := mil.NewProgram()
	p.Functions["main"] = fn
	prog, err := Load(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	one := &Tensor{DType: mil.Float32, Shape: []int{1}, F: []float32{5}}
	for _, n := range []int32{1, 0} {
		_, err := prog.New().Run("", map[string]*Tensor{"x": one, "end": {DType: mil.Int32, Shape: []int{1}, I: []int32{n}}})
		if (err == nil) != (n == 1) {
			t.Errorf("end %d: %v", n, err)
		}
	}
}
