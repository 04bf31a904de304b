package parity_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity"
	"github.com/smelt-go/smelt/parity/reference"
)

func goldenOf(t testing.TB, name string) string {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "golden.safetensors")
}

// The reference decoder's recording is PyTorch's.
func TestRecordAgreesWithPyTorch(t *testing.T) {
	for _, name := range fixtures.Names() {
		want, err := parity.ReadGolden(goldenOf(t, name))
		if err != nil {
			t.Fatal(err)
		}
		m, err := reference.Open(filepath.Dir(goldenOf(t, name)))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		got, err := parity.Record(context.Background(), m, want.IDs, "reference")
		if err != nil {
			t.Fatal(err)
		}
		if math.IsNaN(want.Noise) || want.Noise <= 0 {
			t.Errorf("%s: noise %v, golden.json has one", name, want.Noise)
		}
		if math.Abs(got.MaxAbs-want.MaxAbs) > 1e-3*want.MaxAbs {
			t.Errorf("%s: largest logit %g, want %g", name, got.MaxAbs, want.MaxAbs)
		}
		for i := range want.Positions {
			a, b := &got.Positions[i], &want.Positions[i]
			if a.Argmax != b.Argmax || math.Abs(a.LSE-b.LSE) > 1e-3+want.Resolution || math.Abs(a.Margin()-b.Margin()) > 2e-3 {
				t.Errorf("%s: position %d: argmax %d, lse %g, margin %g; want %d, %g, %g",
					name, i, a.Argmax, a.LSE, a.Margin(), b.Argmax, b.LSE, b.Margin())
			}
		}
	}
}

// compact writes the compact form of a full recording.
func compact(t *testing.T, full *parity.Recording, path string, change func(map[string]checkpoint.Tensor)) {
	t.Helper()
	T, V := len(full.IDs), full.Vocab
	var argmax, topIDs []int32
	var topLogits, lse []float32
	for i := range full.Positions {
		p := &full.Positions[i]
		argmax = append(argmax, p.Argmax)
		lse = append(lse, float32(p.LSE))
		for _, s := range p.Top {
			topIDs, topLogits = append(topIDs, s.ID), append(topLogits, s.Logit)
		}
	}
	positions := []int32{0, 7, int32(T - 1)}
	var rows []float32
	for _, p := range positions {
		rows = append(rows, full.Positions[p].Row...)
	}
	tensors := map[string]checkpoint.Tensor{}
	for _, x := range []checkpoint.Tensor{
		checkpoint.NewInt32("input_ids", []int{T}, full.IDs), checkpoint.NewInt32("argmax", []int{T}, argmax),
		checkpoint.NewInt32("top5_ids", []int{T, 5}, topIDs), checkpoint.NewFloat32("top5_logits", []int{T, 5}, topLogits),
		checkpoint.NewFloat32("lse", []int{T}, lse), checkpoint.NewInt32("positions", []int{3}, positions),
		checkpoint.NewFloat32("logits", []int{3, V}, rows),
	} {
		tensors[x.Name()] = x
	}
	if change != nil {
		change(tensors)
	}
	var list []checkpoint.Tensor
	for _, x := range tensors {
		list = append(list, x)
	}
	if err := checkpoint.WriteFile(path, list, nil); err != nil {
		t.Fatal(err)
	}
}

func TestCompactRecording(t *testing.T) {
	full, err := parity.ReadGolden(goldenOf(t, "gemma3"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "compact.safetensors")
	compact(t, full, path, nil)
	got, err := parity.ReadGolden(path)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for i := range got.Positions {
		a, b := &got.Positions[i], &full.Positions[i]
		if a.Argmax != b.Argmax || !slices.Equal(a.Top, b.Top) || a.Margin() != b.Margin() {
			t.Errorf("position %d: %v, want %v", i, a.Top, b.Top)
		}
		if a.Row != nil {
			rows++
		}
	}
	if rows != 3 || got.Vocab != full.Vocab || !math.IsNaN(got.Noise) {
		t.Errorf("%d rows, vocabulary %d, noise %v", rows, got.Vocab, got.Noise)
	}
}

func TestBadRecordings(t *testing.T) {
	full, err := parity.ReadGolden(goldenOf(t, "llama-tied"))
	if err != nil {
		t.Fatal(err)
	}
	T := len(full.IDs)
	ids := func(v int32) []int32 {
		x := slices.Clone(full.IDs)
		x[3] = v
		return x
	}
	for _, c := range []struct {
		name, want string
		change     func(map[string]checkpoint.Tensor)
	}{
		{"no ids", `no tensor "input_ids"`, func(m map[string]checkpoint.Tensor) { delete(m, "input_ids") }},
		{"no lse", `no tensor "lse"`, func(m map[string]checkpoint.Tensor) { delete(m, "lse") }},
		{"short argmax", "do not fit", func(m map[string]checkpoint.Tensor) {
			m["argmax"] = checkpoint.NewInt32("argmax", []int{2}, []int32{1, 2})
		}},
		{"rank", "want 1 dimensions", func(m map[string]checkpoint.Tensor) {
			m["input_ids"] = checkpoint.NewInt32("input_ids", []int{1, T}, full.IDs)
		}},
		{"id", "outside the vocabulary", func(m map[string]checkpoint.Tensor) {
			m["input_ids"] = checkpoint.NewInt32("input_ids", []int{T}, ids(512))
		}},
		{"negative id", "outside the vocabulary", func(m map[string]checkpoint.Tensor) {
			m["input_ids"] = checkpoint.NewInt32("input_ids", []int{T}, ids(-1))
		}},
		{"position", "outside the", func(m map[string]checkpoint.Tensor) {
			m["positions"] = checkpoint.NewInt32("positions", []int{3}, []int32{0, 1, int32(T)})
		}},
		{"infinite", "not finite", func(m map[string]checkpoint.Tensor) {
			x := make([]float32, 3*full.Vocab)
			x[5] = float32(math.Inf(1))
			m["logits"] = checkpoint.NewFloat32("logits", []int{3, full.Vocab}, x)
		}},
		{"full form of another length", "logits have shape", func(m map[string]checkpoint.Tensor) { delete(m, "top5_ids") }},
	} {
		path := filepath.Join(t.TempDir(), "bad.safetensors")
		compact(t, full, path, c.change)
		if _, err := parity.ReadGolden(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", c.name, err, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "golden.safetensors")
	compact(t, full, path, nil)
	notes := strings.TrimSuffix(path, ".safetensors") + ".json"
	for text, want := range map[string]string{
		`{"noise": {"fp16_compute_vs_fp32": {"max_abs_dlogit": -1}}}`: "negative",
		`{"noise": [`: "golden.json",
	} {
		if err := os.WriteFile(notes, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := parity.ReadGolden(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("notes %s: error %v, want one that says %q", text, err, want)
		}
	}
	if _, err := parity.ReadGolden(filepath.Join(t.TempDir(), "none.safetensors")); !os.IsNotExist(rootCause(err)) {
		t.Errorf("missing file: %v", err)
	}
}

func rootCause(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok || u.Unwrap() == nil || os.IsNotExist(err) {
			return err
		}
		err = u.Unwrap()
	}
}
