package models_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity/reference"
)

var variants = []string{"llama-biased", "qwen2-window", "gemma3-nested"}

// TestAgainstReference compares with the reference's parser, which was written
// apart: two readings of every published spelling must mean one model.
func TestAgainstReference(t *testing.T) {
	for _, name := range slices.Concat(fixtures.Names(), variants) {
		t.Run(name, func(t *testing.T) {
			data := config(t, name, nil)
			want, err := reference.ParseConfig(data)
			if err != nil {
				t.Fatal(err)
			}
			if d := agree(parse(t, data), want); d != "" {
				t.Errorf("(-reference +models)\n%s", d)
			}
		})
	}
}

// form is what both parsers say about a model.
type form struct {
	Layers, Hidden, Intermediate, Vocab, Heads, KVHeads, HeadDim, MaxPositions int
	Window                                                                     int
	Eps                                                                        float64
	UnitOffset, Sandwich, QKNorm, QKVBias, OBias, MLPBias, Tied                bool
	EmbedScale, AttnScale, AttnSoftcap, FinalSoftcap                           float32
	Kinds                                                                      []string
	Full, Sliding                                                              []float32 // inverse frequencies
}

func agree(c *models.Config, r reference.Config) string {
	window := 0
	if c.HasKind(models.Sliding, 0, c.Layers) {
		window = c.Window
	}
	got := form{c.Layers, c.Hidden, c.Intermediate, c.Vocab, c.Heads, c.KVHeads, c.HeadDim, c.MaxPositions, window, c.Eps,
		c.NormOffset == 1, c.Sandwich, c.QKNorm, c.QKVBias, c.OBias, c.MLPBias, c.Tied,
		float32(c.EmbedScale), float32(c.AttnScale), float32(c.AttnSoftcap), float32(c.FinalSoftcap), nil, nil, nil}
	want := form{r.Layers, r.Hidden, r.Intermediate, r.Vocab, r.Heads, r.KVHeads, r.HeadDim, r.MaxPositions, r.Window, r.NormEps,
		r.UnitOffset, r.Sandwich, r.QKNorm, r.QKVBias, r.OutBias, r.MLPBias, r.TiedHead,
		r.EmbedScale, r.ScoreScale, r.ScoreSoftcap, r.FinalSoftcap, nil, nil, nil}
	for _, k := range c.Kinds {
		got.Kinds = append(got.Kinds, string(k)+"_attention")
	}
	for _, k := range r.Kinds {
		want.Kinds = append(want.Kinds, k.String())
	}
	if c.HasKind(models.Full, 0, c.Layers) {
		got.Full, want.Full = c.Rope[models.Full].InvFreq(), r.FullRope.Frequencies(r.HeadDim)
	}
	if c.HasKind(models.Sliding, 0, c.Layers) {
		got.Sliding, want.Sliding = c.Rope[models.Sliding].InvFreq(), r.SlidingRope.Frequencies(r.HeadDim)
	}
	return cmp.Diff(want, got)
}

