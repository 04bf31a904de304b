package conversion

import (
	"fmt"
	"math"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/mil/pass"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/quant"
)

// compress checks a recipe against the drafter. The confidence head of a block
// drafter is kept whatever the recipe says, and a table of which the host looks
// rows up stays as it is stored.
func (s *drafterSource) compress(r *quant.Recipe, compute string) error {
	if r == nil {
		return nil
	}
	recipe := *r
	if s.d.Config().Confidence {
		recipe.Rules = append([]quant.Rule{{Path: []string{"confidence_head.**"}, Keep: true, Optional: true}}, recipe.Rules...)
	}
	k, err := newCompression(&recipe, s.d.Weights(), compute)
	if err != nil {
		return err
	}
	for name, f := range k.formats {
		if f.Method.Calibrated() {
			return fmt.Errorf("conversion: tensor %q: method %s learns from a text, which a drafter cannot run without its target's states (want rtn or refit)", name, f.Method)
		}
	}
	if c := s.d.Config(); c.Drafter == models.Eagle3 || c.Drafter == models.DSpark {
		delete(k.formats, "embed_tokens.weight")
	}
	s.recipe, s.compression = &recipe, k
	return nil
}

// beside lists the weights whose columns belong to several inputs side by
// side, with the number of these.
func (s *drafterSource) beside() map[string]int {
	c := s.d.Config()
	out := map[string]int{}
	switch c.Drafter {
	case models.Eagle3:
		out["fc.weight"] = len(c.Taps)
		for _, p := range []string{"q", "k", "v"} {
			out["midlayer.self_attn."+p+"_proj.weight"] = 2
		}
	case models.DSpark:
		out["fc.weight"] = len(c.Taps)
	case models.MTPModules:
		for i := range c.Layers {
			out[fmt.Sprintf("modules_list.%d.input_proj.weight", i)] = 2
		}
	case models.Gemma4Assistant:
		out["pre_projection.weight"] = 2
	}
	return out
}

// unlike is the ratio of sizes of two inputs' columns in a row from which a scale
// for all of them is doubtful: at 4 bits a step is a seventh of the largest.
const unlike = 5

// halves warns of weights whose columns belong to inputs of very different
// size, and that get one scale or table a row: what belongs to the smaller
// input is rounded to nothing.
func (s *drafterSource) halves() (warnings []string, err error) {
	if s.compression == nil {
		return nil, nil
	}
	parts := s.beside()
	for _, u := range s.d.Weights() {
		n := parts[u.Name]
		f, ok := s.compression.formats[u.Name]
		whole := f.Codec == "linear" && f.GroupSize == 0 || f.Codec == "palette" && !f.ChannelScale
		if n < 2 || !ok || !whole || f.Bits > 6 {
			continue
		}
		t, _ := s.d.Source().Tensor(u.Name)
		ratio, err := sizesBeside(t, n)
		if err != nil {
			return nil, err
		}
		if ratio > unlike {
			warnings = append(warnings, fmt.Sprintf("%s: columns of the %d inputs side by side differ in size ×%.0f in a row, and %s has one scale for all of them: the smaller may vanish (take blocks along the row, such as coreml-int4-b32, or 8 bits)", u.Name, n, ratio, f.Describe()))
		}
	}
	return warnings, nil
}

// sizesBeside is the median over rows of the ratio between the largest and the
// smallest root mean square of n equal ranges of columns.
func sizesBeside(t checkpoint.Tensor, n int) (float64, error) {
	defer checkpoint.Release(t)
	rows, cols := t.Shape()[0], t.Shape()[1]
	width := cols / n
	row := make([]float32, cols)
	var ratios []float64
	for r := 0; r < rows; r += max(1, rows/512) {
		if err := t.ReadFloat32(row, r*cols); err != nil {
			return 0, fmt.Errorf("conversion: %w", err)
		}
		lo, hi := math.Inf(1), 0.0
		for i := range n {
			sum := 0.0
			for _, v := range row[i*width : (i+1)*width] {
				sum += float64(float64(v) * float64(v))
			}
			lo, hi = min(lo, sum), max(hi, sum)
		}
		if lo > 0 {
			ratios = append(ratios, math.Sqrt(hi/lo))
		}
	}
	if len(ratios) == 0 {
		return 1, nil
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2], nil
}

// stored tells the bytes of a weight in the package.
func (k *compression) stored(name string, elements, width int64) int64 {
	if k != nil {
		if _, ok := k.formats[name]; ok && elements > pass.MinCompressed {
			return 2*elements - k.saved[name]
		}
	}
	return elements * width
}
