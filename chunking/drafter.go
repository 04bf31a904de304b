package chunking

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
)

// Files of a drafter's bundle.
const (
	DrafterFile    = "drafter.json"
	DrafterPackage = "drafter.mlpackage"
	TargetIDsFile  = "target_ids.safetensors"
)

// DrafterContract declares what a host needs to drive a converted drafter: what
// it reads of its target, and each function with its inputs and outputs.
type DrafterContract struct {
	Version int    `json:"version"`
	Drafter string `json:"drafter"` // models.Eagle3, …
	Layers  int    `json:"layers"`
	Hidden  int    `json:"hidden_size"`
	// Vocab is the target's vocabulary, DraftVocab the number of tokens that
	// the drafter knows: TargetIDs has their ids where they differ.
	Vocab      int           `json:"vocab_size"`
	DraftVocab int           `json:"draft_vocab_size"`
	Target     DrafterTarget `json:"target"`
	Source     Source        `json:"source"`
	Compute    string        `json:"compute"` // "fp16" or "fp32"
	Context    int           `json:"context"` // positions 0 … Context-1
	MaxDraft   int           `json:"max_draft"`
	// Embedding is the drafter's own table; nil if it takes the target's rows.
	Embedding *Embedding           `json:"embedding,omitempty"`
	TargetIDs string               `json:"target_ids,omitempty"` // file with the tensor target_ids
	Mask      MaskInfo             `json:"mask"`
	Attention map[models.Kind]Attn `json:"attention"`
	Block     int                  `json:"block_size,omitempty"`
	MaskToken int                  `json:"mask_token_id,omitempty"`
	Reading   string               `json:"reading,omitempty"`    // models.ReadAnchor or ReadMasks
	Candidate int                  `json:"candidates,omitempty"` // tokens that get logits; 0: all
	Confident bool                 `json:"confidence,omitempty"`
	// Quantization is the recipe by which weights were compressed.
	Quantization json.RawMessage `json:"quantization,omitempty"`
	File         string          `json:"file"`
	Functions    []DraftFunction `json:"functions"`
}

// DrafterTarget is what a drafter reads of its target.
type DrafterTarget struct {
	Hidden int                      `json:"hidden_size"`
	Layers int                      `json:"layers,omitempty"`
	Taps   []int                    `json:"taps,omitempty"`
	Norm   string                   `json:"norm,omitempty"`
	Keys   map[string]drafter.Shape `json:"keys,omitempty"`
}

// DraftFunction is one entry point of a drafter's package.
type DraftFunction struct {
	Name    string                 `json:"name"`
	Does    models.DrafterFunction `json:"does"`
	Module  int                    `json:"module,omitempty"`
	T       int                    `json:"tokens"`
	Inputs  []Port                 `json:"inputs"`
	Outputs []Port                 `json:"outputs"`
}

// DrafterOptions of DesignDrafter.
type DrafterOptions struct {
	Context int
	Compute string
	// Rows are the numbers of tokens that functions over the text take at once,
	// ascending.
	Rows []int
	// Blocks are the block lengths of a block drafter, the full one included; nil
	// means that alone. Shorter blocks give other numbers than the first slots
	// of the full one, because slots see each other.
	Blocks []int
	// OwnEmbedding says that the drafter's own table goes with it.
	OwnEmbedding bool
}

// DefaultDrafterRows are what DrafterOptions.Rows should be.
var DefaultDrafterRows = []int{1, 8, 64}

// DefaultMaxDraft bounds the chains of drafters whose steps repeat.
const DefaultMaxDraft = 16

// Needs says what the drafter reads of its target.
func (c *DrafterContract) Needs() drafter.Needs {
	t := c.Target
	return drafter.Needs{Hidden: t.Hidden, Vocab: c.Vocab, Layers: t.Layers, Taps: t.Taps, Norm: t.Norm, Keys: t.Keys}
}