var llama3Scaling = set{"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 64}

func with(m set, key string, v any) set {
	out := set{key: v}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// TestSpellings: what means the same reads the same.
func TestSpellings(t *testing.T) {
	for _, tt := range []struct {
		name, fixture string
		changes       set
	}{
		{"older rope", "llama-tied", set{"rope_parameters": nil, "rope_theta": 100000.0}},
		{"older rope, null scaling", "llama-tied", set{"rope_parameters": nil, "rope_theta": 100000, "rope_scaling": null}},
		{"theta beside parameters", "llama-tied", set{"rope_parameters": set{"rope_type": "default"}, "rope_theta": 100000.0}},
		{"theta twice", "llama-tied", set{"rope_theta": 100000.0}},
		{"older llama3", "llama3-scaled", set{"rope_parameters": nil, "rope_theta": 500000.0, "rope_scaling": with(llama3Scaling, "rope_type", "llama3")}},
		{"type for rope_type", "llama3-scaled", set{"rope_parameters": nil, "rope_theta": 500000.0, "rope_scaling": with(llama3Scaling, "type", "llama3")}},
		{"whole head rotated", "llama-tied", set{"partial_rotary_factor": 1.0}},
		{"head_dim derived", "llama-tied", set{"head_dim": nil}},
		{"head_dim null", "llama-tied", set{"head_dim": null}},
		{"no bias switches", "llama-tied", set{"attention_bias": nil, "mlp_bias": nil}},
		{"untied when not said", "llama3-scaled", set{"tie_word_embeddings": nil}},
		{"Llama's layer_types", "llama-tied", set{"layer_types": slices.Repeat([]string{"full_attention"}, 5)}},
		{"activation by another name", "llama-tied", set{"hidden_act": "swish"}},
		{"no layer_types, window off", "qwen2", set{"layer_types": nil, "sliding_window": 64, "max_window_layers": 2}},
		{"window on but null", "qwen3", set{"layer_types": nil, "use_sliding_window": true, "sliding_window": null}},
		{"Qwen2's bias named", "qwen2", set{"attention_bias": true}},
		{"unknown but off", "qwen2", set{"use_mrope": false, "quantization_config": null, "adapters": []string{}}},
		{"older Gemma rope", "gemma3", set{"rope_parameters": nil, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rope_scaling": null}},
		{"Gemma rope twice", "gemma3", set{"rope_theta": 1000000.0, "rope_local_base_freq": 10000.0}},
		{"pattern for layer_types", "gemma3", set{"layer_types": nil, "_sliding_window_pattern": nil, "sliding_window_pattern": 4}},
		{"private pattern", "gemma3", set{"layer_types": nil, "_sliding_window_pattern": 4}},
		{"older activation key", "gemma3", set{"hidden_activation": null, "hidden_act": "gelu_pytorch_tanh"}},
		{"no model_type", "llama-tied", set{"model_type": nil}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want, got := parse(t, config(t, tt.fixture, nil)), parse(t, config(t, tt.fixture, tt.changes))
			got.ModelType = want.ModelType
			if want.Window == 0 || tt.changes["sliding_window"] != nil {
				got.Window = want.Window // of a model without sliding layers
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-as published +changed)\n%s", d)
			}
		})
	}
}

// TestValues: what means something else reads so.
func TestValues(t *testing.T) {
	full, sliding := models.Full, models.Sliding
	both := func(r models.Rope) map[models.Kind]models.Rope {
		return map[models.Kind]models.Rope{full: r, sliding: r}
	}
	for _, tt := range []struct {
		name, fixture string
		changes       set
		want          func(*models.Config)
	}{
		{"Llama 2 has as many key heads", "llama-tied", set{"num_key_value_heads": nil}, func(c *models.Config) { c.KVHeads = 6 }},
		{"Llama biases", "llama-tied", set{"attention_bias": true, "mlp_bias": true}, func(c *models.Config) { c.QKVBias, c.OBias, c.MLPBias = true, true, true }},
		{"linear rope", "llama-tied", set{"rope_parameters": set{"rope_type": "linear", "factor": 4, "rope_theta": 5e5}},
			func(c *models.Config) {
				c.Rope = map[models.Kind]models.Rope{full: {Type: "linear", Theta: 5e5, Dim: 16, Factor: 4}}
			}},
		{"Qwen2 window from a layer on", "qwen2", set{"layer_types": nil, "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 4},
			func(c *models.Config) { c.Window, c.Kinds = 9, []models.Kind{full, full, full, full, sliding, sliding} }},
		{"Qwen3 window by layer_types", "qwen3", set{"use_sliding_window": true, "sliding_window": 9,
			"layer_types": []string{"sliding_attention", "full_attention", "full_attention", "full_attention", "full_attention", "sliding_attention"}},
			func(c *models.Config) { c.Window, c.Kinds = 9, []models.Kind{sliding, full, full, full, full, sliding} }},
		{"Qwen3 bias", "qwen3", set{"attention_bias": true}, func(c *models.Config) { c.QKVBias, c.OBias = true, true }},
		{"Qwen2 linear rope", "qwen2", set{"rope_parameters": set{"rope_type": "linear", "factor": 2, "rope_theta": 1e6}},
			func(c *models.Config) { c.Rope = both(models.Rope{Type: "linear", Theta: 1e6, Dim: 16, Factor: 2}) }},
		{"Gemma scaling is the full layers'", "gemma3", set{"rope_parameters": nil, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": set{"rope_type": "linear", "factor": 8}},
			func(c *models.Config) { c.Rope[full] = models.Rope{Type: "linear", Theta: 1e6, Dim: 32, Factor: 8} }},
		{"Gemma soft caps", "gemma3", set{"attn_logit_softcapping": 50, "final_logit_softcapping": 30.0}, func(c *models.Config) { c.AttnSoftcap, c.FinalSoftcap = 50, 30 }},
		{"Gemma untied", "gemma3", set{"tie_word_embeddings": false}, func(c *models.Config) { c.Tied = false }},
		{"exact GELU", "gemma3", set{"hidden_activation": "gelu"}, func(c *models.Config) { c.Activation = "gelu" }},
		{"several end tokens", "gemma3", set{"eos_token_id": []int{1, 106}}, func(c *models.Config) { c.EOS = []int{1, 106} }},
		{"no end token", "gemma3", set{"eos_token_id": null, "bos_token_id": nil}, func(c *models.Config) { c.BOS, c.EOS = -1, nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := parse(t, config(t, tt.fixture, nil))
			tt.want(want)
			data := config(t, tt.fixture, tt.changes)
			got := parse(t, data)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			r, err := reference.ParseConfig(data)
			if err != nil {
				t.Fatal(err)
			}
			if d := agree(got, r); d != "" {
				t.Errorf("(-reference +models)\n%s", d)
			}
		})
	}
}

// TestDefaulted: a text_config may leave keys out, and the report says which.
func TestDefaulted(t *testing.T) {
	c := parse(t, config(t, "gemma3-nested", nil))
	for _, key := range []string{"max_position_embeddings", "hidden_activation"} {
		if !slices.Contains(c.Defaulted, key) {
			t.Errorf("%s is not among the defaults taken: %v", key, c.Defaulted)
		}
	}
	if slices.Contains(c.Defaulted, "head_dim") {
		t.Error("head_dim is given")
	}
}

func TestIgnore(t *testing.T) {
	data := config(t, "llama-tied", set{"attention_multiplier": 1.5})
	if _, err := models.ParseConfig(bytes.NewReader(data), "other"); err == nil || !strings.Contains(err.Error(), "--ignore-config-key attention_multiplier") {
		t.Errorf("got %v", err)
	}
	if _, err := models.ParseConfig(bytes.NewReader(data), "attention_multiplier"); err != nil {
		t.Error(err)
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, name := range slices.Concat(fixtures.Names(), variants) {
		f.Add(config(f, name, nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := models.ParseConfig(bytes.NewReader(data))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "models: ") {
				t.Errorf("error without its package: %v", err)
			}
			return
		}
		if len(c.Kinds) != c.Layers || c.Heads%c.KVHeads != 0 || len(c.AllKinds()) == 0 {
			t.Errorf("accepted an inconsistent config: %+v", c)
		}
		if r, err := reference.ParseConfig(data); err == nil {
			if d := agree(c, r); d != "" {
				t.Errorf("two readings (-reference +models)\n%s", d)
			}
		}
	})
}

// TestTwoReadings changes published configs at random: where both parsers take
// the result, they must take it for the same model.
func TestTwoReadings(t *testing.T) {
	rope := func(kind string) any { return set{"rope_type": kind, "rope_theta": 5e4, "factor": 4.0} }
	values := map[string][]any{
		"head_dim":                {null, 8, 24, 64},
		"num_key_value_heads":     {1, 2, 3, null},
		"num_attention_heads":     {1, 2, 4, 6},
		"num_hidden_layers":       {1, 3, 9},
		"layer_types":             {null, []string{}, []string{"full_attention"}},
		"attention_bias":          {true, false, null},
		"mlp_bias":                {true, false},
		"tie_word_embeddings":     {true, false, null},
		"use_sliding_window":      {true, false},
		"sliding_window":          {null, 5, 4096},
		"max_window_layers":       {0, 2, 28, null},
		"sliding_window_pattern":  {2, 3, null},
		"_sliding_window_pattern": {4, null},
		"rope_theta":              {1e4, null},
		"rope_local_base_freq":    {2e4},
		"rope_scaling":            {null, rope("linear"), rope("default"), set{"type": "linear", "factor": 2}},
		"rope_parameters": {null, rope("linear"), rope("llama3"), rope("yarn"), set{"rope_theta": 3e4},
			set{"full_attention": set{"rope_theta": 7e4}, "sliding_attention": set{"rope_type": "default", "rope_theta": 8e3}}},
		"hidden_act":              {"silu", "gelu", null},
		"hidden_activation":       {"gelu", "gelu_pytorch_tanh", null},
		"query_pre_attn_scalar":   {64, 1.5},
		"attn_logit_softcapping":  {30.0, null},
		"final_logit_softcapping": {20, null},
	}
	keys := slices.Sorted(maps.Keys(values))
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom([]string{"llama-tied", "llama3-scaled", "qwen2", "qwen3", "gemma3", "llama-biased", "qwen2-window"}).Draw(rt, "fixture")
		changes := set{}
		for range rapid.IntRange(1, 3).Draw(rt, "changes") {
			k := rapid.SampledFrom(keys).Draw(rt, "key")
			changes[k] = rapid.SampledFrom(values[k]).Draw(rt, "value")
		}
		data := config(t, name, changes)
		c, err := models.ParseConfig(bytes.NewReader(data))
		r, refErr := reference.ParseConfig(data)
		if err != nil || refErr != nil {
			return
		}
		accepted++
		if d := agree(c, r); d != "" {
			rt.Errorf("%s: two readings (-reference +models)\n%s", data, d)
		}
	})
	least := 10
	if testing.Short() {
		least = 1 // of a fifth as many
	}
	if accepted < least {
		t.Errorf("only %d configs were accepted by both", accepted)
	}
}
