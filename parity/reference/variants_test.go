package reference

import (
	"path/filepath"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
)

// TestVariants compares tiny models with logits of mlx-lm, a program that
// shares nothing with this one: biases everywhere and linear rope scaling,
// Qwen2's window, a multimodal Gemma 3 in its older spelling, and a multimodal
// Gemma 4 without per-layer embeddings.
func TestVariants(t *testing.T) {
	for _, name := range []string{"llama-biased", "qwen2-window", "gemma3-nested", "gemma4-nested"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", name)
			src, err := checkpoint.OpenFile(filepath.Join(dir, "expected.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			g := &golden{src: src}
			for _, id := range g.ints(t, "input_ids") {
				g.ids = append(g.ids, int32(id))
			}
			r, err := openModel(t, dir).Forward(t.Context(), g.ids, Options{Head: true})
			if err != nil {
				t.Fatal(err)
			}
			want := g.matrix(t, "logits")
			d := maxDiff(t, r.Logits, want)
			t.Logf("max |Δ| %.2g (peak %.3g)", d, want.MaxAbs())
			if bound := 1e-4 * float64(want.MaxAbs()); !(d <= bound) {
				t.Errorf("logits: max |Δ| %g, want ≤ %g", d, bound)
			}
		})
	}
}
