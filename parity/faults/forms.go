package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity"
	"github.com/smelt-go/smelt/parity/reference"
	"github.com/smelt-go/smelt/quant"
)

// Forms of bundles that faults are injected into.
const (
	formExact = "exact" // fp32, one chunk
	formTwo   = "two"   // fp16, two chunks, post-norm hidden states
	formMany  = "many"  // fp16, layers 0 and 1 alone, pre-norm hidden states, a scaled stream
	formState = "state" // fp16, two chunks, caches as states
	formCodes = "codes" // fp16, two chunks, compressed weights
	formWide  = "wide"  // fp16, a vocabulary beyond 65,535, topk:4
	formApp   = "app"   // the CoreML-LLM form with the app's files
)

// form is a good bundle of a source.
type form struct {
	name   string
	source *Source
	made   sync.Once
	err    error
	skip   bool // the source cannot have it
	dir    string
	golden string // recording; "" for the source's
	from   string // checkpoint; "" for the source's
	tokens int
	gates  []string
	alarms []string
	cfg    *models.Config
}

func (f *form) goldenFile() string {
	if f.golden != "" {
		return f.golden
	}
	return f.source.Golden
}

func (f *form) checkpointDir() string {
	if f.from != "" {
		return f.from
	}
	return f.source.Dir
}

// options are those of the conversion.
func (f *form) options() conversion.Options {
	fns := []chunking.FunctionSpec{{Kind: chunking.Decode, T: 1}, {Kind: chunking.Prefill, T: 16}, {Kind: chunking.Verify, T: 4}}
	o := conversion.Options{Compute: "fp16", Functions: fns, Chunks: min(2, f.cfg.Layers), Context: min(f.cfg.MaxPositions, f.tokens+16), NoSync: true,
		Head: chunking.Head{Token: true, Logits: true, Hidden: "post"}}
	switch f.name {
	case formExact:
		o.Compute, o.Chunks, o.Head.Hidden = "fp32", 1, ""
	case formMany:
		o.Chunks, o.Layers = 0, oneByOne(f.cfg.Layers)
		o.Head.Hidden, o.ResidualScale = "pre", 0.5
	case formState:
		o.KV = chunking.KVState
	case formCodes:
		o.Quantize = codesRecipe
	case formWide:
		o.Chunks, o.Context, o.Head = 1, 48, chunking.Head{Token: true, Logits: true, TopK: 4}
	case formApp:
		o.Chunks, o.Topology, o.Bundle = 0, chunking.Topology2, conversion.BundleCoreMLLLM
	}
	return o
}

// codesRecipe has one of each kind of compressed weight.
var codesRecipe = &quant.Recipe{
	Target:  quant.TargetCoreML,
	Default: quant.Format{Codec: "palette", Bits: 4, GroupSize: 16},
	Rules: []quant.Rule{
		{Class: []quant.Class{quant.Embedding, quant.Head, quant.Projector}, Keep: true, Optional: true},
		{Class: []quant.Class{quant.Query, quant.Output}, Format: quant.Format{Codec: "linear", Bits: 4, GroupSize: 32, Granularity: "block", Unsigned: true, Asymmetric: true}},
		{Class: []quant.Class{quant.Down}, Format: quant.Format{Codec: "linear", Bits: 8, Granularity: "channel"}},
	},
}

// oneByOne puts the first two layers into chunks of their own.
func oneByOne(layers int) string {
	if layers < 3 {
		return fmt.Sprintf("0-%d", layers)
	}
	return fmt.Sprintf("0-1,1-2,2-%d", layers)
}

// make converts and asks all gates about the good bundle.
func (f *form) make(ctx context.Context, work string) error {
	f.made.Do(func() { f.err = f.convert(ctx, work) })
	return f.err
}

func (f *form) convert(ctx context.Context, work string) error {
	source, err := conversion.OpenSource(f.source.Dir)
	if err != nil {
		return err
	}
	f.cfg = source.Model.Config()
	source.Close()
	rec, err := parity.ReadGolden(f.source.Golden)
	if err != nil {
		return err
	}
	// Past twice the window caches have wrapped and nothing new happens.
	f.tokens = min(len(rec.IDs), 2*f.cfg.Window+12, f.cfg.MaxPositions)
	if f.cfg.Window == 0 {
		f.tokens = min(len(rec.IDs), 60)
	}
	switch f.name {
	case formApp:
		f.skip = f.cfg.PerLayer == 0
	case formCodes:
		f.skip = f.cfg.Hidden%32 != 0 || f.cfg.PerLayer > 0
	case formWide:
		if f.skip = !f.cfg.Tied || f.cfg.PerLayer > 0; !f.skip {
			f.tokens = 16
			f.gates = []string{"contract", "index", "finite", "logits.fp32.decode", "logits.typed.decode", "token"}
			if err := f.widen(ctx, filepath.Join(work, f.source.Name+"-wide-model"), rec.IDs[:f.tokens]); err != nil {
				return err
			}
		}
	}
	if f.skip {
		return nil
	}
	f.dir = filepath.Join(work, f.source.Name+"-"+f.name)
	if _, err := conversion.Convert(ctx, f.checkpointDir(), f.dir, f.options()); err != nil {
		return err
	}
	rep, err := parity.Verify(ctx, f.dir, parity.Options{Golden: f.goldenFile(), Checkpoint: f.checkpointDir(), Tokens: f.tokens, Gates: f.gates})
	if err != nil {
		return err
	}
	for _, id := range rep.Failed() {
		f.alarms = append(f.alarms, fmt.Sprintf("%s, form %s: %s: %s", f.source.Name, f.name, id, rep.Gate(id).Reason))
	}
	return nil
}

