package mlx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/atomicdir"
	"github.com/smelt-go/smelt/quant"
)

// maxShardBytes is mlx-lm's limit.
const maxShardBytes = 5 << 30

// Options configures Quantize.
type Options struct {
	Recipe *quant.Recipe
	// DType is the type to cast weights to first, 0 for that of config.json,
	// as mlx-lm does.
	DType checkpoint.DType
	// Requantize accepts a source that is an MLX directory of quantized
	// weights, which are decoded first.
	Requantize bool
	Force      bool // replace an existing directory
	Workers    int  // 0: all cores
	// Calibration is what methods feedback and best need, and what refit makes
	// use of; nil: there is none.
	Calibration *Calibration
	// Inputs take the place of Calibration for models that it cannot run.
	Inputs Inputs

	// Progress, if not nil, is told of weights coded.
	Progress func(stage string, done, total int64)
}

// Layers is the number of layers of the model in dir, which presets ask for.
func Layers(dir string) (int, error) {
	c, err := readConfig(dir)
	if err != nil {
		return 0, err
	}
	n, ok := text(c).integer("num_hidden_layers")
	if !ok {
		n, ok = c.integer("num_modules") // of multi-token prediction
	}
	if !ok || n < 1 {
		return 0, fmt.Errorf("mlx: %s: config.json has no num_hidden_layers", dir)
	}
	return n, nil
}

// Quantize writes the model in src, a Hugging Face directory, to the directory
// out in the formats of o.Recipe.
func Quantize(ctx context.Context, src, out string, o Options) (*Report, error) {
	if o.Recipe == nil {
		return nil, fmt.Errorf("mlx: no recipe is given")
	}
	if o.Recipe.Target != quant.TargetMLX {
		return nil, fmt.Errorf("mlx: the recipe is for %s, not for mlx", o.Recipe.Target)
	}
	if err := replaceable(out, o.Force); err != nil {
		return nil, err
	}
	c, err := readConfig(src)
	if err != nil {
		return nil, err
	}
	tensors, closeSource, err := openSource(src, c, o.Requantize)
	if err != nil {
		return nil, err
	}
	defer closeSource()
	w := &writer{ctx: ctx, src: src, config: c, o: o}
	if err := w.plan(tensors); err != nil {
		return nil, err
	}
	if w.calibrated, err = w.calibrate(tensors, out); err != nil {
		return nil, err
	}
	err = atomicdir.Write(out, atomicdir.Options{Force: o.Force}, w.fill)
	if w.calibrated != nil {
		if err != nil {
			return nil, errors.Join(err, w.calibrated.close())
		}
		err = w.calibrated.finish()
	}
	if err != nil {
		return nil, err
	}
	return &w.report, nil
}

// replaceable refuses to write over what exists, and whatever the wish, over
// what is not a model: replacing a directory deletes all that is in it.
func replaceable(out string, force bool) error {
	entries, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mlx: %s exists and is not a directory (choose another name)", out)
	}
	if !force {
		return fmt.Errorf("mlx: %s exists already (use --force to replace it)", out)
	}
	if _, err := os.Stat(filepath.Join(out, "config.json")); err != nil && len(entries) > 0 {
		return fmt.Errorf("mlx: %s exists and is not a model directory: it has no config.json (remove it yourself, or choose another name)", out)
	}
	return nil
}

// openSource opens the tensors of dir. Those of a quantized model are decoded,
// if that is wanted.
func openSource(dir string, c *object, requantize bool) (checkpoint.Source, func() error, error) {
	if why := quantized(c); why != "" {
		if !requantize {
			return nil, nil, fmt.Errorf("mlx: %s is quantized already: %s (quantize the original, or add --requantize, which loses quality twice)", dir, why)
		}
		d, err := Open(dir)
		if err != nil {
			return nil, nil, err
		}
		return d, d.Close, nil
	}
	ck, err := checkpoint.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range ck.Names() {
		t, _ := ck.Tensor(name)
		switch t.DType() {
		case checkpoint.BF16, checkpoint.F16, checkpoint.F32:
		case checkpoint.F64, checkpoint.I64, checkpoint.I32, checkpoint.Bool:
			// Buffers; layOut decides about them.
		default:
			ck.Close()
			return nil, nil, fmt.Errorf("mlx: %s: tensor %q is %v, want BF16, F16 or F32 (a quantized checkpoint?)", dir, name, t.DType())
		}
	}
	return ck, ck.Close, nil
}

// quantized says why a config describes a quantized model, "" if it does not.
func quantized(c *object) string {
	for _, o := range []*object{c, text(c)} {
		for _, key := range []string{"quantization", "quantization_config"} {
			if v, ok := o.get(key); ok && v != nil {
				return "config.json has " + key
			}
		}
	}
	return ""
}

// writer is one run.
type writer struct {
	ctx     context.Context
	src     string
	config  *object
	o       Options
	entries []entry
	report  Report
	total   int64 // weights to code
	done    int64

	calibrated *calibrator // nil if nothing is
}

// entry is a module and what becomes of it.
type entry struct {
	module
	choice  quant.Choice
	encoded *quant.Encoded // nil if kept
}

