package parity_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity"
	"github.com/smelt-go/smelt/quant"
)

// TestCompressedBundles: bundles of compressed weights pass every gate, those of
// the formats that are used most on every architecture.
func TestCompressedBundles(t *testing.T) {
	presets := map[string][]string{
		"llama-tied": quant.Presets(),
		"gemma3":     {"coreml-w8", "coreml-int4-b32", "coreml-lut4-g32"},
		"gemma4-e2b": {"coreml-w8", "coreml-int4-b32", "coreml-lut4-g32"},
	}
	for name, list := range presets {
		src, err := fixtures.Dir(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, preset := range list {
			if !strings.HasPrefix(preset, "coreml-") {
				continue
			}
			t.Run(name+"/"+preset, func(t *testing.T) {
				t.Parallel()
				r, err := quant.Preset(preset, 0)
				if err != nil {
					t.Fatal(err)
				}
				r.KeepIndivisible = true
				bundle := filepath.Join(t.TempDir(), "bundle")
				if _, err := conversion.Convert(t.Context(), src, bundle, conversion.Options{Quantize: r}); err != nil {
					t.Fatal(err)
				}
				rep, err := parity.Verify(t.Context(), bundle, parity.Options{Checkpoint: src, Tokens: 48})
				if err != nil {
					t.Fatal(err)
				}
				if !rep.Pass {
					var b strings.Builder
					_ = rep.WriteText(&b)
					t.Errorf("failed: %v\n%s", rep.Failed(), b.String())
				}
				for _, g := range rep.Gates {
					if g.ID == "codes" && g.Status == parity.Skip {
						t.Errorf("gate codes was skipped: %s", g.Reason)
					}
				}
			})
		}
	}
}
