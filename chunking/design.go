package chunking

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/smelt-go/smelt/models"
)

// Choices of Options.
const (
	KVTensor = "tensor" // caches are inputs, new keys and values outputs; the host commits
	KVState  = "state"  // caches are Core ML states
	// KVCoreMLLLM is a form of tensor caches that the CoreML-LLM app drives:
	// see the package documentation.
	KVCoreMLLLM  = "coreml-llm"
	EmbedSidecar = "sidecar" // the host looks embedding rows up
	EmbedInt8    = "int8"    // the host looks them up in rows of int8, each with an fp16 scale
	EmbedGraph   = "graph"   // the first chunk gathers them
	EmbedHead    = "head"    // the host looks them up in the weights of the last chunk's head, which are the table
)

// DefaultMaskBlocked is added to scores that must not be attended to. It is
// finite, so that masks compose and fp16 has no infinities, and large enough
// that exp underflows to zero beside any score of a working model.
const DefaultMaskBlocked = -1e4

// FunctionSpec asks for a function.
type FunctionSpec struct {
	Kind FunctionKind
	T    int
}

// Name is the function's name in the package: decode, prefill_64, verify_4.
func (s FunctionSpec) Name() string {
	if s.Kind == Decode {
		return "decode"
	}
	return fmt.Sprintf("%s_%d", s.Kind, s.T)
}

// ParseFunctions reads "decode,prefill:64,verify:4".
func ParseFunctions(s string) ([]FunctionSpec, error) {
	var out []FunctionSpec
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		name, arg, has := strings.Cut(strings.TrimSpace(part), ":")
		f := FunctionSpec{Kind: FunctionKind(name), T: 1}
		switch f.Kind {
		case Decode:
			if has && arg != "1" {
				return nil, fmt.Errorf("chunking: function %q: decode takes one token", part)
			}
		case Prefill, Verify:
			n, err := strconv.Atoi(arg)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("chunking: function %q: want %s:N with N tokens, as in prefill:64 or verify:4", part, name)
			}
			f.T = n
		default:
			return nil, fmt.Errorf("chunking: function %q is not known (want decode, prefill:N, verify:K)", part)
		}
		if seen[f.Name()] {
			return nil, fmt.Errorf("chunking: function %q is listed twice", part)
		}
		seen[f.Name()] = true
		out = append(out, f)
	}
	if !seen["decode"] {
		return nil, fmt.Errorf("chunking: functions %q lack decode, which every bundle needs", s)
	}
	return out, nil
}

// Head chooses the outputs of the last chunk.
type Head struct {
	Token  bool // token_id and token_logit
	Logits bool
	Hidden string // "", "pre" or "post": hidden_states_out of the last chunk
	TopK   int    // so many of the largest logits and their ids; 0: none
}

// ParseHead reads "token", "logits", "hidden", "normed", "topk:K" and
// combinations.
func ParseHead(s string) (Head, error) {
	var h Head
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		name, arg, has := strings.Cut(part, ":")
		if seen[name] {
			return h, fmt.Errorf("chunking: head %q is listed twice", part)
		}
		seen[name] = true
		if name == "topk" {
			k, err := strconv.Atoi(arg)
			if err != nil || k < 1 {
				return h, fmt.Errorf("chunking: head %q: want topk:K with K tokens, as in topk:4", part)
			}
			h.TopK = k
			continue
		}
		if has {
			return h, fmt.Errorf("chunking: head %q takes no number", part)
		}
		switch part {
		case "token":
			h.Token = true
		case "logits":
			h.Logits = true
		case "hidden":
			h.Hidden = "pre"
		case "normed":
			h.Hidden = "post"
		default:
			return h, fmt.Errorf("chunking: head %q is not known (want token, logits, hidden, normed or topk:K)", part)
		}
	}
	if seen["hidden"] && seen["normed"] {
		return h, fmt.Errorf("chunking: head %q asks for hidden and normed, which are one output (keep one)", s)
	}
	if !h.Token && !h.Logits {
		return h, fmt.Errorf("chunking: head %q yields no token (add token or logits)", s)
	}
	return h, nil
}

