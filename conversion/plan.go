package conversion

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/models"
)

// PlanReport says what a conversion would write, and what a device has to
// read for every token.
type PlanReport struct {
	Architecture string      `json:"architecture"`
	Layers       int         `json:"layers"`
	Context      int         `json:"context"`
	KV           string      `json:"kv"`
	Compute      string      `json:"compute"`
	Chunks       []PlanChunk `json:"chunks"`
	Tables       []PlanTable `json:"tables"` // sidecars
	Roofline     Roofline    `json:"roofline"`
}

// PlanChunk is one package.
type PlanChunk struct {
	Name   string `json:"name"`
	Layers [2]int `json:"layers"`
	// Weights are the bytes of the weight file, which all functions share;
	// exact but for padding of less than 64 bytes.
	Weights   int64          `json:"weight_bytes"`
	Functions []PlanFunction `json:"functions"`
}

// PlanFunction is one function of a package.
type PlanFunction struct {
	Name    string          `json:"name"`
	Tokens  int             `json:"tokens"`
	Ops     int             `json:"ops"` // constants apart
	Inputs  []chunking.Port `json:"inputs"`
	Outputs []chunking.Port `json:"outputs"`
	States  []chunking.Port `json:"states,omitempty"`
}

// PlanTable is a sidecar of embeddings.
type PlanTable struct {
	File  string `json:"file"`
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
}

// Roofline is what decoding one token reads, at the precision of the files
// and with all cache slots in use.
type Roofline struct {
	Classes []ClassBytes `json:"bytes_per_token"`
	Total   int64        `json:"total"`
	// Bandwidth is in 10⁹ bytes a second; Tokens is how many tokens a second
	// it allows if nothing else takes time.
	Bandwidth float64 `json:"bandwidth_gb_s"`
	Tokens    float64 `json:"tokens_per_second"`
}

// ClassBytes are the bytes read of one class of tensors.
type ClassBytes struct {
	Class string `json:"class"`
	Bytes int64  `json:"bytes"`
}

// Classes of what a token reads.
const (
	ClassEmbedding   = "embedding row"
	ClassPerLayerRow = "per-layer row"
	ClassPerLayer    = "per-layer weights"
	ClassAttention   = "attention"
	ClassMLP         = "mlp"
	ClassNorms       = "norms"
	ClassHead        = "head"
	ClassKV          = "kv cache"
)

// DefaultBandwidth, in 10⁹ bytes a second, is about that of a recent phone.
const DefaultBandwidth = 60

// Plan works out what Convert would write, without writing or reading tensors.
// src may lack tensors: config.json alone will do. bandwidth is in 10⁹ bytes
// a second, 0 means DefaultBandwidth.
func Plan(ctx context.Context, src string, o Options, bandwidth float64) (*PlanReport, error) {
	if bandwidth == 0 {
		bandwidth = DefaultBandwidth
	}
	if !(bandwidth > 0) {
		return nil, fmt.Errorf("conversion: bandwidth is %g, want a positive number of GB/s", bandwidth)
	}
	s, err := planSource(src, o.IgnoreKeys)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	o, c, err := s.design(o)
	if err != nil {
		return nil, err
	}
	r := &PlanReport{Architecture: c.Model.Architecture, Layers: c.Model.Layers, Context: c.Context, KV: c.KV, Compute: c.Compute, Tables: []PlanTable{}}
	for i := range c.Chunks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		o.progress("planning", int64(i), int64(len(c.Chunks)))
		ch := &c.Chunks[i]
		p, err := s.Program(c, ch)
		if err != nil {
			return nil, err
		}
		pc := PlanChunk{Name: ch.Name, Layers: [2]int{ch.First, ch.Last}}
		if pc.Weights, err = mlpackage.WeightBytes(p); err != nil {
			return nil, err
		}
		for j := range ch.Functions {
			f := &ch.Functions[j]
			name := f.Name
			if _, ok := p.Functions[name]; !ok {
				name = "main"
			}
			pc.Functions = append(pc.Functions, PlanFunction{Name: f.Name, Tokens: f.T, Ops: countOps(p.Functions[name]), Inputs: f.Inputs, Outputs: f.Outputs, States: f.States})
		}
		r.Chunks = append(r.Chunks, pc)
	}
	o.progress("planning", int64(len(c.Chunks)), int64(len(c.Chunks)))
	if m := c.Embedding.Mode; m == chunking.EmbedSidecar || m == chunking.EmbedInt8 {
		r.Tables = append(r.Tables, planTable(c.Embedding.File, c.Embedding.Scales, s.Model.Embedding()))
	}
	if p := c.PerLayer; p != nil {
		r.Tables = append(r.Tables, planTable(p.File, p.Scales, s.Model.PerLayerEmbedding()))
	}
	r.Roofline = s.roofline(c, bandwidth)
	return r, nil
}

