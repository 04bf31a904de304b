package mlx

import (
	"fmt"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/quant"
)

// Inputs says what the inputs of a module are like, for models that calibration
// does not run, such as drafters: the Hessian and the damping that suits it, nil
// for modules that multiply nothing.
type Inputs func(path string) (h *calibration.Hessian, damping float64, err error)

// learnInputs codes all entries that depend on inputs. Method best is error
// feedback here: what modules make up for is known where a model runs only.
func (w *writer) learnInputs() error {
	for i := range w.entries {
		e := &w.entries[i]
		if e.encoded == nil {
			continue
		}
		o := quant.Options{Method: e.choice.Format.Method}
		if o.Method != quant.Refit && !o.Method.Calibrated() {
			continue
		}
		if _, float := e.choice.Codec.(quant.Float); float {
			continue
		}
		h, damping, err := w.o.Inputs(e.path())
		if err != nil {
			return fmt.Errorf("mlx: module %s: %w", e.path(), err)
		}
		if h == nil {
			o.Method = quant.Refit
		} else if err := learn(&o, e.choice.Codec, &calibration.Module{Path: e.path(), Weight: e.tensor, Hessian: h, Damping: damping}); err != nil {
			return err
		}
		if e.encoded, err = w.encode(e, e.tensor, o); err != nil {
			return err
		}
	}
	return nil
}