// DesignDrafter writes the contract of a drafter.
func DesignDrafter(cfg *models.DrafterConfig, o DrafterOptions) (*DrafterContract, error) {
	switch {
	case o.Context < 1 || o.Context > cfg.MaxPositions:
		return nil, fmt.Errorf("chunking: context %d: want 1 to max_position_embeddings %d", o.Context, cfg.MaxPositions)
	case o.Compute != "fp16" && o.Compute != "fp32":
		return nil, fmt.Errorf("chunking: compute %q is not known (want fp16 or fp32)", o.Compute)
	case len(o.Rows) == 0 || o.Rows[0] < 1 || !slices.IsSorted(o.Rows):
		return nil, fmt.Errorf("chunking: rows %v: want ascending numbers of tokens", o.Rows)
	}
	c := &DrafterContract{
		Version: ContractVersion, Drafter: cfg.Drafter, Layers: cfg.Layers, Hidden: cfg.Hidden, Vocab: cfg.Vocab, DraftVocab: cfg.DraftVocab,
		Target:  DrafterTarget{Hidden: cfg.TargetHidden, Layers: cfg.TargetLayers, Taps: cfg.Taps, Norm: cfg.Norm},
		Compute: o.Compute, Context: o.Context, MaxDraft: min(DefaultMaxDraft, o.Context), Mask: MaskInfo{Blocked: DefaultMaskBlocked},
		Attention: map[models.Kind]Attn{}, Block: cfg.Block, MaskToken: cfg.MaskToken, Reading: cfg.Reading, Confident: cfg.Confidence, File: DrafterPackage,
	}
	if o.OwnEmbedding {
		c.Embedding = &Embedding{Mode: EmbedSidecar, File: EmbeddingFile, Tensor: "embed_tokens.weight", Scale: cfg.EmbedScale}
	}
	if cfg.DraftVocab < cfg.Vocab {
		c.TargetIDs = TargetIDsFile
	}
	if cfg.Clusters > 0 {
		c.Candidate = cfg.Vocab / cfg.Clusters * cfg.TopClusters
	}
	for _, k := range cfg.AllKinds() {
		d := cfg.Dims(k)
		a := Attn{Slots: o.Context, Layout: Linear, HeadDim: d.HeadDim, KVHeads: d.KVHeads, InvFreq: cfg.Rope[k].InvFreq()}
		if k == models.Sliding {
			a.Window = cfg.Window
			if cfg.Drafter == models.Gemma4Assistant {
				a.Window++ // its query stands behind the last row, which it counts as well
			}
			a.Slots, a.Layout = min(a.Window, o.Context), Ring
		}
		c.Attention[k] = a
	}
	switch cfg.Drafter {
	case models.Gemma4Assistant:
		c.Target.Keys = map[string]drafter.Shape{}
		for k, a := range c.Attention {
			c.Target.Keys[string(k)] = drafter.Shape{Heads: a.KVHeads, HeadDim: a.HeadDim}
		}
	case models.MTPModules:
		c.MaxDraft = cfg.Layers
	case models.DSpark:
		if c.MaxDraft = cfg.Block; cfg.Reading == models.ReadMasks {
			c.MaxDraft--
		}
	}
	blocks := o.Blocks
	if blocks == nil {
		blocks = []int{cfg.Block}
	}
	c.Functions = c.functions(o.Rows, blocks)
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("chunking: %w", err)
	}
	return c, nil
}

// functions declares what the package offers.
func (c *DrafterContract) functions(rows, blocks []int) []DraftFunction {
	var fs []DraftFunction
	add := func(name string, does models.DrafterFunction, module, T int) {
		f := DraftFunction{Name: name, Does: does, Module: module, T: T}
		c.ports(&f)
		fs = append(fs, f)
	}
	switch c.Drafter {
	case models.Gemma4Assistant:
		add("draft", models.DraftOnce, 0, 1)
	case models.Eagle3:
		add("draft", models.DraftOnce, 0, 1)
		for _, n := range rows {
			add(fmt.Sprintf("extend_%d", n), models.Extend, 0, n)
		}
	case models.MTPModules:
		for k := range c.Layers {
			for _, n := range rows {
				add(fmt.Sprintf("module%d_%d", k, n), models.ModuleStep, k, n)
			}
		}
	case models.DSpark:
		for _, n := range blocks {
			add(fmt.Sprintf("draft_%d", n), models.DraftOnce, 0, n)
		}
		for _, n := range rows {
			add(fmt.Sprintf("context_%d", n), models.ContextRows, 0, n)
		}
	}
	return fs
}

