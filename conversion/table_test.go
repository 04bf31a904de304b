package conversion

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
)

// A sidecar has the bytes that WriteFile gives, and the table knows its range
// afterwards, whatever type and alignment it has.
func TestTable(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const rows, width = 1100, 513 // more than one piece, odd sizes
	v := make([]float32, rows*width)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	v[777_77] = -100
	dir := t.TempDir()
	for _, d := range []checkpoint.DType{checkpoint.BF16, checkpoint.F16, checkpoint.F32, checkpoint.F64} {
		stored := checkpoint.AsType(checkpoint.NewFloat32("table", []int{rows, width}, v), d)
		if d == checkpoint.F64 {
			stored = doubles(t, []int{rows, width}, v)
		}
		file := filepath.Join(dir, "stored.safetensors")
		if err := checkpoint.WriteFile(file, []checkpoint.Tensor{stored, checkpoint.NewInt32("a", []int{3}, []int32{1, 2, 3})}, nil); err != nil {
			t.Fatal(err)
		}
		f, err := checkpoint.OpenFile(file)
		if err != nil {
			t.Fatal(err)
		}
		src, _ := f.Tensor("table")
		want := filepath.Join(dir, "want")
		narrow := checkpoint.Rename(src, "rows")
		if d == checkpoint.F64 {
			narrow = checkpoint.AsType(narrow, checkpoint.F32)
		}
		if err := checkpoint.WriteFile(want, []checkpoint.Tensor{narrow}, nil); err != nil {
			t.Fatal(err)
		}
		tab, got := &table{Tensor: src, ctx: t.Context()}, filepath.Join(dir, "got")
		if err := tab.sidecar(got, "rows"); err != nil {
			t.Fatal(err)
		}
		a, _ := os.ReadFile(want)
		b, _ := os.ReadFile(got)
		if !bytes.Equal(a, b) || len(a) == 0 {
			t.Errorf("%v: other bytes than WriteFile's", d)
		}
		if tab.peak != 100 {
			t.Errorf("%v: range %v, want 100", d, tab.peak)
		}
		f.Close()
	}
}

func doubles(t *testing.T, shape []int, v []float32) checkpoint.Tensor {
	t.Helper()
	var b []byte
	for _, x := range v {
		u := math.Float64bits(float64(x) * (1 + 0x1p-30)) // has to be rounded
		b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24), byte(u>>32), byte(u>>40), byte(u>>48), byte(u>>56))
	}
	d, err := checkpoint.NewRaw("table", checkpoint.F64, shape, b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTableFaults(t *testing.T) {
	v := make([]float32, 1<<20)
	v[600_000] = float32(math.Inf(1))
	for _, d := range []checkpoint.DType{checkpoint.BF16, checkpoint.F16, checkpoint.F32} {
		raw, err := checkpoint.ReadBytes(checkpoint.AsType(checkpoint.NewFloat32("t", []int{1 << 20}, v), d))
		if err != nil {
			t.Fatal(err)
		}
		stored, err := checkpoint.NewRaw("t", d, []int{1 << 20}, raw)
		if err != nil {
			t.Fatal(err)
		}
		_, err = (&table{Tensor: stored, ctx: t.Context()}).WriteTo(io.Discard)
		if err == nil || !strings.Contains(err.Error(), `tensor "t": element 600000 is +Inf`) {
			t.Errorf("%v: %v", d, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tab := &table{Tensor: checkpoint.NewFloat32("t", []int{1 << 20}, make([]float32, 1<<20)), ctx: ctx}
	if _, err := tab.WriteTo(io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
