package conversion

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/quant"
)

// DrafterPlan says what ConvertDrafter would write, and what drafting reads.
type DrafterPlan struct {
	Drafter  string                 `json:"drafter"`
	Layers   int                    `json:"layers"`
	Context  int                    `json:"context"`
	Compute  string                 `json:"compute"`
	MaxDraft int                    `json:"max_draft"`
	Target   chunking.DrafterTarget `json:"target"`
	// Weights are the bytes of the weight file, which all functions share;
	// exact but for padding of less than 64 bytes.
	Weights   int64          `json:"weight_bytes"`
	Functions []PlanFunction `json:"functions"`
	Tables    []PlanTable    `json:"tables"` // sidecars
	// Copies are tables of the target that the drafter's checkpoint repeats.
	// TargetKnown says whether there was a target to compare with.
	Copies      []PlanCopy `json:"copies_of_the_target"`
	TargetKnown bool       `json:"target_known"`
	// Reads are the bytes that one draft reads, or one block of drafts, by
	// class of tensor, with all cache slots in use; Commits those that every
	// call reads which takes in tokens of the text.
	Reads      []ClassBytes      `json:"bytes_per_draft"`
	Total      int64             `json:"total"`
	Commits    int64             `json:"bytes_per_commit"`
	Block      bool              `json:"drafts_come_in_blocks"`
	Compressed []CompressedClass `json:"compressed,omitempty"`
	Warnings   []string          `json:"warnings,omitempty"`
}

// PlanCopy is a table of a drafter that its target has as well.
type PlanCopy struct {
	Tensor  string `json:"tensor"`
	Of      string `json:"of"`
	Bytes   int64  `json:"bytes"`   // in the bundle, if it were written
	Written bool   `json:"written"` // whether it is
}