// ports declares what a function takes and returns.
func (c *DrafterContract) ports(f *DraftFunction) {
	T := f.T
	in := func(name string, r models.Role, k models.Kind, shape ...int) {
		f.Inputs = append(f.Inputs, Port{Name: name, DType: c.Compute, Shape: shape, Role: r, Kind: k})
	}
	out := func(name string, r models.Role, k models.Kind, shape ...int) {
		f.Outputs = append(f.Outputs, Port{Name: name, DType: c.Compute, Shape: shape, Role: r, Kind: k})
	}
	integer := func(ports *[]Port, name string, r models.Role, shape ...int) {
		*ports = append(*ports, Port{Name: name, DType: "int32", Shape: shape, Role: r})
	}
	if f.Does == models.Extend || f.Does == models.ContextRows {
		in("taps", models.TapsIn, "", 1, T, len(c.Target.Taps)*c.Target.Hidden)
	}
	if f.Does != models.ContextRows {
		width := c.Hidden
		if c.Drafter == models.Gemma4Assistant {
			width = c.Target.Hidden
		}
		in("token_embedding", models.TokenEmbedding, "", 1, T, width)
	}
	switch {
	case c.Drafter == models.Gemma4Assistant:
		in("target_hidden", models.TargetHidden, "", 1, T, c.Target.Hidden)
		f.Inputs[len(f.Inputs)-1].Norm = drafter.Post
	case c.Drafter == models.Eagle3 && f.Does == models.DraftOnce, c.Drafter == models.MTPModules:
		in("draft_hidden", models.DraftHiddenIn, "", 1, T, c.Hidden)
	case f.Does == models.DraftOnce:
		integer(&f.Inputs, "anchor", models.Anchor, 1)
	}
	for _, k := range []models.Kind{models.Full, models.Sliding} {
		a, ok := c.Attention[k]
		if !ok {
			continue
		}
		n := 1
		if c.Drafter == models.DSpark {
			n = c.Layers
		}
		if f.Does != models.ContextRows {
			columns := a.Slots + T
			if c.Drafter == models.Gemma4Assistant {
				columns = a.Slots
			}
			in("mask_"+string(k), models.Mask, k, 1, 1, T, columns)
			in("K_"+string(k)+"_in", models.KeyCache, k, n, a.KVHeads, a.Slots, a.HeadDim)
			in("V_"+string(k)+"_in", models.ValueCache, k, n, a.KVHeads, a.Slots, a.HeadDim)
		}
		in("cos_"+string(k[0]), models.RopeCos, k, 1, 1, T, a.HeadDim)
		in("sin_"+string(k[0]), models.RopeSin, k, 1, 1, T, a.HeadDim)
		if c.Drafter != models.Gemma4Assistant && !(c.Drafter == models.DSpark && f.Does == models.DraftOnce) {
			out("new_K_"+string(k), models.NewKeys, k, n, a.KVHeads, T, a.HeadDim)
			out("new_V_"+string(k), models.NewValues, k, n, a.KVHeads, T, a.HeadDim)
		}
	}
	switch {
	case f.Does == models.ContextRows:
		return
	case c.Drafter == models.DSpark:
		if c.Reading == models.ReadMasks {
			T--
		}
		integer(&f.Outputs, "draft_ids", models.DraftIDs, 1, T)
		if c.Confident {
			out("confidence", models.Confidence, "", 1, T)
		}
	case c.Drafter == models.Gemma4Assistant:
		out("draft_hidden_out", models.DraftHiddenOut, "", 1, T, c.Target.Hidden)
	default:
		out("draft_hidden_out", models.DraftHiddenOut, "", 1, T, c.Hidden)
	}
	if c.Candidate > 0 {
		integer(&f.Outputs, "candidate_ids", models.CandidateIDs, 1, c.Candidate)
		out("candidate_logits", models.CandidateLogits, "", 1, c.Candidate)
		return
	}
	out("logits", models.Logits, "", 1, T, c.DraftVocab)
}

