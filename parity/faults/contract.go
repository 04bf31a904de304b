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
			Name: "contract-kinds", Family: Contract, Gates: gate, Applies: sliding,
			What: "the layer pattern is off by one",
			contract: func(c *chunking.Contract) {
				k := c.Model.Kinds
				c.Model.Kinds = append(k[1:len(k):len(k)], k[0])
			},
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
						if ports[p].Kind == k && len(ports[p].Shape) == 4 && ports[p].Shape[2] == old {
							ports[p].Shape[2] *= 2
						}
					}
				}
			}
		}
	}
}
