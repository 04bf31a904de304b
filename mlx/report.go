package mlx

import (
	"github.com/smelt-go/smelt/quant"
)

// Report is what a quantization did.
type Report struct {
	Source     string   `json:"source"`
	ModelType  string   `json:"model_type"`
	Parameters int64    `json:"parameters"`
	Bytes      int64    `json:"bytes"` // of all tensors: codes, scales, biases and what is kept
	BPW        float64  `json:"bits_per_weight"`
	Shards     int      `json:"shards"`
	Classes    []Class  `json:"classes"`
	Modules    []Module `json:"modules"`
	Warnings   []string `json:"warnings,omitempty"`
}

// Class sums up the tensors of a class with one format.
type Class struct {
	Class       quant.Class `json:"class"`
	Format      string      `json:"format"`
	Tensors     int         `json:"tensors"`
	Parameters  int64       `json:"parameters"`
	Bytes       int64       `json:"bytes"`
	BPW         float64     `json:"bits_per_weight"`
	RelativeMSE *float64    `json:"relative_mse,omitempty"` // nil where tensors are kept
	Output
	stats quant.Stats
}

// Module is a tensor.
type Module struct {
	Path        string       `json:"path"`
	Class       quant.Class  `json:"class"`
	Format      string       `json:"format"`
	Method      quant.Method `json:"method,omitempty"`
	Shape       []int        `json:"shape"`
	Bytes       int64        `json:"bytes"`
	RelativeMSE *float64     `json:"relative_mse,omitempty"`
	Output
}

// Output is what errors do to the outputs of modules on the calibration text,
// relative to the outputs: Σ ‖(W − Ŵ)·x‖² / Σ ‖W·x‖², with the damping; with method
// refit as if columns of x were independent. Both are nil without a calibration.
type Output struct {
	OutputError *float64 `json:"output_error,omitempty"`
	OutputRTN   *float64 `json:"output_error_rtn,omitempty"` // with method rtn in the same place
	// Fallbacks counts rows that keep what rtn makes of them, because it was
	// better.
	Fallbacks int64 `json:"fallback_rows,omitempty"`
}

func output(s *quant.Stats) (o Output) {
	if s.OutputEnergy > 0 {
		e, r := s.OutputError/s.OutputEnergy, s.OutputRTN/s.OutputEnergy
		o = Output{&e, &r, s.Fallbacks}
	}
	return o
}

// add counts a tensor.
func (r *Report) add(m Module, parameters int64, stats *quant.Stats) {
	r.Parameters += parameters
	r.Bytes += m.Bytes
	if stats != nil {
		v := stats.RelativeMSE()
		m.RelativeMSE, m.Output = &v, output(stats)
	}
	r.Modules = append(r.Modules, m)
	var c *Class
	for i := range r.Classes {
		if r.Classes[i].Class == m.Class && r.Classes[i].Format == m.Format {
			c = &r.Classes[i]
		}
	}
	if c == nil {
		r.Classes = append(r.Classes, Class{Class: m.Class, Format: m.Format})
		c = &r.Classes[len(r.Classes)-1]
	}
	c.Tensors++
	c.Parameters += parameters
	c.Bytes += m.Bytes
	if stats != nil {
		c.stats.Add(*stats)
		v := c.stats.RelativeMSE()
		c.RelativeMSE, c.Output = &v, output(&c.stats)
	}
	c.BPW = 8 * float64(c.Bytes) / float64(max(c.Parameters, 1))
	r.BPW = 8 * float64(r.Bytes) / float64(max(r.Parameters, 1))
}
