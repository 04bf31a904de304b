package models

// readQwen2 reads Qwen2 and Qwen2.5: Llama with biases on q, k and v, and
// optionally sliding windows on the upper layers.
func readQwen2(o *object, c *Config) {
	o.heads(c)
	o.decoder(c)
	c.QKVBias = true
	if !o.boolOr("attention_bias", true) {
		o.fail("attention_bias is false, but Qwen2 always has biases on q, k and v")
	}
	o.qwenWindows(c)
	o.qwenRope(c)
}

// qwenWindows finds the sliding layers: by layer_types if given, else those
// from max_window_layers on, if use_sliding_window is set.
func (o *object) qwenWindows(c *Config) {
	on := o.boolOr("use_sliding_window", false)
	// null switches the window off; leaving the key out means a default that
	// no file should rely on.
	if _, given := o.m["sliding_window"]; on && !given {
		o.fail("key \"sliding_window\" is missing, and use_sliding_window is true")
	}
	if !o.isNull("sliding_window") && on {
		c.Window = o.int("sliding_window")
	}
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
