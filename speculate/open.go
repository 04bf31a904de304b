package speculate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/mlx"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
	"github.com/smelt-go/smelt/tokenizer"
)

// DefaultContext is the number of positions of conversions on the way.
const DefaultContext = 512

// contextFor is the context to convert the checkpoint in dir with.
func (w *Workshop) contextFor(dir string) int {
	if w.Context != 0 {
		return w.Context
	}
	type positions struct {
		Max int `json:"max_position_embeddings"`
	}
	var c struct {
		positions
		Text positions `json:"text_config"`
	}
	// What is wrong with the file its conversion will say.
	if data, err := os.ReadFile(filepath.Join(dir, "config.json")); err == nil && json.Unmarshal(data, &c) == nil {
		for _, n := range []int{c.Text.Max, c.Max} {
			if n > 0 {
				return min(n, DefaultContext)
			}
		}
	}
	return DefaultContext
}

// Workshop opens targets and drafters from directories. Checkpoints are
// converted on the way, in full precision, into a directory that Close
// removes: their acceptance is what it would be in a bundle, their time is not.
type Workshop struct {
	Gamma int
	// Context is that of conversions; 0: DefaultContext, or what the model has.
	Context int
	Mode    runtime.Mode // of bundles; conversions run as fp32
	// Cross lets models of another vocabulary draft by way of text.
	Cross bool
	// Reading settles which token a block drafter's slots guess, if its files do
	// not: models.ReadAnchor or ReadMasks.
	Reading string
	// Sample are prompts on which both readings are measured if nothing settles
	// them.
	Sample []Prompt

	tmp     string
	next    int
	target  string
	source  string // checkpoint that target can be converted from, "" for a bundle
	bundles map[string]*engine.Engine
	tok     *tokenizer.Tokenizer
	closers []func() error
}

// Close closes what was opened and removes conversions.
func (w *Workshop) Close() error {
	var errs []error
	for _, c := range slices.Backward(w.closers) {
		errs = append(errs, c())
	}
	if w.tmp != "" {
		errs = append(errs, os.RemoveAll(w.tmp))
	}
	return errors.Join(errs...)
}

// Converted reports whether something was converted on the way, so that times
// say nothing.
func (w *Workshop) Converted() bool { return w.tmp != "" }

// Kinds of directories.
const (
	kindBundle  = "bundle"
	kindDrafter = "drafter bundle"
	kindMLX     = "MLX directory"
	kindHF      = "checkpoint"
	kindHead    = "drafter checkpoint"
)

// kindOf tells what a directory holds.
func kindOf(dir string) (string, error) {
	has := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	switch {
	case has(chunking.ContractFile):
		return kindBundle, nil
	case has(chunking.DrafterFile):
		return kindDrafter, nil
	case !has("config.json"):
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("speculate: there is no directory %s (names that are no directories: %s)", dir, strings.Join(SourceNames(), ", "))
		}
		return "", fmt.Errorf("speculate: %s is neither a bundle nor a checkpoint: no %s, %s or config.json in it", dir, chunking.ContractFile, chunking.DrafterFile)
	case conversion.IsDrafter(dir):
		return kindHead, nil
	}
	d, err := mlx.Open(dir)
	if err == nil {
		return kindMLX, d.Close()
	}
	if errors.Is(err, mlx.ErrNotQuantized) {
		return kindHF, nil
	}
	return "", err
}

// dir makes a new directory for a conversion.
func (w *Workshop) dir(name string) (string, error) {
	if w.tmp == "" {
		var err error
		if w.tmp, err = os.MkdirTemp("", "smelt-accept-"); err != nil {
			return "", err
		}
	}
	w.next++
	return filepath.Join(w.tmp, fmt.Sprintf("%d-%s", w.next, name)), nil
}