// Options of a bundle.
type Options struct {
	Context   int
	Ranges    []Range // from Cut
	Functions []FunctionSpec
	KV        string
	Embed     string
	Head      Head
	Compute   string // "fp16" or "fp32"
}

// Design writes the contract of a bundle of the model. ResidualScale is 1 and
// may be set afterwards with SetResidualScale.
func Design(cfg *models.Config, o Options) (*Contract, error) {
	switch {
	case o.Context < 1:
		return nil, fmt.Errorf("chunking: context %d: want at least 1", o.Context)
	case o.Context > cfg.MaxPositions:
		return nil, fmt.Errorf("chunking: context %d exceeds max_position_embeddings %d of the model", o.Context, cfg.MaxPositions)
	case o.KV != KVTensor && o.KV != KVState && o.KV != KVCoreMLLLM:
		return nil, fmt.Errorf("chunking: kv %q is not known (want %s, %s or %s)", o.KV, KVTensor, KVState, KVCoreMLLLM)
	case o.Embed == EmbedHead && !cfg.Tied:
		return nil, fmt.Errorf("chunking: embed %s: the head of this model is not its embedding table (use embed %s)", EmbedHead, EmbedSidecar)
	case o.KV == KVCoreMLLLM && o.Embed == EmbedGraph:
		return nil, fmt.Errorf("chunking: kv %s takes embedding rows from the host: use embed %s", KVCoreMLLLM, EmbedSidecar)
	case o.Embed != EmbedSidecar && o.Embed != EmbedInt8 && o.Embed != EmbedGraph && o.Embed != EmbedHead:
		return nil, fmt.Errorf("chunking: embed %q is not known (want %s, %s, %s or %s)", o.Embed, EmbedSidecar, EmbedInt8, EmbedHead, EmbedGraph)
	case o.Compute != "fp16" && o.Compute != "fp32":
		return nil, fmt.Errorf("chunking: compute %q is not known (want fp16 or fp32)", o.Compute)
	case o.Head.TopK < 0 || o.Head.TopK > cfg.Vocab:
		return nil, fmt.Errorf("chunking: head topk:%d: the vocabulary has %d tokens", o.Head.TopK, cfg.Vocab)
	case o.KV == KVState && o.Compute != "fp16":
		return nil, fmt.Errorf("chunking: Core ML states are fp16 only: use kv tensor with compute fp32")
	}
	c := &Contract{
		Version: ContractVersion, Compute: o.Compute, Context: o.Context, KV: o.KV, ResidualScale: 1,
		Mask:      MaskInfo{Blocked: DefaultMaskBlocked},
		Embedding: Embedding{Mode: o.Embed, Scale: cfg.EmbedScale},
		Attention: map[models.Kind]Attn{},
		Model: ModelInfo{Architecture: cfg.Architecture, Layers: cfg.Layers, Hidden: cfg.Hidden, Vocab: cfg.Vocab,
			Heads: cfg.Heads, KVHeads: cfg.KVHeads, HeadDim: cfg.HeadDim, Kinds: cfg.Kinds, KVSource: cfg.KVSource, BOS: cfg.BOS, EOS: cfg.EOS},
	}
	if o.Embed == EmbedSidecar {
		c.Embedding.File, c.Embedding.Tensor = EmbeddingFile, "embed_tokens.weight"
	}
	if o.Embed == EmbedInt8 {
		c.Embedding.File, c.Embedding.Scales = EmbeddingInt8+Int8Codes, EmbeddingInt8+Int8Scales
	}
	if o.Embed != EmbedGraph && cfg.PerLayer > 0 {
		c.PerLayer = &PerLayer{Dim: cfg.PerLayer, File: PerLayerFile, Tensor: "embed_tokens_per_layer.weight", Scale: cfg.PerLayerScale()}
		if o.Embed == EmbedInt8 {
			c.PerLayer.File, c.PerLayer.Tensor, c.PerLayer.Scales = PerLayerInt8+Int8Codes, "", PerLayerInt8+Int8Scales
		}
	}
	for _, k := range cfg.AllKinds() {
		d := cfg.Dims(k)
		a := Attn{Slots: o.Context, Layout: Linear, HeadDim: d.HeadDim, KVHeads: d.KVHeads, InvFreq: cfg.Rope[k].InvFreq()}
		if k == models.Sliding {
			a.Window = cfg.Window
			a.Slots, a.Layout = min(cfg.Window, o.Context), Ring
		}
		c.Attention[k] = a
	}
	if c.Merged() {
		if err := c.coreMLLLM(cfg, o); err != nil {
			return nil, err
		}
	}
	for _, f := range o.Functions {
		if f.T > o.Context {
			return nil, fmt.Errorf("chunking: function %s takes %d tokens, more than the context of %d", f.Name(), f.T, o.Context)
		}
		if w := c.Attention[models.Sliding].Window; c.Merged() && f.Kind == Verify && w > 0 && f.T > w {
			return nil, fmt.Errorf("chunking: function %s takes %d drafts, more than the sliding window of %d", f.Name(), f.T, w)
		}
	}
	for i, r := range o.Ranges {
		name := fmt.Sprintf("chunk_%02d", i+1)
		ch := Chunk{Name: name, File: name + ".mlpackage", First: r.First, Last: r.Last}
		for _, f := range o.Functions {
			ch.Functions = append(ch.Functions, c.function(cfg, ch, f, o.Head))
		}
		c.Chunks = append(c.Chunks, ch)
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("chunking: %w", err)
	}
	return c, nil
}

