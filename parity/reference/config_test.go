package reference

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/fixtures"
)

// edit returns a fixture's config.json with keys set; a nil value deletes.
func edit(t testing.TB, fixture string, changes map[string]any) []byte {
	t.Helper()
	dir, err := fixtures.Dir(fixture)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for key, value := range changes {
		if value == nil {
			delete(fields, key)
		} else {
			fields[key] = value
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestConfigSpellings: what means the same reads the same.
func TestConfigSpellings(t *testing.T) {
	type set = map[string]any
	tests := []struct {
		name, fixture string
		changes       set
	}{
		{"older rope", "llama-tied", set{"rope_parameters": nil, "rope_theta": 100000.0}},
		{"older rope with null scaling", "llama-tied", set{"rope_parameters": nil, "rope_theta": 100000, "rope_scaling": json.RawMessage("null")}},
		{"theta beside parameters", "llama-tied", set{"rope_parameters": set{"rope_type": "default"}, "rope_theta": 100000.0}},
		{"older llama3 scaling", "llama3-scaled", set{"rope_parameters": nil, "rope_theta": 500000.0, "rope_scaling": set{
			"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 64, "rope_type": "llama3"}}},
		{"type for rope_type", "llama3-scaled", set{"rope_parameters": nil, "rope_theta": 500000.0, "rope_scaling": set{
			"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 64, "type": "llama3"}}},
		{"head_dim by default", "llama-tied", set{"head_dim": nil}},
		{"head_dim null", "llama-tied", set{"head_dim": json.RawMessage("null")}},
		{"bias switches by default", "llama-tied", set{"attention_bias": nil, "mlp_bias": nil}},
		{"untied by default", "llama3-scaled", set{"tie_word_embeddings": nil}},
		{"no layer_types, window off", "qwen2", set{"layer_types": nil, "sliding_window": 64, "max_window_layers": 2}},
		{"window switched on without a window", "qwen3", set{"layer_types": nil, "use_sliding_window": true}},
		{"unknown but off", "qwen2", set{"use_mrope": false, "quantization_config": json.RawMessage("null")}},
		{"older Gemma rope", "gemma3", set{"rope_parameters": nil, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rope_scaling": json.RawMessage("null")}},
		{"Gemma thetas by default", "gemma3", set{"rope_parameters": nil}},
		{"pattern for layer_types", "gemma3", set{"layer_types": nil, "_sliding_window_pattern": nil, "sliding_window_pattern": 4}},
		{"private pattern for layer_types", "gemma3", set{"layer_types": nil, "_sliding_window_pattern": 4}},
		{"tied by default", "gemma3", set{"tie_word_embeddings": nil}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want, err := ParseConfig(edit(t, tt.fixture, nil))
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseConfig(edit(t, tt.fixture, tt.changes))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-as published +changed)\n%s", diff)
			}
		})
	}
}

func TestConfigValues(t *testing.T) {
	type set = map[string]any
	full, sliding := FullAttention, SlidingAttention
	tests := []struct {
		name, fixture string
		changes       set
		want          func(c *Config)
	}{
		{"Qwen2 window from a layer on", "qwen2",
			set{"layer_types": nil, "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 4},
			func(c *Config) { c.Window, c.Kinds = 9, []LayerKind{full, full, full, full, sliding, sliding} }},
		{"Qwen3 window by layer_types", "qwen3",
			set{"layer_types": []string{"sliding_attention", "full_attention", "full_attention", "full_attention", "full_attention", "sliding_attention"},
				"use_sliding_window": true, "sliding_window": 9},
			func(c *Config) { c.Window, c.Kinds = 9, []LayerKind{sliding, full, full, full, full, sliding} }},
		{"Qwen3 head_dim by default", "qwen3", set{"head_dim": nil},
			func(c *Config) { c.HeadDim, c.FullHeadDim, c.ScoreScale = 128, 128, inverseRoot(128) }},
		{"Qwen3 bias", "qwen3", set{"attention_bias": true},
			func(c *Config) { c.QKVBias, c.OutBias = true, true }},
		{"Llama biases", "llama-tied", set{"attention_bias": true, "mlp_bias": true},
			func(c *Config) { c.QKVBias, c.OutBias, c.MLPBias = true, true, true }},
		{"Llama without num_key_value_heads", "llama-tied", set{"num_key_value_heads": nil},
			func(c *Config) { c.KVHeads, c.FullKVHeads = c.Heads, c.Heads }},
		{"linear", "llama-tied", set{"rope_parameters": set{"rope_type": "linear", "factor": 4, "rope_theta": 5e5}},
			func(c *Config) {
				c.FullRope = Rope{Type: "linear", Factor: 4, Theta: 5e5}
				c.SlidingRope = c.FullRope
			}},
		{"Gemma scaling is for full layers", "gemma3", set{"rope_parameters": nil, "rope_scaling": set{"rope_type": "linear", "factor": 8}},
			func(c *Config) { c.FullRope = Rope{Type: "linear", Factor: 8, Theta: 1e6} }},
		{"Gemma softcaps", "gemma3", set{"attn_logit_softcapping": 50, "final_logit_softcapping": 30.0},
			func(c *Config) { c.ScoreSoftcap, c.FinalSoftcap = 50, 30 }},
		{"Gemma pattern by default", "gemma3", set{"layer_types": nil, "_sliding_window_pattern": nil},
			func(c *Config) {
				c.Kinds = []LayerKind{sliding, sliding, sliding, sliding, sliding, full, sliding, sliding}
			}},
		{"Gemma untied", "gemma3", set{"tie_word_embeddings": false}, func(c *Config) { c.TiedHead = false }},
		{"activation", "gemma3", set{"hidden_activation": "gelu"}, func(c *Config) { c.Activation = "gelu" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want, err := ParseConfig(edit(t, tt.fixture, nil))
			if err != nil {
				t.Fatal(err)
			}
			tt.want(&want)
			got, err := ParseConfig(edit(t, tt.fixture, tt.changes))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestConfigErrors(t *testing.T) {
	type set = map[string]any
	tests := []struct {
		name, fixture string
		changes       set
		want          string
	}{
		{"architecture", "qwen2", set{"architectures": []string{"MambaForCausalLM"}}, `"MambaForCausalLM" is not supported`},
		{"no architecture", "qwen2", set{"architectures": nil}, "architectures: want one name, got 0"},
		{"model_type", "qwen2", set{"model_type": "qwen3"}, `model_type: "qwen3" does not belong`},
		{"hidden_size", "llama-tied", set{"hidden_size": nil}, "hidden_size: key is missing"},
		{"eps", "llama-tied", set{"rms_norm_eps": nil}, "rms_norm_eps: key is missing"},
		{"theta", "llama-tied", set{"rope_parameters": nil}, "rope_theta: key is missing"},
		{"activation key", "llama-tied", set{"hidden_act": nil}, "hidden_act: key is missing"},
		{"kv heads", "qwen3", set{"num_key_value_heads": nil}, "num_key_value_heads: key is missing"},
		{"hidden_size type", "llama-tied", set{"hidden_size": "96"}, `hidden_size: want a positive integer, got "96"`},
		{"hidden_size negative", "llama-tied", set{"hidden_size": -96}, "hidden_size: want a positive integer, got -96"},
		{"layers", "llama-tied", set{"num_hidden_layers": 2000000000}, "num_hidden_layers: 2000000000 is more than"},
		{"activation", "llama-tied", set{"hidden_act": "xielu"}, `activation "xielu" is not supported`},
		{"yarn", "llama-tied", set{"rope_parameters": set{"rope_type": "yarn", "factor": 4, "rope_theta": 1e4}}, `rope_type: "yarn" is not supported`},
		{"dynamic", "llama-tied", set{"rope_parameters": nil, "rope_theta": 1e4, "rope_scaling": set{"type": "dynamic", "factor": 2}}, `rope_type: "dynamic" is not supported`},
		{"longrope", "llama-tied", set{"rope_parameters": set{"rope_type": "longrope", "rope_theta": 1e4}}, `rope_type: "longrope" is not supported`},
		{"llama3 without factor", "llama3-scaled", set{"rope_parameters": set{"rope_type": "llama3", "rope_theta": 1e4}}, "rope_parameters: factor: key is missing"},
		{"factor without a type", "llama-tied", set{"rope_parameters": set{"rope_theta": 1e4, "factor": 2.0}}, "rope_parameters: factor: unknown key"},
		{"two spellings", "llama-tied", set{"rope_scaling": set{"type": "linear", "factor": 2.0}}, "rope_scaling and rope_parameters are both set"},
		{"two thetas", "llama-tied", set{"rope_theta": 5.0}, "rope_theta: 100000, but 5 beside"},
		{"partial rope", "llama-tied", set{"partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5 is not supported"},
		{"flat rope of Gemma", "gemma3", set{"rope_parameters": set{"rope_theta": 1e6, "rope_type": "default"}}, "rope_parameters: rope_theta: unknown key"},
		{"unknown key", "llama-tied", set{"attention_multiplier": 0.5}, "attention_multiplier: unknown key with value 0.5"},
		{"quantized", "llama-tied", set{"quantization_config": set{"bits": 4}}, "quantization_config: unknown key"},
		{"window of Llama", "llama-tied", set{"sliding_window": 64}, "sliding_window: unknown key"},
		{"bias of Qwen2", "qwen2", set{"attention_bias": false}, "always has a bias"},
		{"short layer_types", "gemma3", set{"layer_types": []string{"full_attention"}}, "layer_types: has 1 entries for num_hidden_layers 8"},
		{"unknown layer type", "qwen2", set{"num_hidden_layers": 1, "layer_types": []string{"linear_attention"}}, `unknown layer type "linear_attention"`},
		{"sliding without a window", "qwen2", set{"num_hidden_layers": 1, "layer_types": []string{"sliding_attention"}}, "use_sliding_window is not true"},
		{"Gemma without a window", "gemma3", set{"sliding_window": json.RawMessage("null")}, "sliding_window: key is missing"},
		{"Qwen2 window without a start", "qwen2", set{"layer_types": nil, "use_sliding_window": true, "sliding_window": 8, "max_window_layers": nil}, "max_window_layers: key is missing"},
		{"bidirectional", "gemma3", set{"use_bidirectional_attention": true}, "only causal attention"},
		{"heads", "qwen2", set{"num_key_value_heads": 3}, "num_key_value_heads: 3 does not divide"},
		{"odd head_dim", "qwen3", set{"head_dim": 31}, "head_dim: rope needs an even number"},
		{"no text_config", "gemma3", set{"architectures": []string{"Gemma3ForConditionalGeneration"}, "model_type": "gemma3"}, "text_config: key is missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseConfig(edit(t, tt.fixture, tt.changes))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "reference: config.json: ") {
				t.Errorf("error does not name the file: %v", err)
			}
		})
	}
	for _, text := range []string{"", "null", "[]", "{", `{"architectures": "LlamaForCausalLM"}`, `{} {}`} {
		if _, err := ParseConfig([]byte(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, name := range slices.Concat(fixtures.Names(), fixtures.Gemma4(), fixtures.Drafters()) {
		f.Add(edit(f, name, nil))
	}
	for _, name := range []string{"gemma3-nested", "gemma4-nested"} {
		nested, err := os.ReadFile(filepath.Join("testdata", name, "config.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(nested)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err != nil {
			d, err := ParseDrafterConfig(data)
			if err != nil {
				return
			}
			c = d.Config
		}
		for i := range c.Kinds {
			if l := c.Layer(i); c.Heads%l.KVHeads != 0 || l.HeadDim%2 != 0 || l.KVSource > i || l.KVSource >= 0 && c.Kinds[l.KVSource] != l.Kind {
				t.Errorf("accepted an inconsistent layer %d: %+v", i, l)
			}
		}
		if len(c.Kinds) != c.Layers || c.Heads%c.KVHeads != 0 || c.HeadDim%2 != 0 || c.FullRope.Theta <= 0 || activations[c.Activation] == nil {
			t.Errorf("accepted an inconsistent config: %+v", c)
		}
	})
}
