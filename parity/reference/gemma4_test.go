package reference

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// repeated returns layer types with a full one every n-th.
func repeated(layers, n int) []string {
	var kinds []string
	for i := range layers {
		kind := SlidingAttention
		if (i+1)%n == 0 {
			kind = FullAttention
		}
		kinds = append(kinds, kind.String())
	}
	return kinds
}

// TestGemma4Spellings: the published and the library's spelling, and what may
// be left out, read the same.
func TestGemma4Spellings(t *testing.T) {
	type set = map[string]any
	null := json.RawMessage("null")
	wide := set{"head_dim": 32}
	tests := []struct {
		name, fixture string
		changes       set
	}{
		{"library as published", "gemma4-e2b", set{"per_layer_config": nil, "global_head_dim": 32}},
		{"library as published, KV heads null", "gemma4-e2b", set{"per_layer_config": nil, "global_head_dim": 32, "num_global_key_value_heads": null}},
		{"library as published, KV heads said twice", "gemma4-e2b", set{"per_layer_config": nil, "global_head_dim": 32, "num_global_key_value_heads": 1}},
		{"published as library", "gemma4-e4b", set{"global_head_dim": nil, "num_global_key_value_heads": nil, "per_layer_config": set{"5": wide, "11": wide}}},
		{"both, agreeing", "gemma4-e4b", set{"per_layer_config": set{"5": wide, "11": set{"head_dim": 32, "num_key_value_heads": 2}}, "num_global_key_value_heads": 2}},
		{"sliding layers listed as they are", "gemma4-e4b", set{"global_head_dim": nil, "per_layer_config": set{"0": set{"head_dim": 16}, "5": wide, "11": wide}}},
		{"every sixth layer by default", "gemma4-e4b", set{"layer_types": nil}},
		{"layer_types null", "gemma4-e4b", set{"layer_types": null}},
		{"rope by default", "gemma4-e2b", set{"rope_parameters": nil}},
		{"rope factor 1", "gemma4-e2b", set{"rope_parameters": set{
			"full_attention":    set{"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6, "factor": 1},
			"sliding_attention": set{"rope_type": "default", "partial_rotary_factor": 1.0, "rope_theta": 1e4}}}},
		{"tied by default", "gemma4-e2b", set{"tie_word_embeddings": nil}},
		{"what is off left out", "gemma4-e4b", set{"attention_k_eq_v": nil, "enable_moe_block": nil, "attention_bias": nil, "use_double_wide_mlp": nil, "use_bidirectional_attention": nil}},
		{"images see both ways", "gemma4-e2b", set{"use_bidirectional_attention": "vision"}},
		{"experts of a block that is off", "gemma4-e2b", set{"num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 64}},
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

func TestGemma4Values(t *testing.T) {
	type set = map[string]any
	null := json.RawMessage("null")
	tests := []struct {
		name, fixture string
		changes       set
		want          func(c *Config)
	}{
		{"no softcap", "gemma4-e2b", set{"final_logit_softcapping": null}, func(c *Config) { c.FinalSoftcap = 0 }},
		{"nothing shared", "gemma4-e2b", set{"num_kv_shared_layers": 0}, func(c *Config) { c.KVSource = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9} }},
		{"one layer shares", "gemma4-e2b", set{"num_kv_shared_layers": 1}, func(c *Config) { c.KVSource = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 4} }},
		{"no per-layer embeddings", "gemma4-e2b", set{"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}, func(c *Config) { c.PerLayer = PerLayer{} }},
		{"KV heads of full layers", "gemma4-e2b", set{"per_layer_config": set{
			"4": set{"head_dim": 32, "num_key_value_heads": 2}, "9": set{"head_dim": 32, "num_key_value_heads": 2}}},
			func(c *Config) { c.FullKVHeads = 2 }},
		{"one head_dim", "gemma4-e2b", set{"per_layer_config": set{}}, func(c *Config) { c.FullHeadDim = 16 }},
		{"biases", "gemma4-e2b", set{"attention_bias": true}, func(c *Config) { c.QKVBias, c.OutBias = true, true }},
		{"other ropes", "gemma4-e2b", set{"rope_parameters": set{
			"full_attention":    set{"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 2e5, "factor": 8},
			"sliding_attention": set{"rope_type": "linear", "rope_theta": 1e3, "factor": 2}}},
			func(c *Config) {
				c.FullRope = Rope{Type: "proportional", Theta: 2e5, Factor: 8, Partial: 0.5}
				c.SlidingRope = Rope{Type: "linear", Theta: 1e3, Factor: 2}
			}},
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

// TestGemma4Published: the layouts of the two published sizes.
func TestGemma4Published(t *testing.T) {
	type set = map[string]any
	tests := []struct {
		name          string
		layers, every int
		sharing       int
		sliding, full int // producers
	}{
		{"E2B", 35, 5, 20, 13, 14},
		{"E4B", 42, 6, 18, 22, 23},
	}
	for _, tt := range tests {
		c, err := ParseConfig(edit(t, "gemma4-e4b", set{
			"num_hidden_layers": tt.layers, "layer_types": repeated(tt.layers, tt.every), "num_kv_shared_layers": tt.sharing, "use_double_wide_mlp": true}))
		if err != nil {
			t.Fatal(err)
		}
		for layer := range tt.layers {
			l, want := c.Layer(layer), Layer{Kind: SlidingAttention, KVHeads: 2, HeadDim: 16, KVSource: layer, Intermediate: 160}
			source := tt.sliding
			if (layer+1)%tt.every == 0 {
				want.Kind, want.HeadDim, source = FullAttention, 32, tt.full
			}
			if layer >= tt.layers-tt.sharing {
				want.KVSource, want.Intermediate = source, 320
			}
			if l != want {
				t.Errorf("%s layer %d: %+v, want %+v", tt.name, layer, l, want)
			}
		}
	}
}

func TestGemma4ConfigErrors(t *testing.T) {
	type set = map[string]any
	rope := func(full, sliding any) set {
		return set{"rope_parameters": set{"full_attention": full, "sliding_attention": sliding}}
	}
	local := set{"rope_type": "default", "rope_theta": 1e4}
	global := set{"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}
	tests := []struct {
		name, fixture string
		changes       set
		want          string
	}{
		{"k = v", "gemma4-e2b", set{"attention_k_eq_v": true}, "attention_k_eq_v: is true"},
		{"experts", "gemma4-e2b", set{"enable_moe_block": true, "num_experts": 8}, "enable_moe_block: is true"},
		{"all layers share", "gemma4-e2b", set{"num_kv_shared_layers": 10}, "num_kv_shared_layers: 10 of 10 layers"},
		{"more layers share", "gemma4-e2b", set{"num_kv_shared_layers": 11}, "num_kv_shared_layers: 11 of 10 layers"},
		{"negative count", "gemma4-e2b", set{"num_kv_shared_layers": -1}, "num_kv_shared_layers: want an integer ≥ 0, got -1"},
		{"no full producer", "gemma4-e2b", set{"num_kv_shared_layers": 6}, "num_kv_shared_layers: layer 4 shares the keys and values of a full_attention layer, but none of the first 4"},
		{"no sliding producer", "gemma4-e2b", set{"num_kv_shared_layers": 9, "layer_types": append([]string{"full_attention"}, repeated(9, 9)...), "per_layer_config": set{}},
			"num_kv_shared_layers: layer 1 shares the keys and values of a sliding_attention layer, but none of the first 1"},
		{"sharing not said", "gemma4-e2b", set{"num_kv_shared_layers": nil}, "num_kv_shared_layers: key is missing"},
		{"last layer sliding", "gemma4-e4b", set{"layer_types": repeated(12, 5)}, "layer_types: the last layer is sliding_attention"},
		{"neither spelling", "gemma4-e4b", set{"global_head_dim": nil}, "global_head_dim: key is missing, and per_layer_config too"},
		{"spellings disagree", "gemma4-e2b", set{"global_head_dim": 64}, "global_head_dim: is 64, but per_layer_config says 32"},
		{"spellings disagree on heads", "gemma4-e2b", set{"num_global_key_value_heads": 2}, "num_global_key_value_heads: is 2, but per_layer_config says 1"},
		{"KV heads that do not count", "gemma4-e4b", set{"num_global_key_value_heads": 4}, "num_global_key_value_heads: is 4 beside num_key_value_heads 2"},
		{"a full layer forgotten", "gemma4-e2b", set{"per_layer_config": set{"9": set{"head_dim": 32}}}, "per_layer_config: layer 4 (full_attention) has head_dim 16"},
		{"a sliding layer excepted", "gemma4-e2b", set{"per_layer_config": set{"3": set{"head_dim": 32}, "4": set{"head_dim": 32}, "9": set{"head_dim": 32}}}, "per_layer_config: layer 3 (sliding_attention) has head_dim 32"},
		{"an exception beyond", "gemma4-e2b", set{"per_layer_config": set{"10": set{"head_dim": 32}}}, `per_layer_config: "10" is not one of the 10 layers`},
		{"an exception without a number", "gemma4-e2b", set{"per_layer_config": set{"full_attention": set{"head_dim": 32}}}, `"full_attention" is not one of the 10 layers`},
		{"an unknown exception", "gemma4-e2b", set{"per_layer_config": set{"4": set{"intermediate_size": 32}}}, "per_layer_config: 4: intermediate_size: unknown key"},
		{"heads", "gemma4-e2b", set{"per_layer_config": set{"4": set{"num_key_value_heads": 3}, "9": set{"num_key_value_heads": 3}}}, "num_key_value_heads: 3 does not divide"},
		{"odd global head_dim", "gemma4-e4b", set{"global_head_dim": 31}, "head_dim: rope needs an even number, got 31"},
		{"per-layer vocabulary", "gemma4-e2b", set{"vocab_size_per_layer_input": 0}, "vocab_size_per_layer_input: is 0, but hidden_size_per_layer_input is 16"},
		{"per-layer width", "gemma4-e2b", set{"hidden_size_per_layer_input": nil}, "hidden_size_per_layer_input: key is missing"},
		{"bidirectional", "gemma4-e2b", set{"use_bidirectional_attention": "all"}, `use_bidirectional_attention: is "all"`},
		{"unknown rope", "gemma4-e2b", rope(set{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4}, local), `rope_parameters: full_attention: rope_type: "yarn" is not supported`},
		{"proportional without its part", "gemma4-e2b", rope(set{"rope_type": "proportional", "rope_theta": 1e6}, local), "full_attention: partial_rotary_factor: key is missing"},
		{"more than the head", "gemma4-e2b", rope(set{"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 1.5}, local), "partial_rotary_factor: 1.5 is more than the whole head"},
		{"default rope of a part", "gemma4-e2b", rope(global, set{"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}), `partial_rotary_factor: 0.5 is not supported with rope_type "default"`},
		{"no theta", "gemma4-e2b", rope(global, set{"rope_type": "default"}), "sliding_attention: rope_theta: key is missing"},
		{"no rope of a kind", "gemma4-e2b", set{"rope_parameters": set{"full_attention": global}}, "rope_parameters: sliding_attention: key is missing"},
		{"flat rope", "gemma4-e2b", set{"rope_parameters": set{"full_attention": global, "sliding_attention": local, "rope_theta": 1e4}}, "rope_parameters: rope_theta: unknown key"},
		{"proportional elsewhere", "gemma3", rope(global, local), `rope_type: "proportional" is not supported`},
		{"no window", "gemma4-e2b", set{"sliding_window": json.RawMessage("null")}, "sliding_window: key is missing"},
		{"unknown key", "gemma4-e2b", set{"query_pre_attn_scalar": 16}, "query_pre_attn_scalar: unknown key"},
		{"a drafter", "gemma4-mtp/assistant", nil, "Gemma4AssistantForCausalLM is a drafter"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseConfig(edit(t, tt.fixture, tt.changes))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}
