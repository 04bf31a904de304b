package conversion

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/mil/pass"
	"github.com/smelt-go/smelt/quant"
)

// Calibration is what methods feedback and best of a recipe learn from.
type Calibration struct {
	// Windows are sequences of tokens, as calibration.Windows makes them.
	Windows [][]int32
	// Correction is the part of the drift of its inputs that a weight makes up
	// for, with method best: 0 to 1.
	Correction float64
}

// String says what codes depend on beside the weights and the recipe.
func (c *Calibration) String() string {
	h := sha256.New()
	tokens := 0
	for _, ids := range c.Windows {
		tokens += len(ids)
		fmt.Fprintln(h, ids)
	}
	return fmt.Sprintf("kernel level %s, %d tokens in %d windows (sha256 %.8x), correction %g",
		kernel.Level(), tokens, len(c.Windows), h.Sum(nil), c.Correction)
}

// calibrate codes the weights whose method learns from a text, layer by layer.
// Their codes wait in a directory beside the output until they are written.
// cleanup must be called at the end.
func (s *Source) calibrate(ctx context.Context, o Options, out string) (cleanup func() error, err error) {
	cleanup = func() error { return nil }
	c := s.compression
	if c == nil {
		return cleanup, nil
	}
	sequential, any := false, false
	for name, f := range c.formats {
		if f.Method.Calibrated() {
			any = true
			sequential = sequential || f.Method == quant.Best
			if o.Calibration == nil {
				return cleanup, fmt.Errorf("conversion: tensor %q: method %s needs a calibration text", name, f.Method)
			}
		}
	}
	if !any {
		return cleanup, nil
	}
	config, err := s.config()
	if err != nil {
		return cleanup, err
	}
	d, err := decoder.New(s.view, config)
	if err != nil {
		return cleanup, fmt.Errorf("conversion: calibration runs the model, which it cannot: %w", err)
	}
	seen := map[string]bool{d.Head() + ".weight": true}
	for i := range d.Config().Layers {
		for _, m := range d.Modules(i) {
			seen[m+".weight"] = true
		}
	}
	for name, f := range c.formats {
		if f.Method.Calibrated() && !seen[name] {
			f.Method = quant.Refit // calibration does not see its inputs
			c.formats[name] = f
		}
	}
	dir, err := os.MkdirTemp(filepath.Dir(filepath.Clean(out)), "."+filepath.Base(out)+".codes-")
	if err != nil {
		return cleanup, fmt.Errorf("conversion: %w", err)
	}
	cleanup = func() error { return os.RemoveAll(dir) }
	c.coded = map[string]*pass.Coded{}
	// Activations are few large slices: collecting often costs nothing.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	err = calibration.Run(ctx, d, o.Calibration.Windows, calibration.Options{
		Sequential: sequential, Correction: o.Calibration.Correction,
		Wants: func(path string) calibration.Want {
			f, ok := c.formats[path+".weight"]
			if !ok || !f.Method.Calibrated() {
				return calibration.Want{}
			}
			return calibration.Want{What: calibration.Full, Group: (&quant.Form{Format: f}).FeedbackGroup()}
		},
		Quantize: func(_ context.Context, m *calibration.Module) (checkpoint.Tensor, error) {
			return c.code(m, dir)
		},
		Progress: func(stage string, done, total int64) { o.progress(stage, done, total) },
	})
	return cleanup, err
}

// code codes one weight and returns what it decodes to.
func (c *compression) code(m *calibration.Module, dir string) (checkpoint.Tensor, error) {
	name := m.Path + ".weight"
	shape := m.Weight.Shape()
	form, err := quant.NewForm(c.formats[name], shape[0], shape[1])
	if err != nil {
		return nil, fmt.Errorf("conversion: tensor %q: %w", name, err)
	}
	f, err := m.Feedback(form.FeedbackGroup())
	if err != nil {
		return nil, err
	}
	read := func(dst []uint16, first int) error {
		x := make([]float32, len(dst))
		if err := m.Weight.ReadFloat32(x, first); err != nil {
			return err
		}
		half.F32ToF16(dst, x)
		return nil
	}
	data, stats, err := form.Encode(read, quant.FormOptions{Feedback: f})
	if err != nil {
		return nil, fmt.Errorf("conversion: tensor %q: %w", name, err)
	}
	w := &codedWeight{name: name, form: form, file: filepath.Join(dir, strings.ReplaceAll(name, string(filepath.Separator), "_"))}
	var all []byte
	for _, b := range data {
		all = append(all, b...)
	}
	if err := os.WriteFile(w.file, all, 0o644); err != nil {
		return nil, fmt.Errorf("conversion: %w", err)
	}
	c.coded[name] = &pass.Coded{Stats: stats, Load: w.load}
	w.data = data
	return w, nil
}

// codedWeight is what a weight's codes decode to. The data of the codes lie in a
// file; they are in memory while calibration runs the layer.
type codedWeight struct {
	name string
	form *quant.Form
	file string
	data [][]byte
}

func (w *codedWeight) load() ([][]byte, error) {
	all, err := os.ReadFile(w.file)
	if err != nil {
		return nil, fmt.Errorf("conversion: %w", err)
	}
	var data [][]byte
	for _, k := range w.form.Constants {
		n := min(int64(len(all)), k.Bytes())
		data, all = append(data, all[:n:n]), all[n:]
	}
	return data, nil
}
