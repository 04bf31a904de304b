package chunking

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
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
	if c.Compute != "fp16" && c.Compute != "fp32" {
		return fmt.Errorf("compute is %q, want fp16 or fp32", c.Compute)
	}
	if c.KV != KVTensor && c.KV != KVState && c.KV != KVCoreMLLLM {
		return fmt.Errorf("kv is %q, want %s, %s or %s", c.KV, KVTensor, KVState, KVCoreMLLLM)
	}
	if b := c.Mask.Blocked; !(b < 0) || math.IsInf(b, 0) {
		return fmt.Errorf("mask.blocked is %g, want a finite negative number", b)
	}
	if err := c.Embedding.validate(); err != nil {
		return err
	}
	if len(c.Model.Kinds) != c.Model.Layers {
		return fmt.Errorf("layer_kinds has %d entries for %d layers", len(c.Model.Kinds), c.Model.Layers)
	}
	if err := c.attention(); err != nil {
		return err
	}
	if err := c.sharing(); err != nil {
		return err
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
		if next = ch.Last; next > c.Model.Layers {
			break
		}
		if !plainName(ch.File) {
			return fmt.Errorf("chunk %s: file %q is not a plain name", ch.Name, ch.File)
		}
		for _, other := range c.Chunks[:i] {
			if other.File == ch.File || other.Name == ch.Name {
				return fmt.Errorf("chunks %s (%s) and %s (%s) share a name", other.Name, other.File, ch.Name, ch.File)
			}
		}
		if err := c.functions(ch); err != nil {
			return fmt.Errorf("chunk %s: %w", ch.Name, err)
		}
	}
	if next != c.Model.Layers {
		return fmt.Errorf("the chunks hold %d of %d layers", next, c.Model.Layers)
	}
	for i := range c.Chunks {
		ch := &c.Chunks[i]
		for j := range ch.Functions {
			if err := c.asDesigned(ch, &ch.Functions[j]); err != nil {
				return fmt.Errorf("chunk %s: function %s: %w", ch.Name, ch.Functions[j].Name, err)
			}
		}
	}
	return nil
}

func plainName(file string) bool {
	return file != "" && file != "." && file != ".." && file == filepath.Base(file)
}

func (e Embedding) validate() error {
	switch {
	case e.Mode != EmbedSidecar && e.Mode != EmbedInt8 && e.Mode != EmbedGraph && e.Mode != EmbedHead:
		return fmt.Errorf("embedding mode is %q, want %s, %s, %s or %s", e.Mode, EmbedSidecar, EmbedInt8, EmbedHead, EmbedGraph)
	case e.Mode == EmbedInt8 && (!plainName(e.File) || !plainName(e.Scales)):
		return fmt.Errorf("embedding: files %q and %q, want a plain name each", e.File, e.Scales)
	case e.Mode == EmbedSidecar && (!plainName(e.File) || e.Tensor == ""):
		return fmt.Errorf("embedding: file %q and tensor %q, want a plain name each", e.File, e.Tensor)
	case !(e.Scale > 0) || math.IsInf(e.Scale, 0):
		return fmt.Errorf("embedding scale is %g, want a positive number", e.Scale)
	}
	return nil
}

func (c *Contract) attention() error {
	for i, k := range c.Model.Kinds {
		if _, ok := c.Attention[k]; !ok {
			return fmt.Errorf("layer %d is %q, which attention does not describe", i, k)
		}
	}
	rolling := Ring
	if c.Merged() {
		rolling = Shift
	}
	for k, a := range c.Attention {
		if a.Slots <= 0 || a.Layout != Linear && a.Layout != rolling {
			return fmt.Errorf("attention %s: %d slots, layout %q", k, a.Slots, a.Layout)
		}
		if a.HeadDim < 2 || a.KVHeads < 1 || len(a.InvFreq)*2 != a.HeadDim {
			return fmt.Errorf("attention %s: %d frequencies for head_dim %d, %d key heads", k, len(a.InvFreq), a.HeadDim, a.KVHeads)
		}
		if a.Window < 0 || a.Layout == rolling && a.Slots < min(a.Window, c.Context) || a.Window == 0 && a.Layout == rolling {
			return fmt.Errorf("attention %s: %d slots cannot hold a window of %d", k, a.Slots, a.Window)
		}
		if a.CacheHeadDim != 0 && (!c.Merged() || a.CacheHeadDim < a.HeadDim) {
			return fmt.Errorf("attention %s: cached rows of %d for head_dim %d, in a bundle with %s caches", k, a.CacheHeadDim, a.HeadDim, c.KV)
		}
		if a.Layout == Linear && a.Slots < c.Context {
			return fmt.Errorf("attention %s: %d slots cannot hold a context of %d", k, a.Slots, c.Context)
		}
	}
	return nil
}