// plan decides about every tensor, without reading any.
func (w *writer) plan(src checkpoint.Source) error {
	mods, warnings, err := layOut(w.config, src)
	if err != nil {
		return err
	}
	w.report = Report{Source: filepath.Base(filepath.Clean(w.src)), ModelType: w.config.str("model_type")}
	w.report.Warnings = append(warnings, olderSpellings(w.config)...)
	w.report.Warnings = append(w.report.Warnings, unloadable(w.o.Recipe)...)
	if t := w.config.child("text_config"); t != nil {
		w.report.Warnings = append(w.report.Warnings, olderSpellings(t)...)
	}
	dt := w.o.DType
	if dt == 0 {
		dt = dtype(w.config)
	}
	targets := make([]quant.Target, len(mods))
	for i := range mods {
		m := &mods[i]
		switch m.tensor.DType() {
		case checkpoint.BF16, checkpoint.F16, checkpoint.F32:
			if dt != 0 {
				m.tensor = checkpoint.AsType(m.tensor, dt)
			}
		case checkpoint.F64:
			return fmt.Errorf("mlx: tensor %q is F64, which MLX does not load (give a checkpoint in BF16, F16 or F32)", m.name)
		default:
			m.linear = false // a table of integers
		}
		targets[i] = quant.Target{Path: m.path(), Class: m.class, Layer: m.layer, DType: m.tensor.DType(), Shape: m.tensor.Shape(), Weight: m.linear}
	}
	choices, err := w.o.Recipe.Plan(targets)
	if err != nil {
		return err
	}
	for i := range mods {
		e := entry{module: mods[i], choice: choices[i]}
		if c := choices[i].Codec; c != nil {
			// Parts and sizes are those of any method; calibrate codes again.
			m := choices[i].Format.Method
			if m.Calibrated() {
				m = quant.Refit
			}
			if e.encoded, err = w.encode(&e, e.tensor, quant.Options{Method: m}); err != nil {
				return err
			}
			w.total += int64(checkpoint.NumElements(e.tensor))
		}
		w.entries = append(w.entries, e)
	}
	return nil
}

// encode describes t, which stands for the tensor of e, in its format.
func (w *writer) encode(e *entry, t checkpoint.Tensor, o quant.Options) (*quant.Encoded, error) {
	o.Workers, o.Context = w.o.Workers, w.ctx
	if o.Feedback == nil && o.Importance == nil {
		o.Done = w.progress
	}
	return quant.Encode(e.choice.Codec, t, e.path(), o)
}

func (w *writer) progress(n int64) {
	w.done += n
	if w.o.Progress != nil {
		w.o.Progress("quantizing", w.done, w.total)
	}
}

// fill writes the directory.
func (w *writer) fill(dir string) error {
	var tensors []checkpoint.Tensor
	for _, e := range w.entries {
		if e.encoded == nil {
			tensors = append(tensors, checkpoint.Rename(e.tensor, e.name))
			continue
		}
		tensors = append(tensors, e.encoded.Parts...)
	}
	if err := checkpoint.WriteSharded(dir, tensors, w.metadata(w.calibrated != nil), maxShardBytes); err != nil {
		return err
	}
	w.count()
	shards, err := writeIndex(dir, w.report.Parameters)
	if err != nil {
		return err
	}
	w.report.Shards = shards
	w.config.remove("_name_or_path")
	w.config.remove("vision_config")
	block := w.block()
	w.config.set("quantization", block)
	w.config.set("quantization_config", block)
	if err := writeFile(dir, "config.json", render(w.config.sorted())); err != nil {
		return err
	}
	if err := copyPassengers(w.src, dir); err != nil {
		return err
	}
	return writeFile(dir, "README.md", card(&w.report))
}

// count fills the report once everything is coded.
func (w *writer) count() {
	for _, e := range w.entries {
		m := Module{Path: e.path(), Class: e.class, Format: strings.ToLower(e.tensor.DType().String()), Shape: e.tensor.Shape()}
		n := int64(checkpoint.NumElements(e.tensor))
		if e.encoded == nil {
			m.Bytes = checkpoint.NumBytes(e.tensor)
			w.report.add(m, n, nil)
			continue
		}
		m.Format, m.Method = e.choice.Codec.String(), e.choice.Format.Method
		if m.Method == "" {
			m.Method = quant.RTN
		}
		for _, p := range e.encoded.Parts {
			m.Bytes += checkpoint.NumBytes(p)
		}
		w.report.add(m, n, &e.encoded.Stats)
	}
	order := func(c quant.Class) int { return slices.Index(quant.Classes, c) }
	slices.SortStableFunc(w.report.Classes, func(a, b Class) int { return order(a.Class) - order(b.Class) })
}

// block is the quantization block: the default format, modules that differ
// from it or that rules give a format, and false for those that could be quantized
// and are not.
func (w *writer) block() *object {
	base := settings(w.o.Recipe.Default)
	b := newObject()
	for _, k := range base.keys {
		b.set(k, base.values[k])
	}
	for _, e := range w.entries {
		if !e.linear {
			continue
		}
		if e.encoded == nil {
			b.set(e.path(), false)
			continue
		}
		if s := settings(e.choice.Format); e.choice.Explicit || string(render(s)) != string(render(base)) {
			b.set(e.path(), s)
		}
	}
	return b
}

// settings are group_size, bits and mode of a format.
func settings(f quant.Format) *object {
	group, bits, mode := f.GroupSize, f.Bits, f.Codec
	if c, err := quant.NewFloat(f.Codec); err == nil {
		group, bits = c.Group(), c.Bits()
	}
	o := newObject()
	o.set("group_size", json.Number(strconv.Itoa(group)))
	o.set("bits", json.Number(strconv.Itoa(bits)))
	o.set("mode", mode)
	return o
}

func writeFile(dir, name string, data []byte) error {
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		return fmt.Errorf("mlx: %w", err)
	}
	return nil
}
