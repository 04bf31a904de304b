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
	"github.com/smelt-go/smelt/tokenizer"
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
	tok, err := s.tokenizer()
	if err != nil {
		return nil, err
	}
	o, c, err := s.design(o)
	if err != nil {
		return nil, err
	}
	if c.Model.EOS, err = s.endTokens(); err != nil {
		return nil, err
	}
	c.Source.DTypes = s.dtypes()
	rep := newReport(s, c)
	if err := s.scale(ctx, c, tok, o, rep); err != nil {
		return nil, err
	}
	err = atomicdir.Write(out, atomicdir.Options{Force: o.Force}, func(dir string) error { return s.write(ctx, dir, c, o, rep) })
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
	cut, err := o.cut(cfg, sizes(s.Model, o.Compute, o.Embed))
	if err != nil {
		return o, nil, err
	}
	c, err := chunking.Design(cfg, chunking.Options{Context: o.Context, Ranges: cut, Functions: o.Functions,
		KV: o.KV, Embed: o.Embed, Head: o.Head, Compute: o.Compute})
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

// scale decides the residual scale of fp16 bundles.
func (s *Source) scale(ctx context.Context, c *chunking.Contract, tok *tokenizer.Tokenizer, o Options, rep *Report) error {
	rows, err := s.tableRange(ctx)
	if err != nil {
		return err
	}
	rows *= float32(s.Model.Config().EmbedScale)
	switch {
	case o.ResidualScale != 0:
		c.SetResidualScale(o.ResidualScale)
		if err := c.Validate(); err != nil {
			return fmt.Errorf("conversion: %w", err)
		}
		if top := float64(rows) * o.ResidualScale; o.Compute == "fp16" && top > fp16Max {
			return fmt.Errorf("conversion: with residual scale %g embedding rows reach %.5g, beyond fp16's %d (choose a smaller scale, or leave it to the probe)", o.ResidualScale, top, fp16Max)
		}
		return nil
	case o.Compute != "fp16":
		return nil
	}
	o.progress("probing ranges", 0, 1)
	p, err := s.probe(ctx, tok, rows)
	if err != nil {
		return fmt.Errorf("conversion: range probe: %w", err)
	}
	o.progress("probing ranges", 1, 1)
	rep.Probe = p
	c.SetResidualScale(p.Scale)
	return nil
}

func (o Options) progress(stage string, done, total int64) {
	if o.Progress != nil {
		o.Progress(stage, done, total)
	}
}

// write fills the bundle directory.
func (s *Source) write(ctx context.Context, dir string, c *chunking.Contract, o Options, rep *Report) error {
	for i := range c.Chunks {
		ch := &c.Chunks[i]
		p, err := s.Program(c, ch)
		if err != nil {
			return err
		}
		r, err := mlpackage.Write(ctx, filepath.Join(dir, ch.File), p, mlpackage.WriteOptions{
			Metadata: metadata(c, ch),
			Progress: func(done, total int64) { o.progress("writing "+ch.Name, done, total) },
		})
		if err != nil {
			return err
		}
		rep.addChunk(ch, p, r)
	}
	if err := s.writeTables(dir, c); err != nil {
		return err
	}
	files, err := s.copyPassengers(filepath.Join(dir, chunking.HFDir))
	if err != nil {
		return err
	}
	rep.Files = files
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
	if err := pass.Pipeline(p, pass.Standard(c.ResidualScale, c.Compute == "fp16")...); err != nil {
		return nil, fmt.Errorf("conversion: %s: %w", ch.Name, err)
	}
	return p, nil
}

func metadata(c *chunking.Contract, ch *chunking.Chunk) mlpackage.Metadata {
	return mlpackage.Metadata{
		ShortDescription: fmt.Sprintf("%s layers %d-%d of %d, written by smelt", c.Model.Architecture, ch.First, ch.Last, c.Model.Layers),
		UserDefined:      map[string]string{"smelt.chunk": ch.Name, "smelt.layers": fmt.Sprintf("%d-%d", ch.First, ch.Last)},
	}
}
