package mlx

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/internal/kernel"
	"github.com/smelt-go/smelt/quant"
)

// Calibration is what Quantize learns from. With it, method refit weights errors
// with the importance of columns; methods feedback and best need it.
type Calibration struct {
	// Windows are sequences of tokens, as calibration.Windows makes them.
	Windows [][]int32
	// Correction is the part of the drift of its inputs that a module makes up
	// for, with method best. DefaultCorrection is half; None is 0.
	Correction float64
}

// DefaultCorrection is what serves texts best that calibration has not seen.
const DefaultCorrection = 0.5

// algorithm is part of the name under which finished modules are kept.
const algorithm = "1"

// calibrator quantizes the modules whose inputs calibration sees.
type calibrator struct {
	w       *writer
	entries map[string]*entry // by path in a text-only checkpoint
	dir     string            // finished modules
	key     string
	open    []*checkpoint.File
}

// calibrate codes all entries that depend on calibration. Finished modules are
// kept in a directory beside the output until that is complete, so that a run that
// was stopped goes on where it was.
func (w *writer) calibrate(src checkpoint.Source, out string) (*calibrator, error) {
	if w.o.Inputs != nil {
		return nil, w.learnInputs()
	}
	c := &calibrator{w: w, entries: map[string]*entry{}}
	sequential := false
	for i := range w.entries {
		e := &w.entries[i]
		if e.encoded == nil {
			continue
		}
		m := e.choice.Format.Method
		if m.Calibrated() && w.o.Calibration == nil {
			return nil, fmt.Errorf("mlx: module %s: method %s needs a calibration text", e.path(), m)
		}
		if w.o.Calibration == nil || m != quant.Refit && !m.Calibrated() {
			continue
		}
		sequential = sequential || m == quant.Best
		c.entries[strings.TrimPrefix(e.path(), "language_model.")] = e
	}
	if len(c.entries) == 0 {
		return nil, nil
	}
	for _, e := range c.entries {
		w.total -= int64(checkpoint.NumElements(e.tensor))
	}
	config, err := os.ReadFile(filepath.Join(w.src, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("mlx: %w", err)
	}
	if d, ok := src.(*Directory); ok {
		config, src = d.Config(), d.Float32()
	}
	d, err := decoder.New(checkpoint.TextView(src), config)
	if err != nil {
		return nil, fmt.Errorf("mlx: calibration runs the model, which it cannot: %w", err)
	}
	out = filepath.Clean(out)
	c.dir = filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".modules")
	c.key = c.fingerprint(src, config)
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("mlx: %w", err)
	}
	if err := c.run(d, sequential); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *calibrator) run(d *decoder.Decoder, sequential bool) error {
	seen := map[string]bool{d.Head(): true}
	for i := range d.Config().Layers {
		for _, m := range d.Modules(i) {
			seen[m] = true
		}
	}
	// What calibration does not see, such as an embedding that is not the head,
	// is refitted without it.
	for path, e := range c.entries {
		if !seen[path] {
			e.choice.Format.Method = quant.Refit
			delete(c.entries, path)
			var err error
			if e.encoded, err = c.w.encode(e, e.tensor, quant.Options{Method: quant.Refit}); err != nil {
				return err
			}
		}
	}
	// Activations are few large slices: collecting often costs nothing, and
	// what is no longer needed is as large as what is.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	return calibration.Run(c.w.ctx, d, c.w.o.Calibration.Windows, calibration.Options{
		Sequential: sequential, Correction: c.w.o.Calibration.Correction,
		Wants: c.wants, Have: c.have, Quantize: c.quantize, Progress: c.w.o.Progress,
	})
}

func (c *calibrator) wants(path string) calibration.Want {
	e := c.entries[path]
	if e == nil {
		return calibration.Want{}
	}
	if e.choice.Format.Method == quant.Refit {
		return calibration.Want{What: calibration.Importance}
	}
	if t, ok := e.choice.Codec.(quant.Turbo); ok {
		return calibration.Want{What: calibration.Full, Group: t.Group, Turned: true}
	}
	return calibration.Want{What: calibration.Full, Group: groupOf(e.choice.Codec)}
}

func (c *calibrator) file(path string) string { return filepath.Join(c.dir, path+".safetensors") }