// SetResidualScale records the power of two that scales the residual stream.
func (c *Contract) SetResidualScale(s float64) {
	c.Embedding.Scale *= s / c.ResidualScale
	c.ResidualScale = s
}

// function declares the ports of one function.
func (c *Contract) function(cfg *models.Config, ch Chunk, fs FunctionSpec, head Head) Function {
	f := Function{Name: c.functionName(fs), Kind: fs.Kind, T: fs.T}
	if c.Merged() {
		c.mergedFunction(cfg, ch, &f, head)
		return f
	}
	T, float := fs.T, c.Compute
	if ch.First == 0 && c.Embedding.Mode == EmbedGraph {
		f.Inputs = append(f.Inputs, Port{Name: "input_ids", DType: "int32", Shape: []int{1, T}, Role: models.InputIDs})
	} else {
		f.Inputs = append(f.Inputs, Port{Name: "hidden_states", DType: float, Shape: []int{1, T, cfg.Hidden}, Role: models.HiddenIn, Norm: "pre"})
	}
	var news []Port
	if cfg.PerLayer > 0 {
		p := Port{Name: "per_layer_combined", DType: float, Shape: []int{1, T, cfg.Layers * cfg.PerLayer}, Role: models.PerLayerIn}
		if ch.First > 0 {
			f.Inputs = append(f.Inputs, p)
		} else {
			if c.PerLayer != nil {
				f.Inputs = append(f.Inputs, Port{Name: "per_layer_raw", DType: float, Shape: p.Shape, Role: models.PerLayerRaw})
			}
			if ch.Last < cfg.Layers {
				news = append(news, Port{Name: "per_layer_combined_out", DType: float, Shape: p.Shape, Role: models.PerLayerOut})
			}
		}
	}
	for _, k := range cfg.AllKinds() {
		if cfg.HasKind(k, ch.First, ch.Last) {
			news = append(news, c.kind(cfg, ch, &f, k)...)
		}
	}
	if ch.Last < cfg.Layers {
		f.Outputs = append(f.Outputs, Port{Name: "hidden_states_out", DType: float, Shape: []int{1, T, cfg.Hidden}, Role: models.HiddenOut, Norm: "pre"})
	} else {
		f.Outputs = append(f.Outputs, headPorts(cfg, head, T, float)...)
	}
	f.Outputs = append(f.Outputs, news...)
	return f
}