// Validate checks that the contract is complete and free of contradictions.
func (c *DrafterContract) Validate() error {
	switch {
	case c.Version != ContractVersion:
		return fmt.Errorf("version %d is not supported (want %d; convert again)", c.Version, ContractVersion)
	case !slices.Contains([]string{models.Gemma4Assistant, models.Eagle3, models.MTPModules, models.DSpark}, c.Drafter):
		return fmt.Errorf("drafter %q is not known", c.Drafter)
	case c.Compute != "fp16" && c.Compute != "fp32":
		return fmt.Errorf("compute is %q, want fp16 or fp32", c.Compute)
	case c.Layers < 1 || c.Hidden < 1 || c.Target.Hidden < 1 || c.Context < 1 || c.MaxDraft < 1:
		return fmt.Errorf("layers %d, hidden_size %d, target hidden_size %d, context %d, max_draft %d: want positive numbers", c.Layers, c.Hidden, c.Target.Hidden, c.Context, c.MaxDraft)
	case c.DraftVocab < 1 || c.DraftVocab > c.Vocab || (c.TargetIDs != "") != (c.DraftVocab < c.Vocab):
		return fmt.Errorf("draft_vocab_size %d of %d, target_ids %q", c.DraftVocab, c.Vocab, c.TargetIDs)
	case !plainName(c.File) || c.TargetIDs != "" && !plainName(c.TargetIDs):
		return fmt.Errorf("files %q and %q are not plain names", c.File, c.TargetIDs)
	case c.Target.Norm != "" && c.Target.Norm != drafter.Pre && c.Target.Norm != drafter.Post:
		return fmt.Errorf("target norm is %q, want pre or post", c.Target.Norm)
	case !(c.Mask.Blocked < 0):
		return fmt.Errorf("mask.blocked is %g, want a negative number", c.Mask.Blocked)
	case len(c.Attention) == 0 || len(c.Functions) == 0:
		return fmt.Errorf("no attention or no functions")
	}
	if c.Embedding != nil {
		if err := c.Embedding.validate(); err != nil {
			return err
		}
	}
	for k, a := range c.Attention {
		if a.Slots < 1 || a.KVHeads < 1 || a.HeadDim < 2 || 2*len(a.InvFreq) != a.HeadDim || a.Layout != Linear && a.Layout != Ring {
			return fmt.Errorf("attention %s: %d slots, layout %q, %d frequencies for %d heads of %d", k, a.Slots, a.Layout, len(a.InvFreq), a.KVHeads, a.HeadDim)
		}
	}
	for i := range c.Functions {
		f := &c.Functions[i]
		if f.T < 1 || f.Module < 0 || f.Module >= c.Layers {
			return fmt.Errorf("function %s: %d tokens, module %d", f.Name, f.T, f.Module)
		}
		want := DraftFunction{Name: f.Name, Does: f.Does, Module: f.Module, T: f.T}
		c.ports(&want)
		for _, side := range []struct {
			what      string
			got, want []Port
		}{{"input", f.Inputs, want.Inputs}, {"output", f.Outputs, want.Outputs}} {
			if len(side.got) != len(side.want) {
				return fmt.Errorf("function %s has %d %ss, want %d", f.Name, len(side.got), side.what, len(side.want))
			}
			for _, p := range side.got {
				q := Find(side.want, p.Role, p.Kind)
				if q == nil || p.DType != q.DType || !slices.Equal(p.Shape, q.Shape) || p.Norm != q.Norm || !mil.LegalName(p.Name) {
					return fmt.Errorf("function %s: %s %s is %s, which is not what the contract implies elsewhere", f.Name, side.what, p.Name, describe(p))
				}
			}
		}
	}
	return nil
}

// Part gives the model what it needs to build function f.
func (c *DrafterContract) Part(f *DraftFunction) (models.DrafterPart, error) {
	p := models.DrafterPart{Function: f.Does, Module: f.Module, T: f.T}
	conv := func(ports []Port) (out []models.Port, err error) {
		for _, q := range ports {
			d, err := mil.ParseDType(q.DType)
			if err != nil {
				return nil, fmt.Errorf("chunking: %s: %s: %w", f.Name, q.Name, err)
			}
			out = append(out, models.Port{Name: q.Name, Role: q.Role, Kind: q.Kind, DType: d, Shape: q.Shape, PostNorm: q.Norm == "post"})
		}
		return out, nil
	}
	var err error
	if p.Inputs, err = conv(f.Inputs); err != nil {
		return p, err
	}
	p.Outputs, err = conv(f.Outputs)
	return p, err
}

// Find returns the function for at least n tokens with the fewest rows, or the
// one with the most if none is large enough; nil if there is none at all.
func (c *DrafterContract) Find(does models.DrafterFunction, module, n int) *DraftFunction {
	var best *DraftFunction
	for i := range c.Functions {
		f := &c.Functions[i]
		if f.Does != does || f.Module != module {
			continue
		}
		if best == nil || best.T < n && f.T > best.T || f.T >= n && f.T < best.T {
			best = f
		}
	}
	return best
}

// IsDrafter reports whether a directory is the bundle of a drafter.
func IsDrafter(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, DrafterFile))
	return err == nil
}

// ReadDrafter reads and validates the contract of a drafter's bundle.
func ReadDrafter(dir string) (*DrafterContract, error) {
	path := filepath.Join(dir, DrafterFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("chunking: %s is not a drafter: there is no %s in it (convert its checkpoint first)", dir, DrafterFile)
	}
	if err != nil {
		return nil, fmt.Errorf("chunking: %w", err)
	}
	var c DrafterContract
	if err := decodeStrict(path, data, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

// Marshal returns the contract as indented JSON.
func (c *DrafterContract) Marshal() ([]byte, error) {
	b, err := json.MarshalIndent(c, "", "  ")
	return append(b, '\n'), err
}
