package main

import (
	"slices"
	"strings"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/quant"
)

// coremlPresets are the presets that --quantize of convert takes.
func coremlPresets() []string {
	return slices.DeleteFunc(quant.Presets(), func(p string) bool { return !strings.HasPrefix(p, "coreml-") })
}

// convertCalibration is what the flags say about a conversion by a recipe. A plan
// needs none.
func convertCalibration(c *calibrationFlags, dir string, r *quant.Recipe, plan bool) (*conversion.Calibration, error) {
	if r == nil {
		if c.file != "" {
			return nil, usagef("--calibration is for --quantize: give a recipe")
		}
		return nil, nil
	}
	if plan && c.file == "" {
		return nil, nil
	}
	m, err := c.load(dir, r)
	if m == nil || err != nil {
		return nil, err
	}
	return &conversion.Calibration{Windows: m.Windows, Correction: m.Correction}, nil
}
