// Package testmodel writes models for tests that need no trained weights.
package testmodel

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
)

const llamaConfig = `{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":10,
"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"hidden_act":"silu","max_position_embeddings":256,"rms_norm_eps":1e-5,
"rope_theta":10000.0,"vocab_size":512,"tie_word_embeddings":true,"torch_dtype":"float32","attention_bias":false,"mlp_bias":false,"bos_token_id":1,"eos_token_id":2}`

// Llama writes a checkpoint of 10 layers with hidden_size 64 and a vocabulary of
// 512 to dir: what the recorded drafters that read taps could belong to. The
// weights are random, and the same every time.
func Llama(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(llamaConfig), 0o644); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(11, 12))
	var out []checkpoint.Tensor
	add := func(name string, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			if len(shape) == 1 {
				x[i] = 1
			} else {
				x[i] = float32(rng.NormFloat64() * 1.5 / 8)
			}
		}
		out = append(out, checkpoint.NewFloat32(name, shape, x))
	}
	add("model.embed_tokens.weight", 512, 64)
	add("model.norm.weight", 64)
	for l := range 10 {
		p := fmt.Sprintf("model.layers.%d.", l)
		add(p+"input_layernorm.weight", 64)
		add(p+"post_attention_layernorm.weight", 64)
		add(p+"self_attn.q_proj.weight", 64, 64)
		add(p+"self_attn.k_proj.weight", 32, 64)
		add(p+"self_attn.v_proj.weight", 32, 64)
		add(p+"self_attn.o_proj.weight", 64, 64)
		add(p+"mlp.gate_proj.weight", 96, 64)
		add(p+"mlp.up_proj.weight", 96, 64)
		add(p+"mlp.down_proj.weight", 64, 96)
	}
	return checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), out, nil)
}