// PlanDrafter works out what ConvertDrafter would write, without writing.
// Tables are compared with those of the target, if it is given; no other
// tensors are read.
func PlanDrafter(ctx context.Context, src string, o DrafterOptions) (*DrafterPlan, error) {
	s, err := openDrafter(src, &o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, shared, err := s.design(o)
	if err != nil {
		return nil, err
	}
	r := &DrafterPlan{Drafter: c.Drafter, Layers: c.Layers, Context: c.Context, Compute: c.Compute, MaxDraft: c.MaxDraft, Target: c.Target,
		Tables: []PlanTable{}, Copies: []PlanCopy{}, TargetKnown: s.targetTable != nil, Block: c.Drafter == models.DSpark}
	p, err := s.program(c)
	if err != nil {
		return nil, err
	}
	if r.Weights, err = mlpackage.WeightBytes(p); err != nil {
		return nil, err
	}
	for i := range c.Functions {
		f := &c.Functions[i]
		name := f.Name
		if _, ok := p.Functions[name]; !ok {
			name = "main"
		}
		r.Functions = append(r.Functions, PlanFunction{Name: f.Name, Tokens: f.T, Ops: countOps(p.Functions[name]), Inputs: f.Inputs, Outputs: f.Outputs})
	}
	if c.Embedding != nil {
		r.Tables = append(r.Tables, planTable(c.Embedding.File, "", s.d.Embedding()))
	}
	if c.TargetIDs != "" {
		r.Tables = append(r.Tables, PlanTable{c.TargetIDs, []int{c.DraftVocab}, 4 * int64(c.DraftVocab)})
	}
	if err := s.copies(r, shared); err != nil {
		return nil, err
	}
	s.reads(r, c)
	r.Compressed = s.compression.classes()
	for i := range r.Compressed {
		r.Compressed[i].RelativeMSE = 0 // known once the codes are
	}
	r.Warnings, err = s.halves()
	return r, err
}

// copies looks for tables that the target has.
func (s *drafterSource) copies(r *DrafterPlan, shared bool) error {
	if s.targetTable == nil {
		return nil
	}
	if own := s.d.Embedding(); shared {
		r.Copies = append(r.Copies, PlanCopy{own.Name(), "embeddings", checkpoint.NumBytes(own), false})
	}
	for _, name := range []string{"lm_head.weight", "model.embed_tokens.weight", "embed_tokens.weight"} {
		own, ok := s.d.Source().Tensor(name)
		if !ok || name == "embed_tokens.weight" && s.d.Config().Drafter != models.MTPModules {
			continue
		}
		for _, t := range []struct {
			of string
			x  checkpoint.Tensor
		}{{"head", s.targetHead}, {"embeddings", s.targetTable}} {
			if t.x == nil {
				continue
			}
			equal, err := equalTables(own, t.x)
			if err != nil {
				return err
			}
			if equal {
				n := s.compression.stored(name, elements(own.Shape()), width(r.Compute))
				r.Copies = append(r.Copies, PlanCopy{name + " (as head)", t.of, n, true})
				break
			}
		}
	}
	return nil
}

func width(compute string) int64 {
	if compute == "fp32" {
		return 4
	}
	return 2
}

// reads adds up what drafting reads.
func (s *drafterSource) reads(r *DrafterPlan, c *chunking.DrafterContract) {
	cfg, w := s.d.Config(), width(c.Compute)
	sum := map[string]int64{}
	for _, u := range s.d.Weights() {
		if u.Use != models.Used {
			continue
		}
		n := s.compression.stored(u.Name, elements(u.Shape), w)
		rows := func(count, of int) int64 { return n / int64(max(of, 1)) * int64(count) }
		class, _ := quant.Classify(u.Name)
		switch {
		case u.Name == "d2t" || u.Name == "t2d" || strings.HasSuffix(u.Name, ".token_ordering"):
		case strings.HasSuffix(u.Name, "embed_tokens.weight"):
			switch cfg.Drafter {
			case models.MTPModules:
				sum[ClassHead] += n
			case models.Gemma4Assistant:
				if !cfg.Tied {
					break // the head has a table of its own, and rows are the target's
				}
				if sum[ClassHead] += n; cfg.Clusters > 0 {
					sum[ClassHead] -= n - rows(cfg.TopClusters, cfg.Clusters)
				}
			}
		case u.Name == "lm_head.weight":
			if sum[ClassHead] += n; cfg.Clusters > 0 {
				sum[ClassHead] -= n - rows(cfg.TopClusters, cfg.Clusters)
			}
		case u.Name == "fc.weight":
			r.Commits += n // only what takes taps in multiplies by it
		case strings.Contains(u.Name, "markov_w1"):
			sum[ClassOther] += rows(c.Block, cfg.Vocab)
		case strings.Contains(u.Name, "markov_") || strings.Contains(u.Name, "confidence_"):
			sum[ClassOther] += n
		case class == quant.Norm || class == quant.Other && len(u.Shape) == 1:
			sum[ClassNorms] += n
		default:
			sum[partOf(class)] += n
		}
	}
	if cfg.Drafter == models.MTPModules { // a draft is one module
		for _, class := range []string{ClassAttention, ClassMLP, ClassProjections, ClassNorms} {
			sum[class] /= int64(max(1, c.Layers))
		}
	}
	for kind, a := range c.Attention {
		layers := 0
		for _, k := range cfg.Kinds {
			if k == kind {
				layers++
			}
		}
		if cfg.Drafter == models.MTPModules {
			layers = 1
		}
		sum[ClassKV] += 2 * int64(layers) * int64(a.KVHeads) * int64(a.Slots) * int64(a.HeadDim) * w
	}
	switch cfg.Drafter {
	case models.DSpark: // keys and values of every layer follow from the taps
		for _, u := range s.d.Weights() {
			if strings.HasSuffix(u.Name, "k_proj.weight") {
				r.Commits += s.compression.stored(u.Name, elements(u.Shape), w)
			}
		}
	case models.Eagle3, models.MTPModules:
		r.Commits += sum[ClassAttention] + sum[ClassMLP] + sum[ClassProjections] + sum[ClassNorms]
		if cfg.Drafter == models.MTPModules {
			r.Commits *= int64(c.Layers)
		}
	}
	for _, class := range []string{ClassHead, ClassAttention, ClassMLP, ClassProjections, ClassOther, ClassKV, ClassNorms} {
		if n := sum[class]; n > 0 {
			r.Reads = append(r.Reads, ClassBytes{class, n})
			r.Total += n
		}
	}
	slices.SortStableFunc(r.Reads, func(a, b ClassBytes) int { return cmp.Compare(b.Bytes, a.Bytes) })
}

// Classes of what a draft reads beside those of a decoder.
const (
	ClassProjections = "projections"
	ClassOther       = "bigram and confidence heads"
)

// partOf is the class of what a draft reads that a weight belongs to.
func partOf(c quant.Class) string {
	switch c {
	case quant.Query, quant.Key, quant.Value, quant.Output:
		return ClassAttention
	case quant.Gate, quant.Up, quant.Down:
		return ClassMLP
	}
	return ClassProjections
}
