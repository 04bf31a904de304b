package conversion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/internal/atomicdir"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mil/pass"
	"github.com/smelt-go/smelt/mlpackage"
)

// Opset of the programs that Convert writes: iOS 18 and macOS 15, the first
// with states and several functions a package.
const Opset = mil.CoreML8

// Convert writes a bundle of the Hugging Face model in src to the directory
// out. The bundle appears whole or not at all; an existing one is replaced
// only if o.Force is set.
func Convert(ctx context.Context, src, out string, o Options) (*Report, error) {
	if err := replaceable(out, o.Force); err != nil {
		return nil, err
	}
	s, err := OpenSource(src, o.IgnoreKeys...)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	o, c, err := s.design(o)
	if err != nil {
		return nil, err
	}
	if c.Model.EOS, err = s.endTokens(); err != nil {
		return nil, err
	}
	c.Source.DTypes = s.dtypes()
	cleanup, err := s.calibrate(ctx, o, out)
	defer cleanup()
	if err != nil {
		return nil, err
	}
	rep := newReport(s, c)
	err = atomicdir.Write(out, atomicdir.Options{Force: o.Force, NoSync: o.NoSync}, func(dir string) error {
		return s.write(ctx, dir, c, o, rep)
	})
	if err != nil {
		return nil, err
	}
	return rep, nil
}

// design fills in the options, cuts the model and writes its contract.
func (s *Source) design(o Options) (Options, *chunking.Contract, error) {
	cfg := s.Model.Config()
	o, err := o.withDefaults(cfg)
	if err != nil {
		return o, nil, err
	}
	if err := s.planCompression(o.Quantize, o.Compute); err != nil {
		return o, nil, err
	}
	size := sizes(s.Model, o.Compute, o.Embed)
	s.shrink(&size, o.Embed)
	cut, err := o.cut(cfg, size)
	if err != nil {
		return o, nil, err
	}
	c, err := chunking.Design(cfg, chunking.Options{Context: o.Context, Ranges: cut, Functions: o.Functions,
		KV: o.KV, Embed: o.Embed, Head: o.Head, Compute: o.Compute})
	if err == nil && o.Quantize != nil {
		c.Quantization = o.Quantize.Marshal()
		if o.Calibration != nil {
			c.Calibration = o.Calibration.String()
		}
	}
	if err == nil && o.Bundle == BundleCoreMLLLM {
		for i := range c.Chunks {
			ch := &c.Chunks[i]
			ch.Name = appName(i, len(c.Chunks))
			ch.File = ch.Name + ".mlpackage"
		}
		appHints(c)
	}
	return o, c, err
}

// replaceable refuses to write over what exists, and whatever the wish, over
// what is not a bundle: replacing a directory deletes all that is in it.
func replaceable(out string, force bool) error {
	entries, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("conversion: %s exists and is not a directory (choose another name)", out)
	}
	if !force {
		return fmt.Errorf("conversion: %s exists already (use --force to replace it)", out)
	}
	if _, err := os.Stat(filepath.Join(out, chunking.ContractFile)); err != nil && len(entries) > 0 {
		return fmt.Errorf("conversion: %s exists and is not a bundle: it has no %s (remove it yourself, or choose another name)", out, chunking.ContractFile)
	}
	return nil
}

// write fills the bundle directory. The table of per-layer embeddings, of some
// models half of all bytes, is written beside everything else.
func (s *Source) write(ctx context.Context, dir string, c *chunking.Contract, o Options, rep *Report) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	perLayer := background(func() error {
		err := s.writePerLayer(ctx, dir, c, o.Bundle != "")
		if err != nil {
			stop(err)
		}
		return err
	})
	err := s.writeRest(ctx, dir, c, o, rep)
	if err != nil {
		stop(err)
	}
	if e := perLayer(); e != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = e
	}
	if err == nil && o.Bundle == BundleCoreMLLLM {
		err = s.writeApp(ctx, dir, c, o)
	}
	return err
}

// writeRest fills the bundle directory but for the per-layer table. What needs
// no residual scale is written while the probe looks for it.
func (s *Source) writeRest(ctx context.Context, dir string, c *chunking.Contract, o Options, rep *Report) error {
	var rows float32
	var fingerprint string
	files := background(func() (err error) {
		if rows, err = s.writeEmbedding(ctx, dir, c, o.Bundle != ""); err != nil {
			return err
		}
		if fingerprint, err = s.fingerprint(ctx); err != nil {
			return err
		}
		rep.Files, err = s.copyPassengers(filepath.Join(dir, chunking.HFDir))
		return err
	})
	probed := s.probeRanges(ctx, o, rep)
	// The table's error comes first, however quick the probe's was.
	if err := files(); err != nil {
		return err
	}
	if probed != nil {
		return probed
	}
	if err := s.scale(c, o, rows*float32(s.Model.Config().EmbedScale), rep); err != nil {
		return err
	}
	if err := s.identify(c, fingerprint); err != nil {
		return err
	}
	if err := s.writeChunks(ctx, dir, c, o, rep); err != nil {
		return err
	}
	rep.Compressed = s.compression.classes()
	contract, err := c.Marshal()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, chunking.ContractFile), contract, 0o644); err != nil {
		return fmt.Errorf("conversion: %w", err)
	}
	text, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, chunking.ReportFile), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("conversion: %w", err)
	}
	return nil
}

