package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
)

// noise is a BF16 tensor of pseudo-random numbers in ±1/32, made as it is
// written.
type noise struct {
	name  string
	shape []int
	seed  uint64
}

func (n noise) Name() string            { return n.name }
func (n noise) DType() checkpoint.DType { return checkpoint.BF16 }
func (n noise) Shape() []int            { return n.shape }
func (n noise) ReadFloat32([]float32, int) error {
	return fmt.Errorf("worker: %s is only for writing", n.name)
}

func (n noise) WriteTo(w io.Writer) (int64, error) {
	left := 2
	for _, d := range n.shape {
		left *= d
	}
	var total int64
	buf := make([]byte, 1<<20)
	for x := n.seed*2 + 1; left > 0; {
		b := buf[:min(left, len(buf))]
		for i := 0; i < len(b); i += 2 {
			x = x*6364136223846793005 + 1442695040888963407
			// Sign and seven bits of fraction are random, the exponent is one
			// of 2⁻⁶ … 2⁻⁹.
			h := uint16(x>>48)&0x807f | uint16(118+x>>40&3)<<7
			b[i], b[i+1] = byte(h), byte(h>>8)
		}
		m, err := w.Write(b)
		total += int64(m)
		if err != nil {
			return total, err
		}
		left -= len(b)
	}
	return total, nil
}

// synthetic writes a llama checkpoint of about the given number of bytes,
// without a tokenizer, in shards of 2 GB.
func synthetic(dir string, bytes int64) error {
	const hidden, mlp, heads, kv, dim, vocab = 2560, 8192, 40, 10, 64, 64000
	const perLayer = 2 * (2*hidden*heads*dim + 2*hidden*kv*dim + 3*hidden*mlp + 2*hidden)
	layers := int((bytes - 2*vocab*hidden) / perLayer)
	if layers < 1 {
		return fmt.Errorf("worker: a synthetic checkpoint needs %d bytes at least", 2*vocab*hidden+perLayer)
	}
	var ts []checkpoint.Tensor
	add := func(name string, shape ...int) {
		ts = append(ts, noise{name, shape, uint64(len(ts))})
	}
	add("model.embed_tokens.weight", vocab, hidden)
	for l := range layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		add(p+"input_layernorm.weight", hidden)
		add(p+"self_attn.q_proj.weight", heads*dim, hidden)
		add(p+"self_attn.k_proj.weight", kv*dim, hidden)
		add(p+"self_attn.v_proj.weight", kv*dim, hidden)
		add(p+"self_attn.o_proj.weight", hidden, heads*dim)
		add(p+"post_attention_layernorm.weight", hidden)
		add(p+"mlp.gate_proj.weight", mlp, hidden)
		add(p+"mlp.up_proj.weight", mlp, hidden)
		add(p+"mlp.down_proj.weight", hidden, mlp)
	}
	add("model.norm.weight", hidden)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	if err := checkpoint.WriteSharded(dir, ts, map[string]string{"format": "pt"}, 2_000_000_000); err != nil {
		return err
	}
	config, err := json.MarshalIndent(map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_act": "silu",
		"hidden_size": hidden, "intermediate_size": mlp, "num_hidden_layers": layers,
		"num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": dim, "vocab_size": vocab,
		"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
		"tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false,
		"bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
	}, "", "  ")
	if err != nil {
		return err
	}
	// The configuration comes last: with it the directory is complete.
	return os.WriteFile(filepath.Join(dir, "config.json"), append(config, '\n'), 0o666)
}
