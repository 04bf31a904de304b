package models

// Dims is the shape of attention in the layers of one kind.
type Dims struct {
	HeadDim int `json:"head_dim"`
	KVHeads int `json:"num_key_value_heads"`
}

// Dims returns the attention shape of layers of kind k.
func (c *Config) Dims(k Kind) Dims {
	if d, ok := c.DimsOf[k]; ok {
		return d
	}
	return Dims{c.HeadDim, c.KVHeads}
}

// Source is the layer whose keys and values layer i attends to: itself,
// unless it shares those of an earlier one.
func (c *Config) Source(i int) int {
	if c.KVSource == nil {
		return i
	}
	return c.KVSource[i]
}

// Width is the inner width of the MLP of layer i.
func (c *Config) Width(i int) int {
	if c.SharedWide && c.Source(i) != i {
		return 2 * c.Intermediate
	}
	return c.Intermediate
}

// Owners lists the layers in [first, last) of kind k that have keys and
// values of their own: those that a cache stacks.
func (c *Config) Owners(k Kind, first, last int) []int {
	var out []int
	for i := first; i < last; i++ {
		if c.Kinds[i] == k && c.Source(i) == i {
			out = append(out, i)
		}
	}
	return out
}

// Borrowed is the layer before first whose keys and values the layers in
// [first, last) of kind k read, or -1 if they need none from outside.
func (c *Config) Borrowed(k Kind, first, last int) int {
	for i := first; i < last; i++ {
		if s := c.Source(i); c.Kinds[i] == k && s < first {
			return s
		}
	}
	return -1
}

// Lent reports whether layers from after on read the keys and values of layer i.
func (c *Config) Lent(i, after int) bool {
	for j := after; j < c.Layers; j++ {
		if c.Source(j) == i {
			return true
		}
	}
	return false
}

// PerLayerScale multiplies rows of the per-layer table: √P in float32.
func (c *Config) PerLayerScale() float64 { return sqrt32(c.PerLayer) }
