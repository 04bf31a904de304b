package faults

import (
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
)

// contractFaults are contracts that say what the model does not mean. The
// graph does not change, the host follows the contract.
func contractFaults() []Fault {
	gate := []string{"contract"}
	window := func(by int) func(*chunking.Contract) {
		return func(c *chunking.Contract) {
			a := c.Attention[models.Sliding]
			a.Window += by
			c.Attention[models.Sliding] = a
		}
	}
	return []Fault{
		{
			Name: "contract-window", Family: Contract, Gates: gate, Applies: sliding,
			What: "the window is one too small", contract: window(-1),
		},
		{
			Name: "contract-theta", Family: Contract, Gates: gate,
			What: "RoPE frequencies belong to twice the theta",
			contract: func(c *chunking.Contract) {
				for k, a := range c.Attention {
					a.InvFreq = doubleTheta(a.InvFreq)
					c.Attention[k] = a
				}
			},
		},
		{
			Name: "contract-mask", Family: Contract, Gates: gate,
			What:     "blocked scores get -8, which a softmax still sees",
			contract: func(c *chunking.Contract) { c.Mask.Blocked = -8 },
		},
		{
			Name: "contract-embed-scale", Family: Contract, Gates: gate,
			What:     "the embedding scale is half of what it should be",
			contract: func(c *chunking.Contract) { c.Embedding.Scale /= 2 },
		},
		{
			Name: "contract-kinds", Family: Contract, Gates: gate,
			Applies:  func(c *chunking.Contract) bool { return switchOf(c) > 0 },
			What:     "two layers of different kinds have changed places",
			contract: func(c *chunking.Contract) { exchange(c, switchOf(c)) },
		},
		{
			Name: "contract-context", Family: Contract, Gates: gate,
			What:     "the context is larger than the graph's caches",
			contract: func(c *chunking.Contract) { growContext(c) },
		},
	}
}

// doubleTheta turns θ^(-2i/d) into (2θ)^(-2i/d).
func doubleTheta(f []float32) []float32 {
	out := make([]float32, len(f))
	for i, v := range f {
		out[i] = v * float32(pow2(-float64(i)/float64(len(f))))
	}
	return out
}

// switchOf is the first layer that has another kind than the one before it and
// shares a chunk with it; 0 if there is none.
func switchOf(c *chunking.Contract) int {
	for _, ch := range c.Chunks {
		for i := ch.First + 1; i < ch.Last; i++ {
			if c.Model.Kinds[i] != c.Model.Kinds[i-1] {
				return i
			}
		}
	}
	return 0
}

// exchange swaps layers i-1 and i wherever the contract speaks of kinds.
func exchange(c *chunking.Contract, i int) {
	k := c.Model.Kinds
	k[i-1], k[i] = k[i], k[i-1]
	for _, ch := range c.Chunks {
		for _, f := range ch.Functions {
			for _, ports := range [][]chunking.Port{f.Inputs, f.Outputs, f.States} {
				for _, p := range ports {
					for j, l := range p.Layers {
						switch l {
						case i - 1:
							p.Layers[j] = i
						case i:
							p.Layers[j] = i - 1
						}
					}
				}
			}
		}
	}
}

// growContext doubles the linear caches everywhere in the contract.
func growContext(c *chunking.Contract) {
	c.Context *= 2
	for k, a := range c.Attention {
		if a.Layout != chunking.Linear {
			continue
		}
		old := a.Slots
		a.Slots *= 2
		c.Attention[k] = a
		for i := range c.Chunks {
			for j := range c.Chunks[i].Functions {
				f := &c.Chunks[i].Functions[j]
				for _, ports := range [][]chunking.Port{f.Inputs, f.States} {
					for p := range ports {
						switch q := &ports[p]; {
						case q.Kind != k:
						case q.Role == models.Mask:
							q.Shape[3] += old
						case len(q.Shape) == 4 && q.Shape[2] == old:
							q.Shape[2] *= 2
						}
					}
				}
			}
		}
	}
}