// wide writes an MLX directory as a checkpoint of float32 weights, which are
// those that quantized products see.
func (w *Workshop) wide(src string) (string, error) {
	d, err := mlx.Open(src)
	if err != nil {
		return "", err
	}
	defer d.Close()
	out, err := w.dir("decoded")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	s := d.Float32()
	var tensors []checkpoint.Tensor
	for _, name := range s.Names() {
		t, ok := s.Tensor(name)
		if !ok {
			return "", fmt.Errorf("speculate: %s: no tensor %s", src, name)
		}
		if x := t.DType(); x == checkpoint.BF16 || x == checkpoint.F16 {
			t = checkpoint.AsType(t, checkpoint.F32)
		}
		tensors = append(tensors, t)
	}
	if err := checkpoint.WriteFile(filepath.Join(out, "model.safetensors"), tensors, nil); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(out, "config.json"), d.Config(), 0o644); err != nil {
		return "", err
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		data, err := os.ReadFile(filepath.Join(src, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(out, name), data, 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	return out, nil
}

// convert converts a checkpoint and opens the bundle.
func (w *Workshop) convert(ctx context.Context, src, functions string, h chunking.Head) (*engine.Engine, error) {
	out, err := w.dir("bundle")
	if err != nil {
		return nil, err
	}
	f, err := chunking.ParseFunctions(functions)
	if err != nil {
		return nil, err
	}
	if _, err := conversion.Convert(ctx, src, out, conversion.Options{Context: w.contextFor(src), Functions: f, Head: h, Compute: "fp32", NoSync: true}); err != nil {
		return nil, err
	}
	return w.open(out, runtime.FP32)
}

func (w *Workshop) open(dir string, mode runtime.Mode) (*engine.Engine, error) {
	e, err := engine.Open(dir, engine.Options{Mode: mode})
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, e.Close)
	return e, nil
}

// Target sets the target: a bundle with verify functions, or a checkpoint.
func (w *Workshop) Target(dir string) error {
	kind, err := kindOf(dir)
	if err != nil {
		return err
	}
	w.target, w.bundles = dir, map[string]*engine.Engine{}
	tok := dir
	switch kind {
	case kindBundle:
		tok = filepath.Join(dir, chunking.HFDir)
	case kindMLX:
		if w.source, err = w.wide(dir); err != nil {
			return err
		}
	case kindHF:
		w.source = dir
	default:
		return fmt.Errorf("speculate: %s is a %s, which cannot be a target", dir, kind)
	}
	w.tok, err = tokenizerOf(tok)
	return err
}

// Tokenizer is the target's; nil if it has none.
func (w *Workshop) Tokenizer() *tokenizer.Tokenizer { return w.tok }

func tokenizerOf(dir string) (*tokenizer.Tokenizer, error) {
	path := filepath.Join(dir, "tokenizer.json")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return tokenizer.Load(path)
}

// targetFor opens the target with what a drafter needs to read of it.
func (w *Workshop) targetFor(ctx context.Context, n drafter.Needs) (*BundleTarget, error) {
	key := n.Norm
	e := w.bundles[key]
	if e == nil {
		var err error
		if w.source == "" {
			e, err = w.open(w.target, w.Mode)
		} else {
			h := chunking.Head{Token: true, Logits: true, Hidden: n.Norm}
			functions := fmt.Sprintf("decode,prefill:32,verify:2,verify:%d", max(2, w.Gamma+1))
			if w.Gamma < 2 {
				functions = "decode,prefill:32,verify:2"
			}
			e, err = w.convert(ctx, w.source, functions, h)
		}
		if err != nil {
			return nil, err
		}
		w.bundles[key] = e
	}
	t, err := NewBundleTarget(e)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, t.Close)
	return t, nil
}

// SourceNames are drafters that are no directories.
func SourceNames() []string { return []string{"lookup", "suffix"} }

