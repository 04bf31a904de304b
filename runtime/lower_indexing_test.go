package runtime

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/mil"
)

// failure keeps the message of a failed helper.
type failure struct{ msg string }

func (f *failure) Helper() {}

func (f *failure) Fatalf(format string, args ...any) {
	f.msg = fmt.Sprintf(format, args...)
	panic(f)
}

func drawDims(t *rapid.T, what string, from, to int) []int {
	dims := make([]int, rapid.IntRange(from, to).Draw(t, what+" rank"))
	for i := range dims {
		dims[i] = rapid.IntRange(1, 4).Draw(t, what)
	}
	return dims
}

// drawIndices draws positions below n, some counted from the end.
func drawIndices(t *rapid.T, n int, shape []int) *Tensor {
	x := NewTensor(mil.Int32, shape...)
	for i := range x.I {
		x.I[i] = int32(rapid.IntRange(-n, n-1).Draw(t, "index"))
	}
	return x
}

// TestGatherAgainstDefinition: out[b, m, j, i] = x[b, m, indices[b, j], i].
func TestGatherAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch, mid, inner := drawDims(t, "batch", 0, 2), drawDims(t, "mid", 0, 1), drawDims(t, "inner", 0, 1)
		ij := drawDims(t, "indices", 0, 1+min(1, 3-len(batch)-len(mid)-len(inner)))
		n := rapid.IntRange(1, 5).Draw(t, "n")
		x := iota32(mil.Float32, slices.Concat(batch, mid, []int{n}, inner)...)
		ix := drawIndices(t, n, slices.Concat(batch, ij))
		var indices any = ix
		if len(ix.Shape) == 0 { // not a legal input of a program
			indices = int(ix.I[0])
		}
		got := runOp(t, Options{}, "gather", mil.Args{"x": x, "indices": indices, "axis": len(batch) + len(mid), "batch_dims": len(batch)})[0]
		if want := slices.Concat(batch, mid, ij, inner); !slices.Equal(got.Shape, want) {
			t.Fatalf("shape is %v, want %v", got.Shape, want)
		}
		nm, ni, nj := numElements(mid), numElements(inner), numElements(ij)
		for b := range numElements(batch) {
			for m := range nm {
				for j := range nj {
					for i := range ni {
						k := int(ix.I[b*nj+j])
						if k < 0 {
							k += n
						}
						if g, w := got.F[((b*nm+m)*nj+j)*ni+i], x.F[((b*nm+m)*n+k)*ni+i]; g != w {
							t.Fatalf("[%d %d %d %d] is %v, want %v", b, m, j, i, g, w)
						}
					}
				}
			}
		}
	})
}

// TestGatherNDUndoesScatterND: what is written at distinct positions is read
// back there, and nothing else changes.
func TestGatherNDUndoesScatterND(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape, inner := drawDims(t, "shape", 1, 3), drawDims(t, "inner", 0, 2)
		total := numElements(shape)
		n := rapid.IntRange(1, total).Draw(t, "n")
		at := rand.Perm(total)[:n]
		ix := NewTensor(mil.Int32, n, len(shape))
		for i, p := range at {
			for k := len(shape) - 1; k >= 0; k-- {
				ix.I[i*len(shape)+k] = int32(p % shape[k])
				p /= shape[k]
			}
		}
		data := iota32(mil.Int32, slices.Concat(shape, inner)...)
		updates := iota32(mil.Int32, slices.Concat([]int{n}, inner)...)
		for i := range updates.I {
			updates.I[i] += 1000
		}
		wrote := runOp(t, Options{}, "scatter_nd", mil.Args{"data": data, "indices": ix, "updates": updates, "mode": "update"})[0]
		read := runOp(t, Options{}, "gather_nd", mil.Args{"x": wrote, "indices": ix})[0]
		if !slices.Equal(read.I, updates.I) {
			t.Fatalf("read %v, wrote %v", read.I, updates.I)
		}
		w := numElements(inner)
		for i, v := range wrote.I {
			if !slices.Contains(at, i/w) && v != data.I[i] {
				t.Fatalf("element %d changed to %d", i, v)
			}
		}
	})
}

