package conversion

import (
	"fmt"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/quant"
)

// Defaults of Options.
const (
	DefaultContext       = 2048
	DefaultMaxChunkBytes = 950_000_000 // what a Neural Engine program is known to take
	DefaultPrefill       = 64
	DefaultVerify        = 4
)

// Options configures Convert. The zero value converts to fp16 with tensor
// caches, a sidecar embedding and as few chunks as fit DefaultMaxChunkBytes.
type Options struct {
	Context int // 0: min(DefaultContext, max_position_embeddings)

	// Where to cut: at most one of Chunks, Layers and Topology; none means the
	// fewest chunks within the limits. The limits apply where nothing else
	// places the cuts.
	Chunks        int
	Layers        string // "0-8,8-16"
	Topology      chunking.Topology
	MaxChunkBytes int64 // 0: DefaultMaxChunkBytes
	MaxLayers     int   // of a chunk; 0: any number

	Functions []chunking.FunctionSpec // nil: decode, prefill:64, verify:4
	KV        string                  // chunking.KVTensor (default), KVState or KVCoreMLLLM
	Embed     string                  // chunking.EmbedSidecar (default), EmbedInt8 (default of BundleCoreMLLLM), EmbedHead or EmbedGraph
	Head      chunking.Head           // zero: token and logits; with KVCoreMLLLM also the normed hidden states
	Compute   string                  // "fp16" (default) or "fp32"

	// ResidualScale overrides the power of two found by the range probe; 0
	// means probe.
	ResidualScale float64
	// Quantize compresses weights by a recipe for Core ML; nil keeps fp16.
	Quantize *quant.Recipe
	// Calibration is what methods feedback and best of the recipe need.
	Calibration *Calibration
	// Bundle is BundleCoreMLLLM to add what the CoreML-LLM app loads: it means
	// KVCoreMLLLM and, where nothing else places the cuts, Topology3. "" adds
	// nothing.
	Bundle string
	// IgnoreKeys are config.json keys to accept unread.
	IgnoreKeys []string
	Force      bool
	// NoSync does not wait until the bundle is on the disk: after a crash of the
	// machine it may be damaged.
	NoSync bool

	// Progress, if not nil, is told what is being done, in bytes or steps.
	// Calls follow one another, but come from several goroutines.
	Progress func(stage string, done, total int64)
}

func (o Options) withDefaults(cfg *models.Config) (Options, error) {
	if o.Context == 0 {
		o.Context = min(DefaultContext, cfg.MaxPositions)
	}
	if o.Functions == nil {
		o.Functions = []chunking.FunctionSpec{{Kind: chunking.Decode, T: 1}}
		if n := min(DefaultPrefill, o.Context); n > 1 {
			o.Functions = append(o.Functions, chunking.FunctionSpec{Kind: chunking.Prefill, T: n})
		}
		if n := min(DefaultVerify, o.Context); n > 1 {
			o.Functions = append(o.Functions, chunking.FunctionSpec{Kind: chunking.Verify, T: n})
		}
	}
	if o.Bundle != "" {
		switch {
		case o.Bundle != BundleCoreMLLLM:
			return o, fmt.Errorf("conversion: bundle %q is not known (want %s)", o.Bundle, BundleCoreMLLLM)
		case o.KV != "" && o.KV != chunking.KVCoreMLLLM:
			return o, fmt.Errorf("conversion: bundle %s needs kv %s, not %s", o.Bundle, chunking.KVCoreMLLLM, o.KV)
		case cfg.PerLayer == 0:
			return o, fmt.Errorf("conversion: bundle %s is for models with per-layer embeddings, and %s has none (use kv %s alone)", o.Bundle, cfg.Architecture, chunking.KVCoreMLLLM)
		}
		o.KV = chunking.KVCoreMLLLM
		if o.Embed == "" {
			o.Embed = chunking.EmbedInt8 // the app's own tables
		}
		if o.Chunks == 0 && o.Layers == "" && o.Topology == "" && o.MaxChunkBytes == 0 && o.MaxLayers == 0 {
			o.Topology = chunking.Topology3
		}
	}
	if o.KV == "" {
		o.KV = chunking.KVTensor
	}
	if o.Embed == "" {
		o.Embed = chunking.EmbedSidecar
	}
	if o.Head == (chunking.Head{}) {
		o.Head = chunking.Head{Token: true, Logits: true}
		if o.KV == chunking.KVCoreMLLLM {
			o.Head.Hidden = "post"
		}
	}
	if o.Compute == "" {
		o.Compute = "fp16"
	}
	if o.Embed == chunking.EmbedHead && o.Quantize != nil {
		return o, fmt.Errorf("conversion: embed %s reads rows of the head, which must not be compressed (use embed %s)", o.Embed, chunking.EmbedSidecar)
	}
	given := 0
	for _, set := range []bool{o.Chunks != 0, o.Layers != "", o.Topology != ""} {
		if set {
			given++
		}
	}
	limited := o.MaxChunkBytes != 0 || o.MaxLayers != 0
	switch {
	case given > 1:
		return o, fmt.Errorf("conversion: give only one of chunks, layers and topology")
	case o.MaxChunkBytes < 0 || o.MaxLayers < 0:
		return o, fmt.Errorf("conversion: max-chunk-bytes is %d and max-layers %d, want positive numbers", o.MaxChunkBytes, o.MaxLayers)
	case limited && given > 0 && o.Topology != chunking.TopologyAuto:
		return o, fmt.Errorf("conversion: max-chunk-bytes and max-layers decide where to cut, and so do chunks, layers and topology: give only one (or topology auto)")
	}
	if o.MaxChunkBytes == 0 {
		o.MaxChunkBytes = DefaultMaxChunkBytes
	}
	return o, nil
}

// cut chooses the layer ranges of the chunks.
func (o Options) cut(cfg *models.Config, s chunking.Sizes) ([]chunking.Range, error) {
	limits := chunking.Limits{Bytes: o.MaxChunkBytes, Layers: o.MaxLayers}
	switch {
	case o.Layers != "":
		return chunking.ParseRanges(o.Layers, len(s.Layers))
	case o.Topology != "":
		return o.Topology.Cut(cfg, s, limits)
	}
	if o.KV == chunking.KVCoreMLLLM {
		s.Whole = chunking.Producers(cfg)
	}
	if o.Chunks != 0 {
		return chunking.CutInto(o.Chunks, s)
	}
	return chunking.CutUnder(limits, s)
}