// Arm opens a drafter: lookup, suffix, a directory, or several of them joined
// by +, of which the longest proposal is taken.
func (w *Workshop) Arm(ctx context.Context, spec string) (*Arm, error) {
	var sources []Source
	parts := strings.Split(spec, "+")
	if _, err := os.Stat(spec); err == nil {
		parts = []string{spec}
	}
	var names []string
	for _, p := range parts {
		names = append(names, filepath.Base(filepath.Clean(p)))
	}
	arm := &Arm{Name: strings.Join(names, "+")}
	var needs drafter.Needs
	var open []func(*BundleTarget) (Source, error)
	for _, p := range parts {
		o, n, err := w.source1(ctx, p, arm)
		if err != nil {
			return nil, err
		}
		if !needsNothing(n) {
			if !needsNothing(needs) {
				return nil, fmt.Errorf("speculate: %s: two drafters that read the target's states cannot be joined", spec)
			}
			needs = n
		}
		open = append(open, o)
	}
	t, err := w.targetFor(ctx, needs)
	if err != nil {
		return nil, err
	}
	for _, o := range open {
		s, err := o(t)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	arm.Target, arm.Source = t, sources[0]
	if len(sources) > 1 {
		arm.Source = Union(sources...)
	}
	if err := Pair(t, arm.Source); err != nil {
		return nil, err
	}
	if arm.TargetBytes, err = weightBytes(w.target); err != nil {
		return nil, err
	}
	return arm, nil
}

// source1 prepares one drafter. What it returns makes the source once the
// target is there.
func (w *Workshop) source1(ctx context.Context, spec string, arm *Arm) (func(*BundleTarget) (Source, error), drafter.Needs, error) {
	none := drafter.Needs{}
	name := filepath.Base(filepath.Clean(spec))
	switch spec {
	case "lookup":
		return func(*BundleTarget) (Source, error) { return Lookup(spec, PromptLookup{MaxN: 3}), nil }, none, nil
	case "suffix":
		return func(*BundleTarget) (Source, error) { return SuffixSource(spec, DefaultSuffix), nil }, none, nil
	}
	kind, err := kindOf(spec)
	if err != nil {
		return nil, none, err
	}
	size, err := weightBytes(spec)
	if err != nil {
		return nil, none, err
	}
	switch kind {
	case kindDrafter, kindHead:
		dir := spec
		mode := w.Mode
		if kind == kindHead {
			if dir, err = w.head(ctx, spec); err != nil {
				return nil, none, err
			}
			mode = runtime.FP32
		}
		d, err := engine.OpenDrafter(dir, engine.Options{Mode: mode})
		if err != nil {
			return nil, none, err
		}
		w.closers = append(w.closers, d.Close)
		if d.Contract().Drafter == models.DSpark {
			arm.BlockBytes += size
		} else if n := d.Contract().Layers; d.Contract().Drafter == models.MTPModules && n > 0 {
			arm.DraftBytes += size / float64(n)
		} else {
			arm.DraftBytes += size
		}
		return func(t *BundleTarget) (Source, error) {
			s, err := d.NewSession(t)
			if err != nil {
				return nil, err
			}
			return FromSession(name, s), nil
		}, d.Contract().Needs(), nil
	}
	arm.DraftBytes += size
	tokDir, src := spec, spec
	if kind == kindBundle {
		tokDir = filepath.Join(spec, chunking.HFDir)
	}
	own, err := tokenizerOf(tokDir)
	if err != nil {
		return nil, none, err
	}
	var e *engine.Engine
	if kind == kindBundle {
		e, err = w.open(spec, w.Mode)
	} else {
		if kind == kindMLX {
			if src, err = w.wide(spec); err != nil {
				return nil, none, err
			}
		}
		e, err = w.convert(ctx, src, "decode,prefill:32", chunking.Head{Token: true, Logits: true})
	}
	if err != nil {
		return nil, none, err
	}
	return func(t *BundleTarget) (Source, error) {
		m := NewModel(name, e)
		vocab := t.Describe().Vocab
		if w.Cross {
			if own == nil || w.tok == nil {
				return nil, fmt.Errorf("speculate: drafting across vocabularies needs the tokenizers of %s and %s", spec, w.target)
			}
			return CrossVocabulary(m, own, w.tok, vocab, 0), nil
		}
		if n := e.Contract().Model.Vocab; n != vocab {
			return nil, fmt.Errorf("speculate: %s has a vocabulary of %d tokens, the target %s one of %d (--cross drafts by way of text)", spec, n, w.target, vocab)
		}
		if own != nil && w.tok != nil {
			if err := CheckVocabularies(own, w.tok, vocab); err != nil {
				return nil, err
			}
		}
		return m, nil
	}, none, nil
}

// head converts a drafter's checkpoint, quantized or not.
func (w *Workshop) head(ctx context.Context, spec string) (string, error) {
	d, err := mlx.Open(spec)
	switch {
	case err == nil:
		if err := d.Close(); err != nil {
			return "", err
		}
		if spec, err = w.wide(spec); err != nil {
			return "", err
		}
	case !errors.Is(err, mlx.ErrNotQuantized):
		return "", err
	}
	o := conversion.DrafterOptions{Context: w.contextFor(spec), Compute: "fp32", Target: w.source, Reading: w.Reading, NoSync: true}
	out, err := w.dir("drafter")
	if err != nil {
		return "", err
	}
	if _, err = conversion.ConvertDrafter(ctx, spec, out, o); err != nil && w.Reading == "" && len(w.Sample) > 0 {
		if asked := w.readings(ctx, spec); asked != nil {
			return "", asked
		}
	}
	return out, err
}

// weightBytes are the bytes of the weights in a bundle or checkpoint: what a
// call reads. An embedding table that no product reads is not among them.
func weightBytes(dir string) (float64, error) {
	var n int64
	tied := true
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if filepath.Ext(path) == ".bin" && strings.Contains(path, ".mlpackage") {
			info, err := e.Info()
			if err == nil {
				n += info.Size()
			}
			return err
		}
		return nil
	})
	if err != nil || n > 0 {
		return float64(n), err
	}
	ck, err := checkpoint.Open(dir)
	if err != nil {
		return 0, err
	}
	defer ck.Close()
	for _, name := range ck.Names() {
		if strings.HasPrefix(name, "lm_head.") {
			tied = false
		}
	}
	for _, name := range ck.Names() {
		t, _ := ck.Tensor(name)
		if !tied && strings.Contains(name, "embed_tokens.") {
			continue
		}
		n += checkpoint.NumBytes(t)
	}
	return float64(n), nil
}