// TestScatterModes applies every mode, with a repeated index where the order
// does not matter.
func TestScatterModes(t *testing.T) {
	for mode, want := range map[string][]float32{
		"add": {10, 23, 30, 44}, "sub": {10, 17, 30, 36}, "mul": {10, 40, 30, 160}, "div": {10, 10, 30, 10},
		"max": {10, 20, 30, 40}, "min": {10, 1, 30, 4}, "update": {10, 2, 30, 4},
	} {
		got := runOp(t, Options{}, "scatter", mil.Args{
			"data": floatsOf(10, 20, 30, 40), "indices": intsOf(1, -1, 1), "updates": floatsOf(1, 4, 2), "mode": mode})[0]
		if !slices.Equal(got.F, want) {
			t.Errorf("%s: %v, want %v", mode, got.F, want)
		}
	}
	got := runOp(t, Options{}, "scatter", mil.Args{"data": intsOf(-7, 9), "indices": intsOf(0, 1), "updates": intsOf(2, 0), "mode": "div"})[0]
	if !slices.Equal(got.I, []int32{-3, 0}) {
		t.Errorf("integer div: %v", got.I)
	}
	got = runOp(t, Options{}, "scatter_along_axis", mil.Args{
		"data": iota32(mil.Int32, 2, 3), "indices": shaped(intsOf(2, 0), 2, 1), "updates": shaped(intsOf(50, 60), 2, 1), "axis": 1, "mode": "add"})[0]
	if !slices.Equal(got.I, []int32{0, 1, 52, 63, 4, 5}) {
		t.Errorf("along axis: %v", got.I)
	}
}

// TestTablesAreReadInPlace looks rows of large tables up, plain and
// compressed, and multiplies by the same values.
func TestTablesAreReadInPlace(t *testing.T) {
	const rows, cols = 512, 160
	codes := make([]int, rows*cols)
	for i := range codes {
		codes[i] = rand.IntN(16) - 8
	}
	scales := make([]float64, rows*cols/32)
	for i := range scales {
		scales[i] = float64(1+rand.IntN(64)) / 64
	}
	plain := make([]float64, len(codes))
	for i, c := range codes {
		plain[i] = float64(c) * scales[i/32] // exact in fp16
	}
	x := make([]float32, cols)
	for i := range x {
		x[i] = float32(rand.IntN(9) - 4)
	}
	var ref map[string]*Tensor
	for _, kind := range []string{"plain", "constexpr"} {
		b := mil.NewBuilder("main", mil.CoreML8)
		in, ix := b.Input("x", mil.T(mil.Float16, 1, cols)), b.Input("ix", mil.T(mil.Int32, 2, 2))
		var w *mil.Value
		if kind == "plain" {
			w = b.Const("w", mil.NewFloats(mil.Float16, []int{rows, cols}, plain...))
		} else {
			w = b.Op("constexpr_blockwise_shift_scale", "w", mil.Args{
				"data":  mil.NewInts(mil.Int4, []int{rows, cols}, codes...),
				"scale": mil.NewFloats(mil.Float16, []int{rows, cols / 32}, scales...)})
		}
		b.Output("looked_up", b.Op("gather", "looked_up", mil.Args{"x": w, "indices": ix, "axis": 0}))
		b.Output("product", b.Op("linear", "product", mil.Args{"x": in, "weight": w}))
		b.Output("column", b.Op("gather", "column", mil.Args{"x": w, "indices": 3, "axis": 1}))
		got, err := load(t, program(t, b), Options{}).New().Run("", map[string]*Tensor{
			"x": {DType: mil.Float16, Shape: []int{1, cols}, F: x}, "ix": shaped(intsOf(0, -1, 7, 511), 2, 2)})
		if err != nil {
			t.Fatal(err)
		}
		for k, r := range []int{0, rows - 1, 7, 511} {
			for i := range cols {
				if g := got["looked_up"].F[k*cols+i]; g != float32(plain[r*cols+i]) {
					t.Fatalf("%s: row %d, element %d is %v, want %v", kind, r, i, g, plain[r*cols+i])
				}
			}
		}
		if ref == nil {
			ref = got
			continue
		}
		for name, want := range ref {
			if !slices.Equal(got[name].F, want.F) {
				t.Errorf("%s: %s differs from the plain weight's", kind, name)
			}
		}
	}
}