// background starts f and returns a function that waits for its end.
func background(f func() error) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() error { return <-done }
}

// probeRanges loads the tokenizer, to know that it can be used, and runs the
// range probe where the scale depends on it.
func (s *Source) probeRanges(ctx context.Context, o Options, rep *Report) error {
	tok, err := s.tokenizer()
	if err != nil || o.Compute != "fp16" || o.ResidualScale != 0 {
		return err
	}
	o.progress("probing ranges", 0, 1)
	if rep.Probe, err = s.probe(ctx, tok); err != nil {
		return fmt.Errorf("conversion: range probe: %w", err)
	}
	o.progress("probing ranges", 1, 1)
	return nil
}

// scale decides the residual scale of fp16 bundles. rows is the largest
// magnitude of any embedding.
func (s *Source) scale(c *chunking.Contract, o Options, rows float32, rep *Report) error {
	switch {
	case o.ResidualScale != 0:
		c.SetResidualScale(o.ResidualScale)
		if err := c.Validate(); err != nil {
			return fmt.Errorf("conversion: %w", err)
		}
		if top := float64(rows) * o.ResidualScale; o.Compute == "fp16" && top > fp16Max {
			return fmt.Errorf("conversion: with residual scale %g embedding rows reach %.5g, beyond fp16's %d (choose a smaller scale, or leave it to the probe)", o.ResidualScale, top, fp16Max)
		}
	case rep.Probe != nil:
		rep.Probe.choose(rows)
		c.SetResidualScale(rep.Probe.Scale)
	}
	return nil
}

func (o Options) progress(stage string, done, total int64) {
	if o.Progress != nil {
		o.Progress(stage, done, total)
	}
}

// writeChunks writes the packages, building each one's program while the one
// before is written.
func (s *Source) writeChunks(ctx context.Context, dir string, c *chunking.Contract, o Options, rep *Report) error {
	programs := make([]*mil.Program, len(c.Chunks))
	build := func(i int) func() error {
		if i == len(c.Chunks) {
			return func() error { return nil }
		}
		return background(func() (err error) {
			programs[i], err = s.Program(c, &c.Chunks[i])
			return err
		})
	}
	built := build(0)
	for i := range c.Chunks {
		if err := built(); err != nil {
			return err
		}
		built = build(i + 1)
		ch, p := &c.Chunks[i], programs[i]
		programs[i] = nil
		r, err := mlpackage.Write(ctx, filepath.Join(dir, ch.File), p, mlpackage.WriteOptions{
			Metadata: metadata(c, ch),
			NoSync:   true, // the bundle is synced as a whole
			Progress: func(done, total int64) { o.progress("writing "+ch.Name, done, total) },
		})
		if err != nil {
			_ = built() // nothing may go on after the return
			return err
		}
		rep.addChunk(ch, p, r)
	}
	return nil
}

// Program builds the ML Program of one chunk: all its functions, lowered to
// the contract's precision, with shared constants.
func (s *Source) Program(c *chunking.Contract, ch *chunking.Chunk) (*mil.Program, error) {
	p := mil.NewProgram()
	for i := range ch.Functions {
		f := &ch.Functions[i]
		name := f.Name
		if len(ch.Functions) == 1 {
			name = "main"
		}
		part, err := c.Part(ch, f)
		if err != nil {
			return nil, err
		}
		b := mil.NewBuilder(name, Opset)
		if err := s.Model.Build(b, part); err != nil {
			return nil, fmt.Errorf("conversion: %s: %s: %w", ch.Name, f.Name, err)
		}
		fn, err := b.Func()
		if err != nil {
			return nil, fmt.Errorf("conversion: %s: %s: %w", ch.Name, f.Name, err)
		}
		p.Functions[name] = fn
		if f.Kind == chunking.Decode {
			p.Default = name
		}
	}
	if err := pass.Pipeline(p, s.passes(c.ResidualScale, c.Compute == "fp16")...); err != nil {
		return nil, fmt.Errorf("conversion: %s: %w", ch.Name, err)
	}
	return p, nil
}

func metadata(c *chunking.Contract, ch *chunking.Chunk) mlpackage.Metadata {
	return mlpackage.Metadata{
		ShortDescription: fmt.Sprintf("%s layers %d-%d of %d, written by smelt", c.Model.Architecture, ch.First, ch.Last, c.Model.Layers),
		UserDefined: map[string]string{MetaChunk: ch.Name, MetaLayers: fmt.Sprintf("%d-%d", ch.First, ch.Last),
			MetaSource: c.Source.SHA256, MetaConversion: c.Source.Conversion},
	}
}