// countOps counts the operators of a function, constants apart.
func countOps(f *mil.Function) int {
	n := 0
	f.Body.Walk(func(op *mil.Op) {
		if !op.IsConst() {
			n++
		}
	})
	return n
}

func planTable(file, scales string, t checkpoint.Tensor) PlanTable {
	n := checkpoint.NumBytes(t)
	if scales != "" {
		return PlanTable{file, t.Shape(), elements(t.Shape()) + 2*int64(t.Shape()[0])}
	}
	if t.DType() == checkpoint.F64 {
		n /= 2
	}
	return PlanTable{file, t.Shape(), n}
}

// roofline adds up what one decode call reads.
func (s *Source) roofline(c *chunking.Contract, bandwidth float64) Roofline {
	cfg, width := s.Model.Config(), int64(2)
	if c.Compute == "fp32" {
		width = 4
	}
	stored := map[string]int64{} // bytes of compressed tensors
	if s.compression != nil {
		for _, w := range s.compression.done {
			stored[w.Name] = w.Bytes
		}
	}
	sum := map[string]int64{}
	for _, u := range s.Model.Weights() {
		if u.Use != models.Used {
			continue
		}
		n, ok := stored[u.Name]
		if !ok {
			n = elements(u.Shape) * width
		}
		if class := classOf(u.Name); class != "" {
			sum[class] += n
		} else if cfg.Tied && strings.HasSuffix(u.Name, "embed_tokens.weight") {
			sum[ClassHead] = n // the table is read as the head, and a row of it as embedding
		}
	}
	row := func(t checkpoint.Tensor, gathered bool) int64 {
		if t == nil {
			return 0
		}
		each := int64(t.DType().Bits() / 8)
		if c.Embedding.Mode == chunking.EmbedInt8 {
			return int64(t.Shape()[1]) + 2
		}
		if gathered {
			each = width
		}
		return int64(t.Shape()[1]) * each
	}
	sum[ClassEmbedding] = row(s.Model.Embedding(), c.Embedding.Mode != chunking.EmbedSidecar)
	sum[ClassPerLayerRow] = row(s.Model.PerLayerEmbedding(), c.PerLayer == nil)
	for i := range cfg.Layers {
		a := c.Attention[cfg.Kinds[i]]
		sum[ClassKV] += 2 * int64(a.KVHeads) * int64(a.Slots) * int64(a.HeadDim) * width
	}
	r := Roofline{Bandwidth: bandwidth}
	for _, class := range []string{ClassEmbedding, ClassPerLayerRow, ClassPerLayer, ClassAttention, ClassMLP, ClassNorms, ClassHead, ClassKV} {
		if n := sum[class]; n > 0 {
			r.Classes = append(r.Classes, ClassBytes{class, n})
			r.Total += n
		}
	}
	r.Tokens = bandwidth * 1e9 / float64(r.Total)
	return r
}

// classOf is the class of a tensor that every token reads; "" for tables of
// which it reads a row.
func classOf(name string) string {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(name, p) })
	}
	switch {
	case has("embed_tokens"):
		return ""
	case name == "lm_head.weight":
		return ClassHead
	case has("norm", "layer_scalar"):
		return ClassNorms
	case has("per_layer"):
		return ClassPerLayer
	case has(".self_attn."):
		return ClassAttention
	}
	return ClassMLP
}

func elements(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	return n
}
