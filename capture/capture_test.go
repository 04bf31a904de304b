package capture

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity/reference"
)

func sequences(n int) (out [][]int32) {
	for i := range n {
		out = append(out, []int32{int32(i + 1), 7, int32(3 * i), 11, 5})
	}
	return out
}

// What is written is what the reference decoder computes, under the right names.
func TestRun(t *testing.T) {
	dir, err := fixtures.Dir("gemma3")
	if err != nil {
		t.Fatal(err)
	}
	d, err := decoder.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := reference.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out := t.TempDir()
	o := Options{Taps: []int{-1, 1}, Norms: []string{Pre, Post}, DType: checkpoint.F32, Sequences: 2, Source: "abc"}
	x, err := Run(t.Context(), d, sequences(5), out, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Shards) != 3 || x.Shards[2].Sequences != 1 {
		t.Fatalf("%+v", x)
	}
	for i, ids := range sequences(5) {
		r, err := m.Forward(t.Context(), ids, reference.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f, err := checkpoint.OpenFile(filepath.Join(out, x.Shards[i/2].File))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]*reference.Matrix{"tap.-1": r.Hidden[0], "tap.1": r.Hidden[2],
			"hidden.pre": r.Hidden[len(r.Hidden)-1], "hidden.post": r.Norm} {
			x, ok := f.Tensor(name)
			if !ok {
				t.Fatalf("no %s", name)
			}
			got := make([]float32, len(want.Data))
			if err := x.ReadFloat32(got, i%2*len(got)); err != nil {
				t.Fatal(err)
			}
			for j := range got {
				if math.Abs(float64(got[j]-want.Data[j])) > 3e-5*float64(want.MaxAbs()) {
					t.Fatalf("%s of sequence %d, element %d: %v, want %v", name, i, j, got[j], want.Data[j])
				}
			}
		}
		f.Close()
	}
	// A run that was stopped goes on, to the same bytes.
	whole, err := os.ReadFile(filepath.Join(out, IndexFile))
	if err != nil {
		t.Fatal(err)
	}
	again := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(_ string, done, _ int64) {
		if done == 4 {
			cancel()
		}
	}
	if _, err := Run(ctx, d, sequences(5), again, o); err == nil {
		t.Fatal("the run was not stopped")
	}
	o.Progress = nil
	if _, err := Run(t.Context(), d, sequences(5), again, o); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(again, IndexFile)); err != nil || string(data) != string(whole) {
		t.Error("another capture after resuming")
	}
	if _, err := Run(t.Context(), d, sequences(4), again, o); err == nil || !strings.Contains(err.Error(), "of another run") {
		t.Errorf("another text in the same directory: %v", err)
	}
}

func TestRefuses(t *testing.T) {
	dir, err := fixtures.Dir("gemma3")
	if err != nil {
		t.Fatal(err)
	}
	d, err := decoder.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for want, o := range map[string]Options{
		"nothing is to be captured": {DType: checkpoint.F32}, "there is no layer 99": {Taps: []int{99}, DType: checkpoint.F32},
		"tapped twice": {Taps: []int{1, 1}, DType: checkpoint.F32}, `norm "mid"`: {Norms: []string{"mid"}, DType: checkpoint.F32},
		"values cannot be I32": {Taps: []int{1}, DType: checkpoint.I32},
	} {
		if _, err := Run(t.Context(), d, sequences(1), t.TempDir(), o); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
