package models

import "math"

// readLlama reads Llama 2, 3.x and SmolLM2: pre-norm, SwiGLU, one RoPE,
// grouped queries, no biases unless the config asks for them.
func readLlama(o *object, c *Config) {
	o.mha = true // Llama 1 and 2 leave it out
	o.heads(c)
	o.decoder(c)
	bias := o.boolOr("attention_bias", false)
	c.QKVBias, c.OBias = bias, bias
	c.MLPBias = o.boolOr("mlp_bias", false)
	c.Kinds = repeatKind(Full, c.Layers)
	if lt := o.layerTypes(); lt != nil {
		for i, k := range lt {
			if k != Full {
				o.fail("layer_types[%d] is %s; Llama has full attention only", i, k)
			}
		}
	}
	c.Rope = map[Kind]Rope{Full: o.rope(c)}
}

// decoder reads what Llama and Qwen share.
func (o *object) decoder(c *Config) {
	c.Vocab = o.int("vocab_size")
	c.MaxPositions = o.int("max_position_embeddings")
	c.Eps = o.float("rms_norm_eps")
	o.activation(c, "hidden_act")
	c.Tied = o.boolOr("tie_word_embeddings", false)
	if c.HeadDim > 0 {
		c.AttnScale = 1 / math.Sqrt(float64(c.HeadDim))
	}
}
