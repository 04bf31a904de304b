package models

// readQwen2 reads Qwen2 and Qwen2.5: Llama with biases on q, k and v, and
// optionally sliding windows on the upper layers.
func readQwen2(o *object, c *Config) {
	o.heads(c)
	o.decoder(c)
	c.QKVBias = true
	o.qwenWindows(c)
	o.qwenRope(c)
}

// qwenWindows finds the sliding layers: by layer_types if given, else those
// from max_window_layers on, if use_sliding_window is set.
func (o *object) qwenWindows(c *Config) {
	on := o.boolOr("use_sliding_window", false)
	if on && !o.isNull("sliding_window") {
		c.Window = o.int("sliding_window")
	}
	o.touch("sliding_window")
	if c.Kinds = o.layerTypes(); c.Kinds != nil {
		return
	}
	c.Kinds = repeatKind(Full, c.Layers)
	if on && c.Window > 0 {
		for i := o.int("max_window_layers"); i >= 0 && i < c.Layers; i++ {
			c.Kinds[i] = Sliding
		}
	}
}

// qwenRope gives every kind of layer the one RoPE.
func (o *object) qwenRope(c *Config) {
	r := o.rope(c)
	c.Rope = map[Kind]Rope{Full: r, Sliding: r}
}
