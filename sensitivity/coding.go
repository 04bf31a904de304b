package sensitivity

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/quant"
)

// Coding is what calibrated methods code with, as mlx.Calibration. The zero value
// is none.
type Coding struct {
	// Windows are sequences of tokens, as calibration.Windows makes them.
	Windows [][]int32
	// Correction is the part of the drift of its inputs that a module makes up
	// for, with method best.
	Correction float64
}

func (c *Coding) hash(h hash.Hash) {
	for _, w := range c.Windows {
		_ = binary.Write(h, binary.LittleEndian, int64(len(w)))
		_ = binary.Write(h, binary.LittleEndian, w)
	}
}

// calibrated reports whether a format's codes depend on the text.
func (c *Coding) calibrated(f quant.Format) bool {
	return f.Method.Calibrated() || f.Method == quant.Refit && len(c.Windows) > 0
}

// Stored codes all weights of a model by a recipe, in memory: with a calibrated
// method as mlx.Quantize does. The result holds them decoded, by tensor name.
func Stored(ctx context.Context, m *Model, r *quant.Recipe, c Coding) (map[string]checkpoint.Tensor, error) {
	return m.store(ctx, r, c, nil, nil)
}

// chosen are a recipe's formats by weight; those that it keeps have none.
func (m *Model) chosen(r *quant.Recipe) (map[int]quant.Format, error) {
	targets := make([]quant.Target, len(m.Weights))
	for i, w := range m.Weights {
		targets[i] = quant.Target{Path: w.Path, Class: w.Class, Layer: w.Layer, DType: w.Tensor.DType(), Shape: w.Tensor.Shape(), Weight: true}
	}
	choices, err := r.Plan(targets)
	if err != nil {
		return nil, err
	}
	out := map[int]quant.Format{}
	for i, c := range choices {
		if c.Keep {
			continue
		}
		f := c.Format
		if f.Method == "" {
			f.Method = quant.RTN
		}
		out[i] = f
	}
	return out, nil
}

// viewer is shown modules on the way through a calibration, each before it is
// coded itself.
type viewer struct {
	wants func(weight int) bool
	// see may return what it has coded in the format own.
	see func(weight int, m *calibration.Module, own quant.Format) (*coded, error)
}

// store is Stored. view, which may be nil, is shown the modules that it wants,
// their Hessians complete.
func (m *Model) store(ctx context.Context, r *quant.Recipe, c Coding, view *viewer, progress func(done, total int64)) (map[string]checkpoint.Tensor, error) {
	formats, err := m.chosen(r)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{m.Decoder.Head(): true}
	for i := range m.Decoder.Config().Layers {
		for _, path := range m.Decoder.Modules(i) {
			seen[path] = true
		}
	}
	with := map[string]checkpoint.Tensor{}
	index := map[string]int{}
	sequential := false
	for i, w := range m.Weights {
		f, ok := formats[i]
		if ok && f.Method.Calibrated() && len(c.Windows) == 0 {
			return nil, fmt.Errorf("sensitivity: %s is stored with method %s, which needs a calibration text", w.Path, f.Method)
		}
		if seen[w.Path] && (view != nil && view.wants(i) || ok && c.calibrated(f)) {
			index[w.Path] = i
			sequential = sequential || f.Method == quant.Best
			continue
		}
		if !ok {
			continue
		}
		if f.Method.Calibrated() {
			f.Method = quant.Refit // calibration does not see it
		}
		if with[w.Path+".weight"], err = encode(ctx, f, w.Tensor); err != nil {
			return nil, err
		}
	}
	if len(index) == 0 {
		return with, nil
	}
	if progress == nil {
		progress = func(int64, int64) {}
	}
	err = calibration.Run(ctx, m.Decoder, c.Windows, calibration.Options{
		Sequential: sequential, Correction: c.Correction,
		Wants: func(path string) calibration.Want {
			i, ok := index[path]
			if !ok {
				return calibration.Want{}
			}
			f := formats[i]
			if f.Method == quant.Refit && (view == nil || !view.wants(i)) {
				return calibration.Want{What: calibration.Importance}
			}
			return calibration.Want{What: calibration.Full, Group: f.GroupSize}
		},
		Quantize: func(ctx context.Context, mod *calibration.Module) (checkpoint.Tensor, error) {
			i := index[mod.Path]
			f, ok := formats[i]
			var e *coded
			var err error
			if view != nil && view.wants(i) {
				e, err = view.see(i, mod, f)
			}
			if err == nil && ok && e == nil {
				e, err = encodeModule(ctx, f, m.Weights[i].Tensor, mod)
			}
			if err != nil || !ok {
				return nil, err
			}
			with[mod.Path+".weight"] = e
			return e, nil
		},
		Progress: func(_ string, done, total int64) { progress(done, total) },
	})
	return with, err
}

// encodeModule codes a module as calibration shows it.
func encodeModule(ctx context.Context, f quant.Format, w checkpoint.Tensor, mod *calibration.Module) (*coded, error) {
	o := quant.Options{Method: f.Method, Context: ctx}
	src := w
	switch {
	case f.Method.Calibrated():
		var err error
		if o.Feedback, err = mod.Feedback(f.GroupSize); err != nil {
			return nil, err
		}
		src = mod.Weight
	case f.Method == quant.Refit:
		o.Importance = mod.Hessian.Importance()
	}
	e, err := encodeWith(f, src, o)
	if err != nil {
		return nil, err
	}
	e.Tensor = w // a corrected matrix need not stay in memory
	return e, nil
}