// have opens what an earlier run has finished.
func (c *calibrator) have(path string) (checkpoint.Tensor, bool) {
	e := c.entries[path]
	if e == nil {
		return nil, false
	}
	f, err := checkpoint.OpenFile(c.file(path))
	if err != nil {
		return nil, false
	}
	var st quant.Stats
	if meta := f.Metadata(); meta["key"] != c.key || json.Unmarshal([]byte(meta["stats"]), &st) != nil {
		f.Close()
		return nil, false
	}
	return c.take(e, f, st), true
}

// take makes an entry of the parts in f, and returns what they decode to.
func (c *calibrator) take(e *entry, f *checkpoint.File, st quant.Stats) checkpoint.Tensor {
	c.open = append(c.open, f)
	t := &decoded{name: e.name, codec: e.choice.Codec, dtype: e.tensor.DType(), shape: e.tensor.Shape(), wide: true}
	for _, p := range e.encoded.Parts {
		part, ok := f.Tensor(p.Name())
		if !ok {
			part = p // cannot be: the key is ours
		}
		t.parts = append(t.parts, part)
	}
	e.encoded = &quant.Encoded{Codec: e.choice.Codec, Src: e.tensor, Parts: t.parts, Stats: st}
	return wideTensor{t}
}

// quantize codes a module and keeps it.
func (c *calibrator) quantize(ctx context.Context, m *calibration.Module) (checkpoint.Tensor, error) {
	e := c.entries[m.Path]
	o := quant.Options{Method: e.choice.Format.Method}
	if err := learn(&o, e.choice.Codec, m); err != nil {
		return nil, err
	}
	src := e.tensor
	if m.Corrected {
		src = retyped{m.Weight, e.tensor.DType()}
	}
	x, err := c.w.encode(e, src, o)
	if err != nil {
		return nil, err
	}
	parts := make([]checkpoint.Tensor, len(x.Parts))
	for i, p := range x.Parts {
		var b bytes.Buffer
		b.Grow(int(checkpoint.NumBytes(p)))
		if _, err := p.WriteTo(&b); err != nil {
			return nil, err
		}
		if parts[i], err = checkpoint.NewRaw(p.Name(), p.DType(), p.Shape(), b.Bytes()); err != nil {
			return nil, err
		}
	}
	stats, err := json.Marshal(x.Stats)
	if err != nil {
		return nil, fmt.Errorf("mlx: %w", err)
	}
	if err := checkpoint.WriteFile(c.file(m.Path), parts, map[string]string{"key": c.key, "stats": string(stats)}); err != nil {
		return nil, err
	}
	f, err := checkpoint.OpenFile(c.file(m.Path))
	if err != nil {
		return nil, err
	}
	return c.take(e, f, x.Stats), nil
}

// retyped presents a tensor, read in float32, as one of another type.
type retyped struct {
	checkpoint.Tensor
	dtype checkpoint.DType
}

func (r retyped) DType() checkpoint.DType { return r.dtype }

// fingerprint is of everything that decides what modules become.
func (c *calibrator) fingerprint(src checkpoint.Source, config []byte) string {
	h := sha256.New()
	cal := c.w.o.Calibration
	fmt.Fprintf(h, "%s %s %v\n%s\n%s\n%v\n%v\n", algorithm, kernel.Level(), cal.Correction, config, c.w.o.Recipe.Marshal(), c.w.o.DType, cal.Windows)
	for _, name := range src.Names() {
		t, _ := src.Tensor(name)
		fmt.Fprintf(h, "%s %v %v\n", name, t.DType(), t.Shape())
		n := checkpoint.NumElements(t)
		sample := make([]float32, min(n, 256))
		for i := range 4 {
			if t.ReadFloat32(sample, (n-len(sample))/4*i) == nil {
				fmt.Fprintln(h, sample)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// close lets go of the files.
func (c *calibrator) close() error {
	var err error
	for _, f := range c.open {
		err = errors.Join(err, f.Close())
	}
	return err
}

// finish removes what the output now holds.
func (c *calibrator) finish() error {
	return errors.Join(c.close(), os.RemoveAll(c.dir))
}

// metadata says how the codes were found, where they depend on more than the
// weights.
func (w *writer) metadata(calibrated bool) map[string]string {
	m := map[string]string{"format": "mlx"}
	if calibrated {
		tokens := 0
		for _, ids := range w.o.Calibration.Windows {
			tokens += len(ids)
		}
		m["smelt.calibration"] = fmt.Sprintf("algorithm %s, kernel level %s, %d tokens in %d windows, correction %g",
			algorithm, kernel.Level(), tokens, len(w.o.Calibration.Windows), w.o.Calibration.Correction)
	}
	return m
}
