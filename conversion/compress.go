package conversion

import (
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mil/pass"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/quant"
)

// compression is what a recipe decides for the weights of a model.
type compression struct {
	formats map[string]quant.Format // by name of the tensor
	saved   map[string]int64        // bytes, next to fp16
	coded   map[string]*pass.Coded  // by calibration
	done    []*pass.CompressedWeight
}

// planCompression checks a recipe against the model.
func (s *Source) planCompression(r *quant.Recipe, compute string) (err error) {
	s.compression, err = newCompression(r, s.Model.Weights(), compute)
	return err
}

// newCompression checks a recipe against the weights of a model. Weights that
// share a tensor, a tied embedding and head, share its format.
func newCompression(r *quant.Recipe, weights []models.WeightUse, compute string) (*compression, error) {
	if r == nil {
		return nil, nil
	}
	if r.Target != quant.TargetCoreML {
		return nil, fmt.Errorf("conversion: the recipe is for %s, not for %s (smelt quantize writes MLX directories)", r.Target, quant.TargetCoreML)
	}
	if compute != "fp16" {
		return nil, fmt.Errorf("conversion: compressed weights are fp16, which --compute f32 excludes")
	}
	var targets []quant.Target
	var names []string
	for _, u := range weights {
		if u.Use != models.Used {
			continue
		}
		class, layer := quant.Classify(u.Name)
		dt, err := checkpoint.ParseDType(u.DType)
		if err != nil {
			return nil, err
		}
		names = append(names, u.Name)
		targets = append(targets, quant.Target{Path: strings.TrimSuffix(u.Name, ".weight"), Class: class, Layer: layer,
			DType: dt, Shape: u.Shape, Weight: len(u.Shape) == 2 && class != quant.Norm && strings.HasSuffix(u.Name, ".weight")})
	}
	choices, err := r.Plan(targets)
	if err != nil {
		return nil, err
	}
	k := &compression{formats: map[string]quant.Format{}, saved: map[string]int64{}}
	var bad []string
	for i, c := range choices {
		shape := targets[i].Shape
		if c.Keep || elements(shape) <= pass.MinCompressed {
			continue
		}
		form, err := quant.NewForm(c.Format, shape[0], shape[1])
		if err != nil && r.KeepIndivisible && !c.Named && c.Format.Indivisible(shape[0], shape[1]) {
			continue
		}
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s: %s", targets[i].Path, strings.TrimPrefix(err.Error(), "quant: ")))
			continue
		}
		k.formats[names[i]] = c.Format
		k.saved[names[i]] = 2*elements(shape) - form.Bytes()
	}
	if len(bad) > 0 {
		const show = 8
		if n := len(bad); n > show {
			bad = append(bad[:show], fmt.Sprintf("and %d more", n-show))
		}
		return nil, fmt.Errorf("conversion: the recipe does not fit the model:\n  %s", strings.Join(bad, "\n  "))
	}
	return k, nil
}

// shrink takes what compression saves off the sizes of layers, embedding and
// head.
func (s *Source) shrink(sizes *chunking.Sizes, embed string) {
	if s.compression == nil {
		return
	}
	for name, saved := range s.compression.saved {
		class, layer := quant.Classify(name)
		switch {
		case layer >= 0 && layer < len(sizes.Layers):
			sizes.Layers[layer] -= saved
		case class == quant.Head:
			sizes.Last -= saved
		case name == "model.embed_tokens.weight":
			if embed == chunking.EmbedGraph {
				sizes.First -= saved
			}
			if s.Model.Config().Tied {
				sizes.Last -= saved
			}
		case class != quant.Embedding || embed == chunking.EmbedGraph:
			sizes.First -= saved
		}
	}
}

// passes are the rewrites of a program.
func (s *Source) passes(residual float64, fp16 bool) []pass.Pass {
	return s.compression.passes(residual, fp16)
}

// passes are the rewrites of a program. The one that replaces weights by codes
// comes before names are made unique.
func (k *compression) passes(residual float64, fp16 bool) []pass.Pass {
	ps := pass.Standard(residual, fp16)
	if k == nil {
		return ps
	}
	compress := pass.Pass{Name: "compress", Run: func(p *mil.Program) error {
		done, err := pass.CompressCoded(p, func(name string) (quant.Format, bool) {
			f, ok := k.formats[name]
			return f, ok
		}, k.coded)
		k.done = append(k.done, done...)
		return err
	}}
	return slices.Insert(ps, len(ps)-1, compress)
}

// CompressedClass sums up compressed weights of a class and format.
type CompressedClass struct {
	Class       quant.Class `json:"class"`
	Format      string      `json:"format"`
	Weights     int         `json:"weights"`
	Parameters  int64       `json:"parameters"`
	Bytes       int64       `json:"bytes"`
	BPW         float64     `json:"bits_per_weight"`
	RelativeMSE float64     `json:"relative_mse"`
	// Of calibrated weights: what errors do to outputs on the calibration text,
	// relative to the outputs, and what they do with method rtn.
	OutputError *float64 `json:"output_error,omitempty"`
	OutputRTN   *float64 `json:"output_error_rtn,omitempty"`
	stats       quant.Stats
}

// classes sums up what Compress did, once the packages are written.
func (k *compression) classes() []CompressedClass {
	if k == nil {
		return nil
	}
	var out []CompressedClass
	for _, w := range k.done {
		class, _ := quant.Classify(w.Name)
		format := w.Format.Describe()
		i := slices.IndexFunc(out, func(c CompressedClass) bool { return c.Class == class && c.Format == format })
		if i < 0 {
			i = len(out)
			out = append(out, CompressedClass{Class: class, Format: format})
		}
		c := &out[i]
		c.Weights++
		c.Parameters += int64(w.Type.NumElements())
		c.Bytes += w.Bytes
		c.BPW = 8 * float64(c.Bytes) / float64(c.Parameters)
		c.stats.Add(w.Stats)
		c.RelativeMSE = c.stats.RelativeMSE()
		if st := c.stats; st.OutputEnergy > 0 {
			e, r := st.OutputError/st.OutputEnergy, st.OutputRTN/st.OutputEnergy
			c.OutputError, c.OutputRTN = &e, &r
		}
	}
	slices.SortStableFunc(out, func(a, b CompressedClass) int {
		return slices.Index(quant.Classes, a.Class) - slices.Index(quant.Classes, b.Class)
	})
	return out
}