// kind adds to f what the layers of kind k in the chunk take and returns what
// they give.
func (c *Contract) kind(cfg *models.Config, ch Chunk, f *Function, k models.Kind) (news []Port) {
	T, float := f.T, c.Compute
	a, kind, short := c.Attention[k], string(k), string(k[0])
	rows := []int{1, 1, T, a.HeadDim}
	f.Inputs = append(f.Inputs,
		Port{Name: "causal_mask_" + kind, DType: float, Shape: []int{1, 1, T, a.Slots + T}, Role: models.Mask, Kind: k},
		Port{Name: "cos_" + short, DType: float, Shape: rows, Role: models.RopeCos, Kind: k},
		Port{Name: "sin_" + short, DType: float, Shape: rows, Role: models.RopeSin, Kind: k})
	cache := func(n int) []int { return []int{n, a.KVHeads, a.Slots, a.HeadDim} }
	fresh := func(n int) []int { return []int{n, a.KVHeads, T, a.HeadDim} }
	shared := func(layer int) []Port {
		l := []int{layer}
		return []Port{
			{Name: "shared_K_" + kind, DType: float, Shape: cache(1), Role: models.SharedKeys, Kind: k, Layers: l},
			{Name: "shared_V_" + kind, DType: float, Shape: cache(1), Role: models.SharedValues, Kind: k, Layers: l},
			{Name: "shared_new_K_" + kind, DType: float, Shape: fresh(1), Role: models.SharedNewKeys, Kind: k, Layers: l},
			{Name: "shared_new_V_" + kind, DType: float, Shape: fresh(1), Role: models.SharedNewValues, Kind: k, Layers: l},
		}
	}
	if s := cfg.Borrowed(k, ch.First, ch.Last); s >= 0 {
		f.Inputs = append(f.Inputs, shared(s)...)
	}
	layers := cfg.Owners(k, ch.First, ch.Last)
	n := len(layers)
	if n == 0 {
		return nil
	}
	if c.KV == KVTensor {
		f.Inputs = append(f.Inputs,
			Port{Name: "K_" + kind + "_in", DType: float, Shape: cache(n), Role: models.KeyCache, Kind: k, Layers: layers},
			Port{Name: "V_" + kind + "_in", DType: float, Shape: cache(n), Role: models.ValueCache, Kind: k, Layers: layers})
	} else {
		f.States = append(f.States, Port{Name: "kv_cache_" + kind, DType: float, Shape: cache(2 * n), Role: models.KVState, Kind: k, Layers: layers})
		switch {
		case f.Kind == Verify:
		case a.Layout == Ring && T > 1:
			f.Inputs = append(f.Inputs, Port{Name: "update_" + kind, DType: float, Shape: []int{1, 1, a.Slots, T}, Role: models.WriteOneHot, Kind: k})
		default:
			name := "current_pos"
			if a.Layout == Ring {
				name = "ring_pos"
			}
			f.Inputs = append(f.Inputs, Port{Name: name, DType: "int32", Shape: []int{1}, Role: models.WritePos, Kind: k})
		}
		for _, i := range layers {
			if cfg.Lent(i, ch.Last) {
				news = append(news, shared(i)...)
			}
		}
	}
	if c.KV == KVTensor || f.Kind == Verify {
		news = append(news,
			Port{Name: "new_K_" + kind, DType: float, Shape: fresh(n), Role: models.NewKeys, Kind: k, Layers: layers},
			Port{Name: "new_V_" + kind, DType: float, Shape: fresh(n), Role: models.NewValues, Kind: k, Layers: layers})
	}
	return news
}

func headPorts(cfg *models.Config, h Head, T int, float string) []Port {
	var out []Port
	if h.Token {
		out = append(out,
			Port{Name: "token_id", DType: "int32", Shape: []int{1, T}, Role: models.TokenID},
			Port{Name: "token_logit", DType: float, Shape: []int{1, T}, Role: models.TokenLogit})
	}
	if h.Logits {
		out = append(out, Port{Name: "logits", DType: float, Shape: []int{1, T, cfg.Vocab}, Role: models.Logits})
	}
	if h.TopK > 0 {
		out = append(out,
			Port{Name: "top_ids", DType: "int32", Shape: []int{1, T, h.TopK}, Role: models.TopIDs},
			Port{Name: "top_logits", DType: float, Shape: []int{1, T, h.TopK}, Role: models.TopLogits})
	}
	if h.Hidden != "" {
		out = append(out, Port{Name: "hidden_states_out", DType: float, Shape: []int{1, T, cfg.Hidden}, Role: models.HiddenOut, Norm: h.Hidden})
	}
	return out
}
