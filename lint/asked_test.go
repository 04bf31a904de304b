package lint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/lint"
	"github.com/smelt-go/smelt/quant"
)

// TestAskedRecipes: a recipe that asks for what was rejected gets the figure;
// what is shipped gets nothing.
func TestAskedRecipes(t *testing.T) {
	for name, c := range map[string]struct {
		recipe string
		want   []string
	}{
		"4-bit palettes":   {`{"target": "coreml", "default": {"codec": "palette", "bits": 4, "group_size": 32}}`, []string{}},
		"8 bits":           {`{"target": "coreml", "default": {"codec": "linear", "bits": 8, "granularity": "channel"}}`, []string{}},
		"2-bit palettes":   {`{"target": "coreml", "default": {"codec": "palette", "bits": 2}}`, []string{"low-bit-palette"}},
		"3 bits in a rule": {`{"target": "coreml", "default": {"codec": "palette", "bits": 4}, "rules": [{"class": ["up"], "bits": 3}]}`, []string{"low-bit-palette"}},
		"4-bit table":      {`{"target": "coreml", "default": {"codec": "palette", "bits": 6}, "rules": [{"class": ["embedding"], "bits": 4}]}`, []string{"int4-embeddings"}},
		"for MLX":          {`{"target": "mlx", "default": {"codec": "affine", "bits": 2, "group_size": 64}}`, []string{}},
	} {
		r, err := quant.ParseRecipe([]byte(c.recipe))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := []string{}
		for _, w := range lint.Asked(nil, r) {
			got = append(got, w.ID)
			if !strings.ContainsAny(w.Measured, "0123456789") || !strings.Contains(w.Source, "docs/") {
				t.Errorf("%s: no figure or no source: %s", name, w)
			}
		}
		slices.Sort(got)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
