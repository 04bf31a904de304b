package parity_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/parity"
)

// TestRealModels converts the checkpoints in SMELT_REAL_MODELS that have a
// recording of the same name in SMELT_REAL_GOLDENS and asks every gate.
func TestRealModels(t *testing.T) {
	models, goldens := os.Getenv("SMELT_REAL_MODELS"), os.Getenv("SMELT_REAL_GOLDENS")
	if models == "" || goldens == "" {
		t.Skip("SMELT_REAL_MODELS and SMELT_REAL_GOLDENS are not set")
	}
	files, err := filepath.Glob(filepath.Join(goldens, "*.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings in %s", goldens)
	}
	for _, golden := range files {
		name := strings.TrimSuffix(filepath.Base(golden), ".safetensors")
		t.Run(name, func(t *testing.T) {
			src := filepath.Join(models, name)
			if _, err := os.Stat(src); err != nil {
				t.Skip(err)
			}
			bundle := filepath.Join(t.TempDir(), "bundle")
			if _, err := conversion.Convert(context.Background(), src, bundle, conversion.Options{}); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			rep, err := parity.Verify(context.Background(), bundle, parity.Options{Golden: golden, Checkpoint: src})
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			_ = rep.WriteText(&b)
			t.Logf("%.0f s\n%s", time.Since(start).Seconds(), b.String())
			for _, g := range rep.Gates {
				t.Logf("%s %.1f s", g.ID, g.Seconds)
				for _, n := range g.Numbers {
					if strings.Contains(g.ID, "typed") && n.Name == "argmax_agreement" && n.Value < 0.99 {
						t.Errorf("%s: argmax agreement %.4f, want at least 0.99", g.ID, n.Value)
					}
				}
			}
			if !rep.Pass {
				t.Errorf("failed: %v", rep.Failed())
			}
		})
	}
}
