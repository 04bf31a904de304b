package models

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// object reads the keys of a JSON object and remembers which it has read; the
// first error is latched.
type object struct {
	name      string
	m         map[string]json.RawMessage
	read      map[string]bool
	nested    bool // keys may be left out for the published defaults
	mha       bool // num_key_value_heads may be left out: as many as query heads
	defaulted []string
	err       error
}

func newObject(name string, data []byte) (*object, error) {
	o := &object{name: name, read: map[string]bool{}}
	if err := json.Unmarshal(data, &o.m); err != nil {
		return nil, fmt.Errorf("models: %s is not a JSON object: %w", name, err)
	}
	if o.m == nil {
		return nil, fmt.Errorf("models: %s is null, want a JSON object", name)
	}
	return o, nil
}

func (o *object) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("models: "+o.name+": "+format, args...)
	}
}

// join takes over what a sub-object found wrong.
func (o *object) join(p *object) {
	if o.err == nil {
		o.err = p.err
	}
}

func (o *object) touch(key string) { o.read[key] = true }

func (o *object) get(key string) json.RawMessage {
	o.touch(key)
	return o.m[key]
}

func (o *object) isNull(key string) bool {
	o.touch(key)
	v, ok := o.m[key]
	return !ok || bytes.Equal(v, []byte("null"))
}

func (o *object) object(key string) (*object, error) {
	v := o.get(key)
	if v == nil {
		return nil, fmt.Errorf("models: %s: key %q is missing", o.name, key)
	}
	return newObject(o.name+": "+key, v)
}

// sub is object for a key that is there; nil after an error, which it latches.
func (o *object) sub(key string) *object {
	p, err := o.object(key)
	if err != nil && o.err == nil {
		o.err = err
	}
	return p
}

func (o *object) int(key string) int {
	v := o.get(key)
	var n int
	switch {
	case v == nil:
		o.fail("key %q is missing", key)
	case json.Unmarshal(v, &n) != nil:
		o.fail("%s is %s, want a whole number", key, v)
	}
	return n
}

func (o *object) float(key string) float64 {
	v := o.get(key)
	var f float64
	switch {
	case v == nil:
		o.fail("key %q is missing", key)
	case json.Unmarshal(v, &f) != nil:
		o.fail("%s is %s, want a number", key, v)
	}
	return f
}

func (o *object) floatOr(key string, def float64) float64 {
	if o.isNull(key) {
		return def
	}
	return o.float(key)
}

func (o *object) str(key, def string) string {
	if o.isNull(key) {
		return def
	}
	var s string
	if json.Unmarshal(o.m[key], &s) != nil {
		o.fail("%s is %s, want a string", key, o.m[key])
	}
	return s
}

func (o *object) boolOr(key string, def bool) bool {
	if o.isNull(key) {
		return def
	}
	var b bool
	if json.Unmarshal(o.m[key], &b) != nil {
		o.fail("%s is %s, want true or false", key, o.m[key])
	}
	return b
}

// published fills in the architecture's published default for a key that a
// text_config may leave out; elsewhere the key stays missing.
func (o *object) published(key, value string) {
	if _, ok := o.m[key]; !ok && o.nested {
		o.m[key] = json.RawMessage(value)
		o.defaulted = append(o.defaulted, key)
	}
}

// unread reports keys that nothing has read and that could matter.
func (o *object) unread(ignore []string) {
	var bad, quoted []string
	for _, k := range slices.Sorted(maps.Keys(o.m)) {
		if o.read[k] || harmlessKeys[k] || slices.Contains(ignore, k) {
			continue
		}
		switch string(bytes.TrimSpace(o.m[k])) {
		case "null", "false", "{}", "[]", `""`:
			continue
		}
		bad, quoted = append(bad, k), append(quoted, strconv.Quote(k))
	}
	if len(bad) > 0 {
		o.fail("key %s is not known and may change the mathematics (if it does not, accept it with --ignore-config-key %s)", strings.Join(quoted, ", "), strings.Join(bad, ","))
	}
}

// harmlessKeys do not change the result of a forward pass in evaluation mode.
var harmlessKeys = setOf(
	"architectures", "model_type", "_name_or_path", "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "transformers_version", "torch_dtype", "dtype", "auto_map",
	"use_cache", "initializer_range", "initializer_factor", "attention_dropout", "hidden_dropout",
	"hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "resid_pdrop", "embd_pdrop",
	"pretraining_tp", "pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id",
	"cache_implementation", "is_llama_config", "unsloth_fixed", "unsloth_version",
	"output_attentions", "output_hidden_states", "return_dict", "torchscript", "use_bfloat16",
	"chunk_size_feed_forward", "is_encoder_decoder", "is_decoder", "add_cross_attention", "tie_encoder_decoder",
	"cross_attention_hidden_size", "finetuning_task", "id2label", "label2id", "task_specific_params",
	"problem_type", "tokenizer_class", "prefix", "max_length", "min_length", "do_sample", "early_stopping",
	"num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p",
	"repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
	"bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
	"forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
	"begin_suppress_tokens", "tf_legacy_loss", "pruned_heads", "max_window_layers", "_sliding_window_pattern",
	"mm_tokens_per_image", "boi_token_index", "eoi_token_index", "image_token_index", "vision_config",
	"boi_token_id", "eoi_token_id", "image_token_id",
	"transformers.js_config", "training_args", "base_model_name_or_path",
)

func setOf(keys ...string) map[string]bool {
	m := make(map[string]bool, len(keys))
	for _, k := range keys {
		m[k] = true
	}
	return m
}
