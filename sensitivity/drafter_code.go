package sensitivity

import (
	"context"
	"slices"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/replay"
)

// moduleInput is what calibration knows of modules with one input.
type moduleInput struct {
	paths   []string
	hessian *calibration.Hessian
	damping float64
	factors map[quant.Format]*quant.Feedback
}

// input collects the inputs of a module, nil if it has none: a table of which rows
// are gathered.
func (s *draftSweep) input(m *replay.Module) (*moduleInput, error) {
	if s.seen != nil && slices.Contains(s.seen.paths, m.Path) {
		return s.seen, nil
	}
	x, err := draftInput(s, m)
	if err != nil {
		return nil, err
	}
	s.seen = x
	return x, nil
}

func draftInput(s *draftSweep, m *replay.Module) (*moduleInput, error) {
	var x *moduleInput
	_, err := s.run.Draft(s.ctx, replay.Options{Tap: func(in decoder.Input) error {
		if !slices.Contains(in.Modules, m.Path) {
			return nil
		}
		if x == nil {
			x = &moduleInput{paths: slices.Clone(in.Modules), hessian: calibration.NewHessian(in.X.Cols, false), damping: calibration.LayerDamping,
				factors: map[quant.Format]*quant.Feedback{}}
			if m.Class == quant.Head || m.Class == quant.Embedding {
				x.damping = calibration.HeadDamping
			}
		}
		x.hessian.Add(in.X)
		return nil
	}})
	return x, err
}

// code stores a matrix in a format.
func (s *draftSweep) code(m replay.Module, f quant.Format) (*coded, error) {
	o := quant.Options{Method: f.Method, Context: s.ctx}
	if f.Method == quant.RTN {
		return encodeWith(f, m.Tensor, o)
	}
	x, err := s.input(&m)
	if err != nil {
		return nil, err
	}
	switch {
	case x == nil:
		o.Method = quant.Refit
	case !f.Method.Calibrated():
		o.Importance = x.hessian.Importance()
	default:
		key := f
		key.Bits, key.Method = 0, ""
		if x.factors[key] == nil {
			if x.factors[key], err = feedbackOf(f, x.hessian, x.damping); err != nil {
				return nil, err
			}
		}
		o.Feedback = x.factors[key]
	}
	return encodeWith(f, m.Tensor, o)
}

// feedbackOf factors a Hessian for a format.
func feedbackOf(f quant.Format, h *calibration.Hessian, damping float64) (*quant.Feedback, error) {
	if f.Codec == "turboquant" {
		return quant.NewTurnedFeedback(h.Sum, h.Cols, f.GroupSize, damping)
	}
	return quant.NewFeedback(h.Sum, h.Cols, f.GroupSize, damping)
}

// DraftInputs returns what the inputs of a drafter's modules are like on captured
// states: the Hessian and the damping that suits it, nil for tables of which rows
// are gathered. It is what mlx.Options.Inputs takes.
func DraftInputs(ctx context.Context, d *replay.Drafter, in *DraftStates, gamma, every int) (func(path string) (*calibration.Hessian, float64, error), error) {
	s := &draftSweep{ctx: ctx, d: d, in: in, o: DrafterOptions{Gamma: gamma, Every: every}}
	if err := s.begin(); err != nil {
		return nil, err
	}
	return func(path string) (*calibration.Hessian, float64, error) {
		modules := d.Modules()
		i := slices.IndexFunc(modules, func(m replay.Module) bool { return m.Path == path })
		if i < 0 {
			return nil, 0, nil
		}
		x, err := s.input(&modules[i])
		if err != nil || x == nil {
			return nil, 0, err
		}
		return x.hessian, x.damping, nil
	}, nil
}
