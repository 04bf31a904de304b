package mlx

import (
	"slices"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/quant"
)

// unloadable warns of formats that mlx-lm does not know.
func unloadable(r *quant.Recipe) []string {
	turbo := func(f quant.Format) bool { return f.Codec == "turboquant" }
	if turbo(r.Default) || slices.ContainsFunc(r.Rules, func(u quant.Rule) bool { return turbo(u.Format) }) {
		return []string{"mlx-lm has no mode turboquant: smelt alone reads this directory (quantize --dequantize makes one that others load)"}
	}
	return nil
}

// learn adds what a codec can know of the inputs of m.
func learn(o *quant.Options, c quant.Codec, m *calibration.Module) (err error) {
	t, turns := c.(quant.Turbo)
	switch {
	case o.Method == quant.Refit && turns:
		// Errors in turned columns cost what a matrix says, though that of the
		// inputs is but a diagonal.
		o.Method = quant.ErrorFeedback
		o.Feedback, err = quant.NewTurnedFeedback(diagonal(m.Hessian.Diagonal), m.Hessian.Cols, t.Group, m.Damping)
	case o.Method == quant.Refit:
		o.Importance = m.Hessian.Importance()
	case turns:
		o.Feedback, err = m.TurnedFeedback(t.Group)
	default:
		o.Feedback, err = m.Feedback(groupOf(c))
	}
	return err
}

// groupOf is the number of columns that share a scale.
func groupOf(c quant.Codec) int {
	if f, ok := c.(quant.Float); ok {
		return f.Group()
	}
	return c.(quant.Affine).Group
}

// diagonal is a matrix that has d on its diagonal.
func diagonal(d []float64) []float64 {
	m := make([]float64, len(d)*len(d))
	for i, v := range d {
		m[i*len(d)+i] = v
	}
	return m
}
