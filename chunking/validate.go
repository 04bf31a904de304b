package chunking

import (
	"fmt"
	"math"
	"path/filepath"

	"github.com/smelt-go/smelt/mil"
)

// Validate checks that the contract is complete and free of contradictions.
func (c *Contract) Validate() error {
	if c.Version != ContractVersion {
		return fmt.Errorf("version %d is not supported (want %d; convert again)", c.Version, ContractVersion)
	}
	if c.Context <= 0 {
		return fmt.Errorf("context is %d", c.Context)
	}
	if fr, _ := math.Frexp(c.ResidualScale); fr != 0.5 {
		return fmt.Errorf("residual_scale %g is not a power of two", c.ResidualScale)
	}
	if c.KV != KVTensor && c.KV != KVState {
		return fmt.Errorf("kv is %q, want %s or %s", c.KV, KVTensor, KVState)
	}
	if c.Embedding.Mode != EmbedSidecar && c.Embedding.Mode != EmbedGraph {
		return fmt.Errorf("embedding mode is %q, want %s or %s", c.Embedding.Mode, EmbedSidecar, EmbedGraph)
	}
	if len(c.Model.Kinds) != c.Model.Layers {
		return fmt.Errorf("layer_kinds has %d entries for %d layers", len(c.Model.Kinds), c.Model.Layers)
	}
	for k, a := range c.Attention {
		if a.Slots <= 0 || a.Layout != Linear && a.Layout != Ring {
			return fmt.Errorf("attention %s: %d slots, layout %q", k, a.Slots, a.Layout)
		}
		if len(a.InvFreq)*2 != c.Model.HeadDim {
			return fmt.Errorf("attention %s: %d frequencies for head_dim %d", k, len(a.InvFreq), c.Model.HeadDim)
		}
		if a.Window > 0 && a.Slots < min(a.Window, c.Context) {
			return fmt.Errorf("attention %s: %d slots cannot hold a window of %d", k, a.Slots, a.Window)
		}
	}
	if len(c.Chunks) == 0 {
		return fmt.Errorf("no chunks")
	}
	next := 0
	for i := range c.Chunks {
		ch := &c.Chunks[i]
		if ch.First != next || ch.Last <= ch.First {
			return fmt.Errorf("chunk %s holds layers %d to %d; expected to start at %d", ch.Name, ch.First, ch.Last, next)
		}
		next = ch.Last
		if ch.File != filepath.Base(ch.File) || ch.File == "" {
			return fmt.Errorf("chunk %s: file %q is not a plain name", ch.Name, ch.File)
		}
		if len(ch.Functions) == 0 || len(ch.Functions) != len(c.Chunks[0].Functions) {
			return fmt.Errorf("chunk %s has %d functions", ch.Name, len(ch.Functions))
		}
		for j, f := range ch.Functions {
			if g := c.Chunks[0].Functions[j]; f.Name != g.Name || f.T != g.T || f.Kind != g.Kind || f.T <= 0 {
				return fmt.Errorf("chunk %s: function %s differs from that of the first chunk", ch.Name, f.Name)
			}
			for _, ps := range [][]Port{f.Inputs, f.Outputs, f.States} {
				for _, p := range ps {
					if _, err := mil.ParseDType(p.DType); err != nil || len(p.Shape) == 0 {
						return fmt.Errorf("chunk %s: function %s: port %s has type %s %v", ch.Name, f.Name, p.Name, p.DType, p.Shape)
					}
				}
			}
		}
	}
	if next != c.Model.Layers {
		return fmt.Errorf("the chunks hold %d of %d layers", next, c.Model.Layers)
	}
	return nil
}
