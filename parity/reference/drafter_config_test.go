package reference

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/fixtures"
)

func TestDrafterConfig(t *testing.T) {
	type set = map[string]any
	text := func(changes set) set {
		var outer map[string]json.RawMessage
		var inner set
		if err := json.Unmarshal(edit(t, "gemma4-mtp/assistant", nil), &outer); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(outer["text_config"], &inner); err != nil {
			t.Fatal(err)
		}
		maps.Copy(inner, changes)
		return set{"text_config": inner}
	}
	intact, err := ParseDrafterConfig(edit(t, "gemma4-mtp/assistant", nil))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		changes set
		want    func(c *DrafterConfig)
	}{
		"sharing left out":  {text(set{"num_kv_shared_layers": 0}), func(*DrafterConfig) {}},
		"published":         {text(set{"per_layer_config": json.RawMessage("null"), "global_head_dim": 32}), func(*DrafterConfig) {}},
		"unused softcap":    {text(set{"final_logit_softcapping": 30}), func(*DrafterConfig) {}},
		"whole vocabulary":  {set{"use_ordered_embeddings": false}, func(c *DrafterConfig) { c.Centroids, c.TopCentroids = 0, 0 }},
		"by default, whole": {set{"use_ordered_embeddings": nil, "num_centroids": nil, "centroid_intermediate_top_k": nil}, func(c *DrafterConfig) { c.Centroids, c.TopCentroids = 0, 0 }},
		"top 1":             {set{"centroid_intermediate_top_k": 1}, func(c *DrafterConfig) { c.TopCentroids = 1 }},
	} {
		want := intact
		tt.want(&want)
		got, err := ParseDrafterConfig(edit(t, "gemma4-mtp/assistant", tt.changes))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	for name, tt := range map[string]struct {
		changes set
		want    string
	}{
		"another architecture": {set{"architectures": []string{"Gemma4ForCausalLM"}}, "architectures: want Gemma4AssistantForCausalLM"},
		"no target":            {set{"backbone_hidden_size": nil}, "backbone_hidden_size: key is missing"},
		"no text_config":       {set{"text_config": nil}, "text_config: key is missing"},
		"clusters":             {set{"num_centroids": 30}, "num_centroids: 30 clusters do not divide the vocabulary of 512"},
		"too many clusters":    {set{"centroid_intermediate_top_k": 33}, "centroid_intermediate_top_k: 33 is more than num_centroids 32"},
		"unknown key":          {set{"draft_length": 4}, "draft_length: unknown key"},
		"keys of its own":      {text(set{"num_kv_shared_layers": 2}), "text_config: num_kv_shared_layers: is 2, but all 4 layers"},
		"per-layer embeddings": {text(set{"hidden_size_per_layer_input": 16}), "hidden_size_per_layer_input: is 16, but a drafter has no"},
		"double width":         {text(set{"use_double_wide_mlp": true}), "use_double_wide_mlp: is true"},
		"tied twice":           {text(set{"tie_word_embeddings": false}), "tie_word_embeddings: differs"},
	} {
		_, err := ParseDrafterConfig(edit(t, "gemma4-mtp/assistant", tt.changes))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
}

func TestDrafterTensors(t *testing.T) {
	dir, err := fixtures.Dir("gemma4-mtp/assistant")
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenDrafter(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	order := make([]int64, 512)
	for i := range order {
		order[i] = int64(511 - i)
	}
	twice, beyond := slices.Clone(order), slices.Clone(order)
	twice[7], beyond[9] = 0, 512
	ordering := func(v []int64) map[string]checkpoint.Tensor {
		return map[string]checkpoint.Tensor{tokenOrderName: checkpoint.NewInt64(tokenOrderName, []int{512}, v)}
	}
	for name, tt := range map[string]struct {
		with map[string]checkpoint.Tensor
		want string
	}{
		"another order":     {ordering(order), ""},
		"a token twice":     {ordering(twice), "element 511 is 0: not every token"},
		"a token beyond":    {ordering(beyond), "element 9 is 512: not every token"},
		"order in floats":   {map[string]checkpoint.Tensor{tokenOrderName: f32(tokenOrderName, []int{512}, make([]float32, 512))}, "holds no token ids"},
		"no order":          {map[string]checkpoint.Tensor{tokenOrderName: nil}, "is missing"},
		"another target":    {map[string]checkpoint.Tensor{preProjectionName: f32(preProjectionName, []int{48, 192}, make([]float32, 48*192))}, "asks for [48 160]"},
		"integers":          {map[string]checkpoint.Tensor{postProjectionName: checkpoint.NewInt64(postProjectionName, []int{80, 48}, make([]int64, 80*48))}, "not a plain floating point weight"},
		"per-layer network": {map[string]checkpoint.Tensor{perLayerNormName: f32(perLayerNormName, []int{16}, make([]float32, 16))}, "nothing in config.json makes use of it"},
	} {
		_, err := NewDrafter(patched{d.src, tt.with}, edit(t, "gemma4-mtp/assistant", nil))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
}