// sharing checks whose keys and values layers read, and the per-layer table.
func (c *Contract) sharing() error {
	if p := c.PerLayer; p != nil && (p.Dim < 1 || !plainName(p.File) || (p.Tensor == "") != plainName(p.Scales) || !(p.Scale > 0) || math.IsInf(p.Scale, 0)) {
		return fmt.Errorf("per_layer_embedding: dim %d, file %q, tensor %q, scale %g", p.Dim, p.File, p.Tensor, p.Scale)
	}
	if c.Model.KVSource == nil {
		return nil
	}
	if len(c.Model.KVSource) != c.Model.Layers {
		return fmt.Errorf("kv_source has %d entries for %d layers", len(c.Model.KVSource), c.Model.Layers)
	}
	for i, s := range c.Model.KVSource {
		if s < 0 || s > i || c.Model.KVSource[s] != s || c.Model.Kinds[s] != c.Model.Kinds[i] {
			return fmt.Errorf("kv_source says that layer %d reads the keys and values of layer %d", i, s)
		}
	}
	return nil
}

// functions checks that a chunk has the functions of the first one.
func (c *Contract) functions(ch *Chunk) error {
	if len(ch.Functions) == 0 || len(ch.Functions) != len(c.Chunks[0].Functions) {
		return fmt.Errorf("%d functions, the first chunk has %d", len(ch.Functions), len(c.Chunks[0].Functions))
	}
	for j := range ch.Functions {
		f := &ch.Functions[j]
		if g := c.Chunks[0].Functions[j]; f.Name != g.Name || f.T != g.T || f.Kind != g.Kind {
			return fmt.Errorf("function %s differs from that of the first chunk", f.Name)
		}
		switch {
		case f.Kind != Decode && f.Kind != Prefill && f.Kind != Verify:
			return fmt.Errorf("function %s: kind %q is not known", f.Name, f.Kind)
		case f.T < 1 || f.T > c.Context, f.Kind == Decode && f.T != 1:
			return fmt.Errorf("function %s: a %s of %d tokens in a context of %d", f.Name, f.Kind, f.T, c.Context)
		}
		for k := range j {
			if ch.Functions[k].Name == f.Name {
				return fmt.Errorf("function %s is there twice", f.Name)
			}
		}
		if err := c.ports(ch, f); err != nil {
			return fmt.Errorf("function %s: %w", f.Name, err)
		}
	}
	return nil
}

// ports checks what a function takes and returns.
func (c *Contract) ports(ch *Chunk, f *Function) error {
	seen := map[string]bool{}
	for _, ps := range [][]Port{f.Inputs, f.Outputs, f.States} {
		for _, p := range ps {
			if _, err := mil.ParseDType(p.DType); err != nil || len(p.Shape) == 0 || slices.Min(p.Shape) < 1 {
				return fmt.Errorf("port %s has type %s %v", p.Name, p.DType, p.Shape)
			}
			if !mil.LegalName(p.Name) {
				return fmt.Errorf("port name %q is not legal", p.Name)
			}
			if seen[p.Name] {
				return fmt.Errorf("port %s is there twice", p.Name)
			}
			seen[p.Name] = true
			if p.Norm != "" && p.Norm != "pre" && p.Norm != "post" {
				return fmt.Errorf("port %s: norm is %q, want pre or post", p.Name, p.Norm)
			}
			if err := p.stack(ch); err != nil {
				return err
			}
		}
	}
	in := models.HiddenIn
	if ch.First == 0 && c.Embedding.Mode == EmbedGraph {
		in = models.InputIDs
	}
	if Find(f.Inputs, in, "") == nil {
		return fmt.Errorf("no input has the role %s", in)
	}
	if ch.Last < c.Model.Layers && Find(f.Outputs, models.HiddenOut, "") == nil {
		return fmt.Errorf("no output has the role %s", models.HiddenOut)
	}
	if ch.Last == c.Model.Layers && Find(f.Outputs, models.TokenID, "") == nil && Find(f.Outputs, models.Logits, "") == nil {
		return fmt.Errorf("no output has the role %s or %s", models.TokenID, models.Logits)
	}
	return nil
}

// stack checks the layers that a cache, or new keys and values, are stacked of.
// Whether they are the layers of the right kind is for the graph to say.
func (p Port) stack(ch *Chunk) error {
	each := 1
	switch p.Role {
	case models.KeyCache, models.ValueCache, models.KeyCacheOut, models.ValueCacheOut, models.NewKeys, models.NewValues:
	case models.KVState:
		each = 2
	default:
		return nil
	}
	if p.Shape[0] != each*len(p.Layers) {
		return fmt.Errorf("port %s stacks layers %v along %d entries, want %d", p.Name, p.Layers, p.Shape[0], each*len(p.Layers))
	}
	last := ch.First - 1
	for _, i := range p.Layers {
		if i <= last || i >= ch.Last {
			return fmt.Errorf("port %s stacks layers %v; the chunk holds %d to %d, in order", p.Name, p.Layers, ch.First, ch.Last)
		}
		last = i
	}
	return nil
}
