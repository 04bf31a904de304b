package rotation_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity/reference"
	"github.com/smelt-go/smelt/rotation"
)

func fixture(t *testing.T, name string) string {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func logits(t *testing.T, dir string) []float32 {
	t.Helper()
	m, err := reference.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids := make([]int32, 12)
	for i := range ids {
		ids[i] = int32(i*i*7+3) % int32(m.Config().Vocab)
	}
	r, err := m.Forward(t.Context(), ids, reference.Options{Head: true})
	if err != nil {
		t.Fatal(err)
	}
	return r.Logits.Data
}

// TestRotate: a rotated model computes the same, from weights that are others.
func TestRotate(t *testing.T) {
	for _, name := range []string{"llama-tied", "llama3-scaled", "qwen2", "qwen3"} {
		src, out := fixture(t, name), filepath.Join(t.TempDir(), "rotated")
		if err := rotation.Rotate(t.Context(), src, out, rotation.Options{Seed: 1}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, got := logits(t, src), logits(t, out)
		var top, worst float64
		for i, x := range want {
			top = max(top, math.Abs(float64(x)))
			worst = max(worst, math.Abs(float64(x)-float64(got[i])))
		}
		if !(worst < 1e-4*top) {
			t.Errorf("%s: a logit is off by %g of at most %g", name, worst, top)
		}
		a, err := checkpoint.Open(src)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		b, err := checkpoint.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		for _, w := range b.Names() {
			x, ok := a.Tensor(w)
			if !ok {
				continue // an untied head
			}
			p, err := checkpoint.ReadAll(x)
			if err != nil {
				t.Fatal(err)
			}
			y, _ := b.Tensor(w)
			q, err := checkpoint.ReadAll(y)
			if err != nil {
				t.Fatal(err)
			}
			same := 0
			for i := range p {
				if p[i] == q[i] {
					same++
				}
			}
			if strings.HasSuffix(w, "_proj.weight") && same > len(p)/10 {
				t.Errorf("%s: %d of %d elements of %s are as they were", name, same, len(p), w)
			}
			if strings.HasSuffix(w, "layernorm.weight") && q[0] != 1 {
				t.Errorf("%s: %s has gain %g", name, w, q[0])
			}
		}
	}
}

func TestRefused(t *testing.T) {
	err := rotation.Rotate(t.Context(), fixture(t, "gemma3"), filepath.Join(t.TempDir(), "out"), rotation.Options{})
	if err == nil || !strings.Contains(err.Error(), "do not commute") {
		t.Errorf("gemma3: error %v", err)
	}
	out := t.TempDir()
	if err := os.WriteFile(filepath.Join(out, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		if err := rotation.Rotate(t.Context(), fixture(t, "qwen2"), out, rotation.Options{Force: force}); err == nil {
			t.Errorf("force %v: a directory that is no model was replaced", force)
		}
	}
}
