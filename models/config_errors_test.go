package models_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/models"
)

// TestConfigErrors: every config that cannot be honoured is refused by name.
func TestConfigErrors(t *testing.T) {
	nested := set{"architectures": []string{"Gemma3ForConditionalGeneration"}, "model_type": "gemma3"}
	for _, tt := range []struct {
		name, fixture string
		changes       set
		want          string
	}{
		{"architecture", "qwen2", set{"architectures": []string{"MambaForCausalLM"}}, `architecture "MambaForCausalLM" is not supported (known: LlamaForCausalLM`},
		{"no architecture", "qwen2", set{"architectures": nil}, `"architectures" must name one class`},
		{"two architectures", "qwen2", set{"architectures": []string{"Qwen2ForCausalLM", "LlamaForCausalLM"}}, `must name one class`},
		{"model_type", "qwen2", set{"model_type": "qwen3"}, `model_type "qwen3" contradicts the architecture`},
		{"no hidden_size", "llama-tied", set{"hidden_size": nil}, `key "hidden_size" is missing`},
		{"no layers", "gemma3", set{"num_hidden_layers": nil}, `key "num_hidden_layers" is missing`},
		{"no vocabulary", "gemma3", set{"vocab_size": nil}, `key "vocab_size" is missing`},
		{"no positions", "qwen3", set{"max_position_embeddings": nil}, `key "max_position_embeddings" is missing`},
		{"no epsilon", "llama-tied", set{"rms_norm_eps": nil}, `key "rms_norm_eps" is missing`},
		{"no theta", "llama-tied", set{"rope_parameters": nil}, `key "rope_theta" is missing`},
		{"no theta in parameters", "qwen3", set{"rope_parameters": set{"rope_type": "default"}}, `key "rope_parameters.rope_theta" is missing`},
		{"no activation", "llama-tied", set{"hidden_act": nil}, `key "hidden_act" is missing`},
		{"no kv heads", "qwen3", set{"num_key_value_heads": nil}, `key "num_key_value_heads" is missing`},
		{"no head_dim", "qwen3", set{"head_dim": nil}, `key "head_dim" is missing`},
		{"no head_dim of Gemma", "gemma3", set{"head_dim": null}, `key "head_dim" is missing`},
		{"no attention scale", "gemma3", set{"query_pre_attn_scalar": nil}, `key "query_pre_attn_scalar" is missing`},
		{"no thetas of Gemma", "gemma3", set{"rope_parameters": nil}, `key "rope_theta" is missing`},
		{"one theta of Gemma", "gemma3", set{"rope_parameters": nil, "rope_theta": 1e6}, `key "rope_local_base_freq" is missing`},
		{"one kind of Gemma", "gemma3", set{"rope_parameters": set{"full_attention": set{"rope_theta": 1e6}}}, `key "rope_parameters.sliding_attention" is missing`},
		{"no pattern", "gemma3", set{"layer_types": nil, "_sliding_window_pattern": nil}, `key "sliding_window_pattern" is missing`},
		{"zero pattern", "gemma3", set{"layer_types": nil, "_sliding_window_pattern": 0}, `_sliding_window_pattern is 0`},
		{"hidden_size is text", "llama-tied", set{"hidden_size": "96"}, `hidden_size is "96", want a whole number`},
		{"hidden_size is a fraction", "llama-tied", set{"hidden_size": 96.5}, `hidden_size is 96.5, want a whole number`},
		{"hidden_size is negative", "llama-tied", set{"hidden_size": -96}, `hidden_size is -96, want a positive number`},
		{"endless layers", "llama-tied", set{"num_hidden_layers": 2000000000}, `num_hidden_layers is 2000000000, want at most 4096`},
		{"flag is a number", "llama-tied", set{"tie_word_embeddings": 1}, `tie_word_embeddings is 1, want true or false`},
		{"activation", "llama-tied", set{"hidden_act": "xielu"}, `hidden_act "xielu" is not supported`},
		{"two activations", "gemma3", set{"hidden_act": "silu"}, `hidden_act "silu" contradicts hidden_activation`},
		{"yarn", "llama-tied", set{"rope_parameters": set{"rope_type": "yarn", "factor": 4, "rope_theta": 1e4}}, `rope type "yarn" is not supported (known: default, linear, llama3)`},
		{"dynamic", "llama-tied", set{"rope_parameters": nil, "rope_theta": 1e4, "rope_scaling": set{"type": "dynamic", "factor": 2}}, `rope type "dynamic" is not supported`},
		{"longrope", "qwen2", set{"rope_parameters": set{"rope_type": "longrope", "rope_theta": 1e4}}, `rope type "longrope" is not supported`},
		{"yarn of Gemma", "gemma3", set{"rope_parameters": nil, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": set{"rope_type": "yarn", "factor": 8}}, `rope type "yarn"`},
		{"partial rotation", "llama-tied", set{"partial_rotary_factor": 0.5}, `partial_rotary_factor 0.5 is not supported`},
		{"partial rotation in parameters", "llama-tied", set{"rope_parameters": set{"rope_theta": 1e4, "partial_rotary_factor": 0.25}}, `partial_rotary_factor 0.25 is not supported`},
		{"llama3 without a factor", "llama3-scaled", set{"rope_parameters": set{"rope_type": "llama3", "rope_theta": 1e4}}, `rope_parameters: key "factor" is missing`},
		{"llama3 bands crossed", "llama3-scaled", set{"rope_parameters": set{"rope_type": "llama3", "rope_theta": 1e4, "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1, "original_max_position_embeddings": 64}}, `low_freq_factor < high_freq_factor`},
		{"factor zero", "llama-tied", set{"rope_parameters": set{"rope_type": "linear", "rope_theta": 1e4, "factor": 0}}, `factor is 0, want a positive number`},
		{"theta zero", "llama-tied", set{"rope_parameters": set{"rope_theta": 0}}, `rope_theta is 0, want a positive number`},
		{"factor without a type", "llama-tied", set{"rope_parameters": set{"rope_theta": 1e4, "factor": 2.0}}, `key "factor" is not known`},
		{"two spellings", "llama-tied", set{"rope_scaling": set{"type": "linear", "factor": 2.0}}, `rope_scaling and rope_parameters are both given`},
		{"two spellings of Gemma", "gemma3", set{"rope_scaling": set{"type": "linear", "factor": 2.0}}, `rope_scaling and rope_parameters are both given`},
		{"two thetas", "llama-tied", set{"rope_theta": 5.0}, `rope_theta 100000 contradicts 5`},
		{"two thetas of Gemma", "gemma3", set{"rope_local_base_freq": 5.0}, `rope_theta 10000 contradicts 5`},
		{"two rope types", "llama-tied", set{"rope_parameters": set{"rope_theta": 1e4, "rope_type": "default", "type": "linear"}}, `rope_type "default" contradicts type "linear"`},
		{"flat rope of Gemma", "gemma3", set{"rope_parameters": set{"rope_theta": 1e6, "rope_type": "default"}}, `key "rope_parameters.full_attention" is missing`},
		{"rope is a list", "llama-tied", set{"rope_parameters": []int{1}}, `rope_parameters is not a JSON object`},
		{"unknown key", "llama-tied", set{"attention_multiplier": 0.5}, `key "attention_multiplier" is not known and may change the mathematics`},
		{"unknown keys", "llama-tied", set{"zeta": 1, "alpha": 2}, `key "alpha", "zeta" is not known`},
		{"quantized", "llama-tied", set{"quantization_config": set{"bits": 4}}, `key "quantization_config" is not known`},
		{"window of Llama", "llama-tied", set{"sliding_window": 64}, `key "sliding_window" is not known`},
		{"sliding layer of Llama", "llama-tied", set{"layer_types": []string{"sliding_attention", "full_attention", "full_attention", "full_attention", "full_attention"}}, `layer_types[0] is sliding; Llama has full attention only`},
		{"bias of Qwen2", "qwen2", set{"attention_bias": false}, `Qwen2 always has biases`},
		{"short layer_types", "gemma3", set{"layer_types": []string{"full_attention"}}, `layer_types has 1 entries for 8 layers`},
		{"layer_types is text", "gemma3", set{"layer_types": "full_attention"}, `layer_types is not a list of strings`},
		{"unknown layer type", "qwen2", set{"num_hidden_layers": 1, "layer_types": []string{"linear_attention"}}, `layer_types[0] is "linear_attention"`},
		{"sliding without a window", "qwen2", set{"num_hidden_layers": 1, "layer_types": []string{"sliding_attention"}}, `sliding_window is 0 but there are sliding layers`},
		{"Gemma without a window", "gemma3", set{"sliding_window": null}, `sliding_window is 0 but there are sliding layers`},
		{"Qwen2 window without a size", "qwen2", set{"layer_types": nil, "use_sliding_window": true, "sliding_window": nil}, `key "sliding_window" is missing`},
		{"Qwen2 window without a start", "qwen2", set{"layer_types": nil, "use_sliding_window": true, "sliding_window": 8, "max_window_layers": nil}, `key "max_window_layers" is missing`},
		{"bidirectional", "gemma3", set{"use_bidirectional_attention": true}, `use_bidirectional_attention is not supported`},
		{"attention scale zero", "gemma3", set{"query_pre_attn_scalar": 0}, `the attention scale is +Inf`},
		{"negative soft cap", "gemma3", set{"final_logit_softcapping": -30}, `soft caps are 0 (attention) and -30 (final)`},
		{"heads", "qwen2", set{"num_key_value_heads": 3}, `num_attention_heads 7 is not a multiple of num_key_value_heads 3`},
		{"odd head_dim", "qwen3", set{"head_dim": 31}, `head_dim 31 is odd`},
		{"head_dim not derivable", "llama-tied", set{"head_dim": nil, "num_attention_heads": 7, "num_key_value_heads": 1}, `hidden_size 96 is not a multiple of num_attention_heads 7`},
		{"eos", "gemma3", set{"eos_token_id": "</s>"}, `eos_token_id is neither a number nor a list`},
		{"no text_config", "gemma3", nested, `key "text_config" is missing`},
		{"null text_config", "gemma3", with(nested, "text_config", null), `text_config is null`},
		{"text_config of another model", "gemma3-nested", set{"text_config": set{"model_type": "gemma2"}}, `model_type "gemma2" contradicts`},
		{"quantized beside text_config", "gemma3-nested", set{"quantization_config": set{"bits": 4}}, `key "quantization_config" is not known`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := models.ParseConfig(bytes.NewReader(config(t, tt.fixture, tt.changes)))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
			if err != nil && (!strings.HasPrefix(err.Error(), "models: config.json") || strings.Count(err.Error(), "models: ") != 1) {
				t.Errorf("error does not name package and file once: %v", err)
			}
		})
	}
	for _, text := range []string{"", "null", "[]", "{", "{}", `{"architectures": "LlamaForCausalLM"}`, `{} {}`} {
		if _, err := models.ParseConfig(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// TestKeysNeeded: no architecture has a default for these.
func TestKeysNeeded(t *testing.T) {
	for _, name := range []string{"llama-tied", "llama3-scaled", "qwen2", "qwen3", "gemma3"} {
		for _, key := range []string{"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
			"max_position_embeddings", "rms_norm_eps", "rope_parameters"} {
			if _, err := models.ParseConfig(bytes.NewReader(config(t, name, set{key: nil}))); err == nil {
				t.Errorf("%s without %s: no error", name, key)
			}
		}
	}
}
