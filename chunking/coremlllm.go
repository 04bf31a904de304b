package chunking

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/models"
)

// Stride is the width of a row of the cache: HeadDim, and zeros up to
// CacheHeadDim if that is larger.
func (a Attn) Stride() int { return max(a.HeadDim, a.CacheHeadDim) }

// Slot is where a cache holds the keys of position p, with pos positions
// committed.
func (a Attn) Slot(p, pos int) int {
	switch a.Layout {
	case Ring:
		return p % a.Slots
	case Shift:
		return a.Slots - (pos - p)
	}
	return p
}

// Merged reports whether attention reads caches that hold the tokens of the
// call, so that masks have a column for each of their rows.
func (c *Contract) Merged() bool { return c.KV == KVCoreMLLLM }

// coreMLLLM checks what only this form demands and widens its caches: all
// kinds have rows of one width.
func (c *Contract) coreMLLLM(cfg *models.Config, o Options) error {
	wide := 0
	for _, a := range c.Attention {
		wide = max(wide, a.HeadDim)
	}
	for k, a := range c.Attention {
		if a.Layout == Ring {
			a.Layout = Shift
		}
		if a.HeadDim < wide {
			a.CacheHeadDim = wide
		}
		c.Attention[k] = a
	}
	if what := parted(cfg, o.Ranges); what != "" {
		return fmt.Errorf("chunking: %s, whose keys and values later layers share; kv %s has one chunk emit both (move the cut, or use kv %s)", what, KVCoreMLLLM, KVTensor)
	}
	return nil
}

// functionName is the name of a function in a package.
func (c *Contract) functionName(fs FunctionSpec) string {
	if c.KV != KVCoreMLLLM {
		return fs.Name()
	}
	letter := map[FunctionKind]string{Decode: "q", Verify: "q", Prefill: "b"}[fs.Kind]
	return fmt.Sprintf("%s_%s%d", fs.Kind, letter, fs.T)
}

// aliases are the names of the keys and values that one layer lends to all
// that share them. They are those of the model that had them first, whatever
// the layer.
var aliases = map[models.Kind]string{models.Sliding: "kv13", models.Full: "kv14"}

// columns is the width of the masks of a kind. Decode, which returns caches,
// drops the oldest row of a shifting one; the others append to it.
func (c *Contract) columns(a Attn, f *Function) int {
	if !c.Merged() || a.Layout == Shift && f.Kind != Decode {
		return a.Slots + f.T
	}
	return a.Slots
}

// mergedFunction declares the ports of a function in the CoreML-LLM form.
func (c *Contract) mergedFunction(cfg *models.Config, ch Chunk, f *Function, head Head) {
	T, float := f.T, c.Compute
	f.Inputs = append(f.Inputs, Port{Name: "hidden_states", DType: float, Shape: []int{1, T, cfg.Hidden}, Role: models.HiddenIn, Norm: "pre"})
	kinds := slices.DeleteFunc(cfg.AllKinds(), func(k models.Kind) bool { return !cfg.HasKind(k, ch.First, ch.Last) })
	for _, k := range kinds {
		f.Inputs = append(f.Inputs, Port{Name: "causal_mask_" + string(k), DType: float, Shape: []int{1, 1, T, c.columns(c.Attention[k], f)}, Role: models.Mask, Kind: k})
	}
	owns := func(k models.Kind) bool { return len(cfg.Owners(k, ch.First, ch.Last)) > 0 }
	if full := c.Attention[models.Full]; owns(models.Full) {
		name := "update_mask"
		if f.Kind != Decode {
			name = "update_indicator"
		}
		f.Inputs = append(f.Inputs, Port{Name: name, DType: float, Shape: []int{1, 1, full.Slots, T}, Role: models.WriteOneHot, Kind: models.Full})
	}
	slices.Reverse(kinds) // sliding first
	for _, k := range kinds {
		rows := []int{1, 1, T, c.Attention[k].HeadDim}
		f.Inputs = append(f.Inputs,
			Port{Name: "cos_" + string(k[0]), DType: float, Shape: rows, Role: models.RopeCos, Kind: k},
			Port{Name: "sin_" + string(k[0]), DType: float, Shape: rows, Role: models.RopeSin, Kind: k})
	}
	var combined []Port
	if cfg.PerLayer > 0 {
		p := Port{Name: "per_layer_combined", DType: float, Shape: []int{1, T, cfg.Layers * cfg.PerLayer}, Role: models.PerLayerIn}
		switch {
		case ch.First > 0:
			f.Inputs = append(f.Inputs, p)
		default:
			p.Name, p.Role = "per_layer_raw", models.PerLayerRaw
			f.Inputs = append(f.Inputs, p)
			if ch.Last < cfg.Layers {
				p.Name, p.Role = "per_layer_combined_out", models.PerLayerOut
				combined = append(combined, p)
			}
		}
	}
	var caches, lent []Port
	for _, k := range kinds {
		a, kind := c.Attention[k], string(k)
		alias := func(layer int) []Port {
			shape := []int{1, a.KVHeads, c.columns(a, f), a.HeadDim}
			return []Port{
				{Name: aliases[k] + "_k", DType: float, Shape: shape, Role: models.SharedKeys, Kind: k, Layers: []int{layer}},
				{Name: aliases[k] + "_v", DType: float, Shape: shape, Role: models.SharedValues, Kind: k, Layers: []int{layer}},
			}
		}
		if s := cfg.Borrowed(k, ch.First, ch.Last); s >= 0 {
			f.Inputs = append(f.Inputs, alias(s)...)
		}
		layers := cfg.Owners(k, ch.First, ch.Last)
		if len(layers) == 0 {
			continue
		}
		add := func(to *[]Port, key, value string, shape []int, kr, vr models.Role) {
			*to = append(*to,
				Port{Name: key, DType: float, Shape: shape, Role: kr, Kind: k, Layers: layers},
				Port{Name: value, DType: float, Shape: shape, Role: vr, Kind: k, Layers: layers})
		}
		whole := []int{len(layers), a.KVHeads, a.Slots, a.Stride()}
		add(&f.Inputs, "K_"+kind+"_in", "V_"+kind+"_in", whole, models.KeyCache, models.ValueCache)
		if f.Kind == Decode {
			add(&caches, "K_"+kind+"_out", "V_"+kind+"_out", whole, models.KeyCacheOut, models.ValueCacheOut)
		} else {
			add(&caches, "new_K_"+kind, "new_V_"+kind, []int{len(layers), a.KVHeads, T, a.HeadDim}, models.NewKeys, models.NewValues)
		}
		for _, i := range layers {
			if cfg.Lent(i, ch.Last) {
				lent = append(lent, alias(i)...)
			}
		}
	}
	if ch.Last < cfg.Layers {
		f.Outputs = append(f.Outputs, Port{Name: "hidden_states_out", DType: float, Shape: []int{1, T, cfg.Hidden}, Role: models.HiddenOut, Norm: "pre"})
	} else {
		f.Outputs = append(f.Outputs, headPorts(cfg, head, T, float)...)
		for i := range f.Outputs {
			if p := &f.Outputs[i]; p.Role == models.TokenID && f.Kind != Decode {
				p.Name = "token_ids"
			}
		}
	}
	f.Outputs = append(f.Outputs, caches...)
	f.Outputs = append(f.Outputs, combined...)
	f.Outputs = append(f.Outputs, lent...)
}
