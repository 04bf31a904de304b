package mil

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestReshapeShape(t *testing.T) {
	const u = Unknown
	for _, tt := range []struct {
		x, to []int
		opset Opset
		want  []int // nil for an error
	}{
		{[]int{2, 3, 4}, []int{6, -1}, 8, []int{6, 4}},
		{[]int{2, 3, 4}, []int{24}, 5, []int{24}},
		{[]int{}, []int{1, -1}, 8, []int{1, 1}},
		{[]int{1}, []int{}, 8, []int{}},
		{[]int{2, 50}, []int{1, 0, -1, 0}, 8, []int{1, 1, 2, 50}},
		{[]int{2, 50}, []int{1, 0, -1, 0}, 6, nil},
		{[]int{4, 3, 2}, []int{0, 6, 1}, 6, []int{4, 6, 1}},
		{[]int{4, 3, 2}, []int{0, -1}, 7, []int{3, 8}},
		{[]int{u, 4}, []int{-1, 2}, 8, []int{u, 2}},
		{[]int{u, 4}, []int{0, 2, 2}, 8, []int{1, 2, 2}},
		{[]int{u, 4}, []int{2, 0}, 8, []int{2, 4}},
		{[]int{0, 4}, []int{-1, 4}, 8, []int{0, 4}},
		{[]int{2, 3}, []int{-1, -1}, 8, nil},
		{[]int{2, 3}, []int{4, -1}, 8, nil},
		{[]int{2, 3}, []int{-2, -3}, 8, nil},
	} {
		got, err := ReshapeShape(tt.x, tt.to, tt.opset)
		if (err != nil) != (tt.want == nil) || err == nil && !slices.Equal(got, tt.want) {
			t.Errorf("%v to %v in %v: %v, %v, want %v", tt.x, tt.to, tt.opset, got, err, tt.want)
		}
	}
}

// pythonSlice lists the indices of range(n)[begin:end:step]; nil is None.
func pythonSlice(n int, begin, end *int, step int) []int {
	bound := func(v *int, def int) int {
		if v == nil {
			return def
		}
		k := *v
		if k < 0 {
			k += n
		}
		if step > 0 {
			return min(max(k, 0), n)
		}
		return min(max(k, -1), n-1)
	}
	out := []int{}
	if step > 0 {
		for i := bound(begin, 0); i < bound(end, n); i += step {
			out = append(out, i)
		}
	} else {
		for i := bound(begin, n-1); i > bound(end, -1); i += step {
			out = append(out, i)
		}
	}
	return out
}

// TestSliceLikePython compares with Python wherever begin and end lie inside
// the axis, which is where the two are meant to agree.
func TestSliceLikePython(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 9).Draw(t, "n")
		step := rapid.SampledFrom([]int{-3, -2, -1, 1, 2, 3, 20}).Draw(t, "step")
		b, e := rapid.IntRange(-n, n-1).Draw(t, "begin"), rapid.IntRange(-n, n-1).Draw(t, "end")
		bm, em := rapid.Bool().Draw(t, "begin_mask"), rapid.Bool().Draw(t, "end_mask")
		begin, end := &b, &e
		if bm {
			begin = nil
		}
		if em {
			end = nil
		}
		want := pythonSlice(n, begin, end, step)
		got, err := SliceParams{
			Begin: []int{b}, End: []int{e}, Stride: []int{step}, BeginMask: []bool{bm}, EndMask: []bool{em},
		}.Resolve([]int{n})
		if err != nil {
			if len(want) > 0 {
				t.Fatalf("%v, want %v", err, want)
			}
			return
		}
		var have []int
		for i := range got[0].N {
			have = append(have, got[0].Start+i*got[0].Step)
		}
		if !slices.Equal(have, want) {
			t.Fatalf("%v, want %v", have, want)
		}
	})
}

func TestSliceCorners(t *testing.T) {
	const u = Unknown
	on := []bool{true}
	for _, tt := range []struct {
		name string
		size int
		p    SliceParams
		want SliceAxis
		fail bool
	}{
		{"size 1 always yields its element", 1, SliceParams{Begin: []int{-1}, End: []int{0}}, SliceAxis{0, 1, 1, false}, false},
		{"end beyond the size", 5, SliceParams{Begin: []int{3}, End: []int{99}}, SliceAxis{3, 2, 1, false}, false},
		{"begin behind end", 5, SliceParams{Begin: []int{3}, End: []int{1}}, SliceAxis{}, true},
		{"begin equals end", 5, SliceParams{Begin: []int{3}, End: []int{3}}, SliceAxis{3, 0, 1, false}, false},
		{"one element of an unknown size", u, SliceParams{Begin: []int{3}, End: []int{4}}, SliceAxis{u, 1, 1, false}, false},
		{"the last of an unknown size", u, SliceParams{Begin: []int{-1}, End: []int{0}, EndMask: on}, SliceAxis{u, 1, 1, false}, false},
		{"unknown size", u, SliceParams{Begin: []int{1}, End: []int{4}}, SliceAxis{u, u, 1, false}, false},
		{"begin at run time", 5, SliceParams{End: []int{4}}, SliceAxis{u, u, 1, false}, false},
		{"everything although begin is not known", 5, SliceParams{BeginMask: on, EndMask: on}, SliceAxis{0, 5, 1, false}, false},
		{"squeeze", 5, SliceParams{Begin: []int{-2}, End: []int{0}, SqueezeAll: on}, SliceAxis{3, 1, 1, true}, false},
		{"squeeze at run time", 5, SliceParams{SqueezeAll: on}, SliceAxis{u, 1, 1, true}, false},
		{"squeeze out of range", 5, SliceParams{Begin: []int{5}, End: []int{0}, SqueezeAll: on}, SliceAxis{}, true},
		{"begin out of range for one element", 5, SliceParams{Begin: []int{7}, End: []int{8}}, SliceAxis{}, true},
		{"stride 0", 5, SliceParams{Begin: []int{0}, End: []int{1}, Stride: []int{0}}, SliceAxis{}, true},
		{"wrong length", 5, SliceParams{Begin: []int{0, 1}, End: []int{1}}, SliceAxis{}, true},
	} {
		got, err := tt.p.Resolve([]int{tt.size})
		if (err != nil) != tt.fail || err == nil && got[0] != tt.want {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestSizedShape(t *testing.T) {
	const u = Unknown
	for _, tt := range []struct{ x, begin, size, want []int }{
		{[]int{5, 4}, []int{1, 0}, []int{-1, 2}, []int{4, 2}},
		{[]int{5, 4}, []int{-2, 0}, []int{-1, 2}, []int{2, 2}},
		{[]int{5, u}, []int{1, 2}, []int{2, -1}, []int{2, u}},
		{[]int{5, 4}, nil, []int{-1, 2}, []int{u, 2}},
		{[]int{5, 4}, []int{3, 0}, []int{3, 2}, nil},
		{[]int{5, 4}, []int{-6, 0}, []int{3, 2}, nil},
		{[]int{5, 4}, []int{0}, []int{3, 2}, nil},
	} {
		got, err := SizedShape(tt.x, tt.begin, tt.size)
		if (err != nil) != (tt.want == nil) || err == nil && !slices.Equal(got, tt.want) {
			t.Errorf("%v from %v by %v: %v, %v, want %v", tt.x, tt.begin, tt.size, got, err, tt.want)
		}
	}
}
