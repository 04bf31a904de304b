package models

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/fixtures"
)

// TestDrafterConfigErrors: what files may leave open or contradict.
func TestDrafterConfigErrors(t *testing.T) {
	const eagle, dspark, mtp, assistant = "drafters/eagle3-llama", "drafters/dspark-forward", "drafters/mtp-modules", "gemma4-mtp/assistant"
	taps := DrafterChoices{Taps: []int{1, 3, 6}}
	for name, tt := range map[string]struct {
		fixture  string
		old, new string // of config.json
		choices  DrafterChoices
		want     string
	}{
		"eagle3 without a target":     {fixture: eagle, want: "name the target (--target DIR)"},
		"eagle3 of a tiny target":     {fixture: eagle, choices: DrafterChoices{TargetLayers: 4}, want: "no three layers to tap"},
		"eagle3 taps as inputs":       {fixture: eagle, choices: DrafterChoices{TargetLayers: 32, Taps: []int{2, 16, 29}}, want: "count outputs: [1 15 28]"},
		"eagle3 two taps":             {fixture: eagle, choices: DrafterChoices{Taps: []int{1, 3}}, want: "want three"},
		"eagle3 taps out of order":    {fixture: eagle, choices: DrafterChoices{Taps: []int{3, 1, 6}}, want: "not in the order low, middle, high"},
		"eagle3 last layer":           {fixture: eagle, choices: DrafterChoices{TargetLayers: 10, Taps: []int{1, 3, 9}}, want: "the target's last"},
		"eagle3 ids of two meanings":  {fixture: eagle, old: `"vocab_size"`, new: `"eagle_aux_hidden_state_layer_ids": [1, 3, 6], "vocab_size"`, choices: DrafterChoices{TargetLayers: 10}, want: "some runtimes take as inputs"},
		"eagle3 variant":              {fixture: eagle, old: `"vocab_size"`, new: `"norm_before_residual": true, "vocab_size"`, choices: taps, want: "norm_before_residual is a variant"},
		"eagle3 hidden width":         {fixture: eagle, old: `"vocab_size"`, new: `"target_hidden_size": 32, "vocab_size"`, choices: taps, want: `tensor "fc.weight" has shape [64 192], config.json implies [64 96]`},
		"eagle3 vocabulary":           {fixture: eagle, old: `"draft_vocab_size": 192`, new: `"draft_vocab_size": 600`, choices: taps, want: "draft_vocab_size is 600 of a vocab_size of 512"},
		"dspark reading not settled":  {fixture: dspark, old: `"block_size"`, new: `"sample_from_anchor": false, "block_size"`, want: "which token a slot guesses is not settled"},
		"dspark with a dflash_config": {fixture: dspark, old: `"block_size"`, new: `"dflash_config": {"a": 1}, "block_size"`, want: "which token a slot guesses is not settled"},
		"dspark unknown reading":      {fixture: dspark, choices: DrafterChoices{Reading: "both"}, want: `reading "both" is not known`},
		"dflash":                      {fixture: dspark, old: "Gemma4DSparkModel", new: "DFlashDraftModel", want: "does not settle which token a slot guesses"},
		"dspark taps the last layer":  {fixture: dspark, old: "  8\n", new: "  9\n", want: "the target's last"},
		"dspark taps beyond":          {fixture: dspark, old: "  8\n", new: "  12\n", want: "reads layer 12 of a target of 10 layers (wrong tap layers?)"},
		"dspark taps a layer twice":   {fixture: dspark, old: "  8\n", new: "  1\n", want: "name layer 1 twice"},
		"dspark of another target":    {fixture: dspark, choices: DrafterChoices{TargetLayers: 12}, want: "num_target_layers is 10, but the target has 12"},
		"dspark other heads":          {fixture: dspark, old: `"vanilla"`, new: `"rnn"`, want: `markov_head_type "rnn" is not supported`},
		"dspark one tap less":         {fixture: dspark, old: "  7,\n  8\n", new: "  7\n", want: `tensor "fc.weight" has shape [64 320], config.json implies [64 256]`},
		"mtp unknown key":             {fixture: mtp, old: `"num_modules"`, new: `"label_shift": 1, "num_modules"`, want: "label_shift"},
		"mtp a module more":           {fixture: mtp, old: `"num_modules": 2`, new: `"num_modules": 3`, want: "modules_list.2."},
		"assistant clusters":          {fixture: assistant, old: `"num_centroids": 32`, new: `"num_centroids": 33`, want: "do not divide a vocabulary of 512"},
		"assistant hidden width":      {fixture: assistant, old: `"backbone_hidden_size": 80`, new: `"backbone_hidden_size": 96`, want: `tensor "post_projection.weight"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := fixtures.Dir(tt.fixture)
			if err != nil {
				t.Fatal(err)
			}
			config, err := os.ReadFile(filepath.Join(dir, "config.json"))
			if err != nil || !strings.Contains(string(config), tt.old) {
				t.Fatal(err, tt.old)
			}
			src, err := checkpoint.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			changed := strings.Replace(string(config), tt.old, tt.new, 1)
			d, err := NewDrafter(strings.NewReader(changed), src, tt.choices, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
			if d != nil && err != nil {
				t.Error("a drafter beside an error")
			}
		})
	}
}

// TestDrafterChoices: what is said decides.
func TestDrafterChoices(t *testing.T) {
	dir, err := fixtures.Dir("drafters/eagle3-llama")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseDrafterConfig(bytes.NewReader(config), DrafterChoices{TargetLayers: 32})
	if err != nil || !slices.Equal(c.Taps, []int{1, 15, 28}) {
		t.Errorf("taps of a target of 32 layers: %v (%v), want those whose outputs enter layers 2, 16 and 29", c, err)
	}
	if !IsDrafter(config) || IsDrafter([]byte(`{"architectures": ["LlamaForCausalLM"]}`)) {
		t.Error("IsDrafter")
	}
}
