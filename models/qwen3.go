package models

// readQwen3 reads Qwen3: per-head RMS norm of q and k before RoPE, head_dim
// free of hidden_size, biases only where attention_bias says so.
func readQwen3(o *object, c *Config) {
	o.ownHeadDim()
	o.heads(c)
	o.decoder(c)
	c.QKNorm = true
	bias := o.boolOr("attention_bias", false)
	c.QKVBias, c.OBias = bias, bias
	o.qwenWindows(c)
	o.qwenRope(c)
}