// widen makes a checkpoint whose vocabulary begins with 65,536 tokens that
// nobody uses, so that the ids of all others take 17 bits, and records it.
func (f *form) widen(ctx context.Context, dir string, ids []int32) error {
	const more = 1 << 16
	if err := changedCheckpoint(f.source.Dir, dir, func(c map[string]any) { c["vocab_size"] = f.cfg.Vocab + more },
		func(t checkpoint.Tensor) (checkpoint.Tensor, error) {
			if t.Name() != "model.embed_tokens.weight" {
				return t, nil
			}
			raw, err := checkpoint.ReadBytes(t)
			if err != nil {
				return nil, err
			}
			row := len(raw) / f.cfg.Vocab
			return checkpoint.NewRaw(t.Name(), t.DType(), []int{f.cfg.Vocab + more, f.cfg.Hidden}, append(make([]byte, more*row), raw...))
		}); err != nil {
		return err
	}
	high := slices.Clone(ids)
	for i := range high {
		high[i] += more
	}
	m, err := reference.Open(dir)
	if err != nil {
		return err
	}
	defer m.Close()
	rec, err := parity.Record(ctx, m, high, "wide")
	if err != nil {
		return err
	}
	var logits []float32
	for i := range rec.Positions {
		logits = append(logits, rec.Positions[i].Row...)
	}
	f.from, f.golden = dir, filepath.Join(dir, "golden.safetensors")
	return checkpoint.WriteFile(f.golden, []checkpoint.Tensor{checkpoint.NewInt32("input_ids", []int{len(high)}, high),
		checkpoint.NewFloat32("logits", []int{len(high), rec.Vocab}, logits)}, nil)
}

// changedCheckpoint copies a checkpoint without its tokenizer, with another
// config.json and other tensors.
func changedCheckpoint(from, to string, config func(map[string]any), tensor func(checkpoint.Tensor) (checkpoint.Tensor, error)) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		return err
	}
	var c map[string]any
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	if config != nil {
		config(c)
	}
	if data, err = json.Marshal(c); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(to, "config.json"), data, 0o644); err != nil {
		return err
	}
	ckpt, err := checkpoint.Open(from)
	if err != nil {
		return err
	}
	defer ckpt.Close()
	var out []checkpoint.Tensor
	for _, n := range ckpt.Names() {
		t, _ := ckpt.Tensor(n)
		if tensor != nil {
			if t, err = tensor(t); err != nil {
				return err
			}
		}
		out = append(out, t)
	}
	return checkpoint.WriteFile(filepath.Join(to, "model.safetensors"), out, nil)
}

// convertChanged replaces the bundle by a conversion of the checkpoint with
// another config.json; hf/config.json stays right.
func (b *bundle) convertChanged(change func(map[string]any)) error {
	src := b.dir + ".model"
	defer os.RemoveAll(src)
	if err := changedCheckpoint(b.form.checkpointDir(), src, change, nil); err != nil {
		return err
	}
	hf := filepath.Join(b.dir, chunking.HFDir)
	keep := b.dir + ".hf"
	defer os.RemoveAll(keep)
	if err := os.Rename(hf, keep); err != nil {
		return err
	}
	o := b.form.options()
	o.Force, o.ResidualScale = true, b.contract.ResidualScale
	if o.Compute == "fp32" {
		o.ResidualScale = 0
	}
	if _, err := conversion.Convert(b.ctx, src, b.dir, o); err != nil {
		return err
	}
	if err := os.RemoveAll(hf); err != nil {
		return err
	}
	return os.Rename(keep, hf)
}

// tuned is a copy of the checkpoint with other numbers in one weight.
func (b *bundle) tuned() (string, error) {
	dir := b.dir + ".tuned"
	err := changedCheckpoint(b.form.checkpointDir(), dir, nil, func(t checkpoint.Tensor) (checkpoint.Tensor, error) {
		if t.Name() != "model.layers.1.mlp.up_proj.weight" {
			return t, nil
		}
		x, err := checkpoint.ReadAll(t)
		if err != nil {
			return nil, err
		}
		for i := range x {
			x[i] *= 1.0625
		}
		return checkpoint.AsType(checkpoint.NewFloat32(t.Name(), t.Shape(), x), t.DType()), nil
	})
	return dir, err
}
