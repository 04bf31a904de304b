package conversion

import (
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/models"
)

// Report says what a conversion did: what became of every tensor, what was
// assumed, and how large the chunks are.
type Report struct {
	Architecture  string         `json:"architecture"`
	Used          int            `json:"tensors_used"`
	Waived        []WaivedTensor `json:"tensors_waived"`
	Defaulted     []string       `json:"config_defaults_taken,omitempty"`
	Ignored       []string       `json:"config_keys_ignored,omitempty"`
	Probe         *Probe         `json:"range_probe,omitempty"`
	Chunks        []ChunkReport  `json:"chunks"`
	Files         []string       `json:"files_copied"`
	ResidualScale float64        `json:"residual_scale"`

	Compressed []CompressedClass `json:"compressed,omitempty"`

	contract *chunking.Contract
}

// WaivedTensor is a tensor that the bundle does not contain, and why.
type WaivedTensor struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// ChunkReport measures one chunk.
type ChunkReport struct {
	Name      string   `json:"name"`
	Layers    [2]int   `json:"layers"`
	Functions []string `json:"functions"`
	Ops       int      `json:"ops"` // constants apart
	Model     int64    `json:"model_bytes"`
	Weights   int64    `json:"weight_bytes"`
	Shared    int64    `json:"shared_bytes"` // what equal constants did not take again
}

func newReport(s *Source, c *chunking.Contract) *Report {
	cfg := s.Model.Config()
	r := &Report{Architecture: cfg.Architecture, Defaulted: cfg.Defaulted, Ignored: s.ignore, contract: c, Waived: []WaivedTensor{}}
	for _, w := range s.view.Waived() {
		r.Waived = append(r.Waived, WaivedTensor{w.Name, w.Reason})
	}
	for _, u := range s.Model.Weights() {
		if u.Use == models.Used {
			r.Used++
		} else {
			r.Waived = append(r.Waived, WaivedTensor{u.Name, u.Reason})
		}
	}
	return r
}

// Contract returns the contract of the bundle.
func (r *Report) Contract() *chunking.Contract { return r.contract }

func (r *Report) addChunk(ch *chunking.Chunk, p *mil.Program, w mlpackage.Report) {
	c := ChunkReport{Name: ch.Name, Layers: [2]int{ch.First, ch.Last}, Model: w.Model, Weights: w.Weights, Shared: w.Shared}
	for _, f := range p.Functions {
		f.Body.Walk(func(op *mil.Op) {
			if !op.IsConst() {
				c.Ops++
			}
		})
	}
	for _, f := range ch.Functions {
		c.Functions = append(c.Functions, f.Name)
	}
	r.Chunks = append(r.Chunks, c)
	r.ResidualScale = r.contract.ResidualScale
}
