package parity_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/runtime"
)

func drafterRecipe(t *testing.T, f quant.Format) *quant.Recipe {
	t.Helper()
	r := &quant.Recipe{Target: quant.TargetCoreML, KeepIndivisible: true, Default: f}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestVerifyQuantizedDrafter: drafters of every architecture with compressed
// weights decode to what was stored, within what their bits allow, and guess
// what the reference guesses with the decoded weights.
func TestVerifyQuantizedDrafter(t *testing.T) {
	formats := map[string]quant.Format{
		"w8":           {Codec: "linear", Bits: 8, Granularity: "channel"},
		"int4-b16":     {Codec: "linear", Bits: 4, GroupSize: 16, Granularity: "block"},
		"lut4":         {Codec: "palette", Bits: 4, GroupSize: 16},
		"lut4 refit":   {Codec: "palette", Bits: 4, ChannelScale: true, Method: quant.Refit},
		"sparse50 int": {Codec: "linear", Bits: 8, Granularity: "channel", Sparsity: 0.5},
	}
	for _, name := range slices.Concat(fixtures.Drafters(), fixtures.TapDrafters()) {
		for what, f := range formats {
			t.Run(name+"/"+what, func(t *testing.T) {
				dir, golden, target := drafterDir(t, name)
				o := conversion.DrafterOptions{Target: target, Quantize: drafterRecipe(t, f)}
				bundle := convertDrafter(t, dir, o)
				rep, err := parity.VerifyDrafter(t.Context(), bundle, parity.DrafterOptions{Golden: golden, Checkpoint: dir, Target: target})
				if err != nil {
					t.Fatal(err)
				}
				if !rep.Pass || rep.Gate("codes") == nil || rep.Gate("golden.fp32") == nil || rep.Gate("drafts.typed") == nil {
					var text strings.Builder
					_ = rep.WriteText(&text)
					t.Errorf("a good conversion:\n%s", text.String())
				}
				if _, err := parity.VerifyDrafter(t.Context(), bundle, parity.DrafterOptions{Golden: golden, Target: target}); err == nil || !strings.Contains(err.Error(), "--checkpoint") {
					t.Errorf("a compressed drafter was held against a recording of its original: %v", err)
				}
			})
		}
	}
}

// TestVerifyQuantizedDrafterNotices: codes of other weights than the
// checkpoint's are found, wherever they are.
func TestVerifyQuantizedDrafterNotices(t *testing.T) {
	for name, tensor := range map[string]string{
		"drafters/dspark-forward":    "markov_head.markov_w2.weight",
		"drafters/eagle3-llama":      "fc.weight",
		"drafters/mtp-modules":       "modules_list.1.input_proj.weight",
		"gemma4-mtp/assistant":       "model.embed_tokens.weight",
		"gemma4-mtp/assistant-plain": "pre_projection.weight",
	} {
		t.Run(name, func(t *testing.T) {
			dir, golden, target := drafterDir(t, name)
			other := t.TempDir()
			config, err := os.ReadFile(filepath.Join(dir, "config.json"))
			if err == nil {
				err = os.WriteFile(filepath.Join(other, "config.json"), config, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			swapped(t, dir, other, tensor)
			o := conversion.DrafterOptions{Target: target, Quantize: drafterRecipe(t, quant.Format{Codec: "linear", Bits: 4, GroupSize: 16, Granularity: "block"})}
			if strings.HasSuffix(name, "eagle3-llama") {
				o.Taps = []int{1, 3, 6}
			}
			rep, err := parity.VerifyDrafter(t.Context(), convertDrafter(t, other, o), parity.DrafterOptions{Golden: golden, Checkpoint: dir, Target: target, Modes: []runtime.Mode{runtime.FP32}})
			if err != nil {
				t.Fatal(err)
			}
			if g := rep.Gate("codes"); g == nil || g.Status != parity.Fail || rep.Pass {
				var text strings.Builder
				_ = rep.WriteText(&text)
				t.Errorf("rows of %s the wrong way round were not noticed:\n%s", tensor, text.String())
			}
		})
	}
}

// swapped copies a checkpoint with the rows of a tensor in reverse.
func swapped(t *testing.T, from, to, name string) {
	t.Helper()
	ck, err := checkpoint.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	var out []checkpoint.Tensor
	for _, n := range ck.Names() {
		x, _ := ck.Tensor(n)
		if n == name {
			v, err := checkpoint.ReadAll(x)
			if err != nil {
				t.Fatal(err)
			}
			var back []float32
			for row := range slices.Chunk(v, x.Shape()[1]) {
				back = append(slices.Clone(row), back...)
			}
			x = checkpoint.NewFloat32(n, x.Shape(), back)
		}
		out = append(out, x)
	}
	if err := checkpoint.WriteFile(filepath.Join(to, "model.safetensors"), out, nil); err != nil {
		t.Fatal(err)
	}
}
