package parity_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity"
	"github.com/smelt-go/smelt/runtime"
)

// drafterDir is a fixture, its recording, and the target if it needs one.
func drafterDir(t *testing.T, name string) (dir, golden, target string) {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(name, "gemma4-mtp/") {
		target = filepath.Dir(dir)
	}
	golden = filepath.Join(dir, "golden.safetensors")
	if root := os.Getenv("SMELT_GOLDENS"); root != "" {
		fuller := filepath.Join(root, strings.TrimPrefix(name, "drafters/"), "golden.safetensors")
		if _, err := os.Stat(fuller); err == nil {
			golden = fuller
		}
	}
	return dir, golden, target
}

func convertDrafter(t *testing.T, dir string, o conversion.DrafterOptions) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "drafter")
	o.Context = 80
	if strings.HasSuffix(dir, "eagle3-llama") || o.Taps != nil {
		o.Taps = []int{1, 3, 6}
	}
	if _, err := conversion.ConvertDrafter(t.Context(), dir, out, o); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestVerifyDrafter: good conversions of every drafter pass, in fp32 and fp16.
func TestVerifyDrafter(t *testing.T) {
	for _, name := range slices.Concat(fixtures.Drafters(), fixtures.TapDrafters()) {
		for _, compute := range []string{"fp32", "fp16"} {
			t.Run(name+"/"+compute, func(t *testing.T) {
				dir, golden, target := drafterDir(t, name)
				o := conversion.DrafterOptions{Compute: compute, Target: target}
				rep, err := parity.VerifyDrafter(t.Context(), convertDrafter(t, dir, o), parity.DrafterOptions{Golden: golden, Checkpoint: dir, Target: target})
				if err != nil {
					t.Fatal(err)
				}
				var text strings.Builder
				if err := rep.WriteText(&text); err != nil {
					t.Fatal(err)
				}
				if !rep.Pass || rep.Gate("needs") == nil || rep.Gate("golden.fp32") == nil || rep.Gate("drafts.typed") == nil || rep.Gate("rejected.golden.typed") == nil {
					t.Errorf("a good conversion:\n%s", text.String())
				}
				if testing.Verbose() {
					t.Log(text.String())
				}
			})
		}
	}
}

// TestVerifyDrafterNotices: each change makes another drafter of the same
// tensors.
func TestVerifyDrafterNotices(t *testing.T) {
	for name, tt := range map[string]struct {
		fixture, old, new string // of the config.json that is converted
		reading           string
		gate              string
	}{
		"slots read one apart": {fixture: "drafters/dspark-forward", reading: models.ReadMasks, gate: "golden.fp32"},
		"rope":                 {fixture: "drafters/eagle3-llama", old: `"rope_theta": 10000.0`, new: `"rope_theta": 20000.0`, gate: "drafts.fp32"},
		"window":               {fixture: "drafters/mtp-modules", old: `"kv_window": 16`, new: `"kv_window": 15`, gate: "golden.fp32"},
		"soft cap":             {fixture: "drafters/dspark-forward", old: `"final_logit_softcapping": 30.0`, new: `"final_logit_softcapping": null`, gate: "golden.fp32"},
		"taps":                 {fixture: "drafters/dspark-forward", old: "  8\n", new: "  0\n", gate: "needs"},
		"clusters":             {fixture: "gemma4-mtp/assistant", old: `"centroid_intermediate_top_k": 6`, new: `"centroid_intermediate_top_k": 5`, gate: "drafts.fp32"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, golden, target := drafterDir(t, tt.fixture)
			src := t.TempDir()
			if err := os.CopyFS(src, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(src, "config.json")
			data, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(data), tt.old) {
				t.Fatal(err, tt.old)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(data), tt.old, tt.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			o := conversion.DrafterOptions{Compute: "fp32", Target: target, Reading: tt.reading}
			if strings.HasSuffix(tt.fixture, "eagle3-llama") {
				o.Taps = []int{1, 3, 6}
			}
			bundle := convertDrafter(t, src, o)
			rep, err := parity.VerifyDrafter(t.Context(), bundle, parity.DrafterOptions{Golden: golden, Checkpoint: dir, Target: target, Modes: []runtime.Mode{runtime.FP32}})
			if tt.reading != "" && err != nil {
				// A block read from its second slot has a draft less than was recorded.
				if !strings.Contains(err.Error(), "gives 1 to 6") {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if g := rep.Gate(tt.gate); g == nil || g.Status != parity.Fail || rep.Pass {
				var text strings.Builder
				_ = rep.WriteText(&text)
				t.Errorf("%s did not fail:\n%s", tt.gate, text.String())
			}
		})
	}
}
