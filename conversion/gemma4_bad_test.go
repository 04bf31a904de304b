package conversion_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
)

// TestGemma4BadInput: configurations and checkpoints that make no sense, and
// what is asked of good ones, each with an error of one line that names it.
func TestGemma4BadInput(t *testing.T) {
	rope := func(kind string) map[string]any {
		return map[string]any{"rope_parameters": map[string]any{
			"full_attention":    map[string]any{"rope_type": kind, "rope_theta": 1e6},
			"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 1e4},
		}}
	}
	for name, tt := range map[string]struct {
		keys    map[string]any
		tensors func(map[string]checkpoint.Tensor)
		o       conversion.Options
		want    string
	}{
		"rope type":    {keys: rope("yarn"), want: `rope type "yarn" is not supported`},
		"all share":    {keys: map[string]any{"num_kv_shared_layers": 10}, want: "num_kv_shared_layers is 10 of 10 layers"},
		"more share":   {keys: map[string]any{"num_kv_shared_layers": 11}, want: "num_kv_shared_layers is 11 of 10 layers"},
		"no producer":  {keys: map[string]any{"num_kv_shared_layers": 6}, want: "no full layer before layer 4 has its own"},
		"spellings":    {keys: map[string]any{"global_head_dim": 64}, want: "per_layer_config says {32 1} for full layers, global_head_dim and num_global_key_value_heads say {64 1}"},
		"experts":      {keys: map[string]any{"enable_moe_block": true}, want: "mixture of experts (enable_moe_block) is not supported yet"},
		"k is v":       {keys: map[string]any{"attention_k_eq_v": true}, want: "attention_k_eq_v is not supported yet"},
		"parted":       {o: conversion.Options{Layers: "0-4,4-10", KV: chunking.KVCoreMLLLM}, want: "the cut at layer 4 parts layers 3 and 4"},
		"drafts":       {o: conversion.Options{KV: chunking.KVCoreMLLLM, Functions: functions(t, "decode,verify:25")}, want: "more than the sliding window of 24"},
		"long prefill": {o: conversion.Options{Context: 32, Functions: functions(t, "decode,prefill:33")}, want: "takes 33 tokens, more than the context of 32"},
		"table width": {tensors: func(all map[string]checkpoint.Tensor) {
			name := "model.embed_tokens_per_layer.weight"
			all[name] = checkpoint.NewFloat32(name, []int{512, 150}, make([]float32, 512*150))
		}, want: `tensor "model.embed_tokens_per_layer.weight" has shape [512 150], config.json implies [512 160]`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := conversion.Convert(t.Context(), variant(t, "gemma4-e2b", tt.tensors, tt.keys), filepath.Join(dir, "b"), tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if entries, _ := os.ReadDir(dir); len(entries) > 0 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

// TestBeyondTheContext: a prompt or a block of drafts that does not fit is an
// error that leaves the sequence as it was.
func TestBeyondTheContext(t *testing.T) {
	for _, kv := range []string{chunking.KVTensor, chunking.KVState, chunking.KVCoreMLLLM} {
		out, _ := convert(t, fixture(t, "gemma4-e2b"), conversion.Options{Context: 30, KV: kv, Functions: functions(t, "decode,prefill:8,verify:4"), Chunks: 2})
		e, err := engine.Open(out, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		s := e.NewSession()
		if _, err := s.Prefill(make([]int32, 28), nil); err != nil {
			t.Fatalf("%s: %v", kv, err)
		}
		if _, err := s.Verify(make([]int32, 3)); err == nil || !strings.Contains(err.Error(), "position 30 is beyond the context of 30") {
			t.Errorf("%s: verify: %v", kv, err)
		}
		if p, err := s.Verify(make([]int32, 2)); err != nil || p.Commit(2) != nil || s.Pos() != 30 {
			t.Errorf("%s: the last two positions: %v", kv, err)
		}
		if _, err := s.Decode(1); err == nil || !strings.Contains(err.Error(), "position 30 is beyond the context of 30") || s.Pos() != 30 {
			t.Errorf("%s: decode at position %d: %v", kv, s.Pos(), err)
		}
		if _, err := e.NewSession().Prefill(make([]int32, 31), nil); err == nil || !strings.Contains(err.Error(), "beyond the context of 30") {
			t.Errorf("%s: prompt: %v", kv, err)
		}
	}
}
