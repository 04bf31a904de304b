package faults

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
)

// bundle is a copy of a good bundle, to be broken.
type bundle struct {
	ctx      context.Context
	dir      string
	contract *chunking.Contract
	form     *form
	source   *Source
	// What the gates compare with: changed by faults of these.
	golden, checkpoint string
}

// copyBundle copies a bundle to the directory to.
func copyBundle(ctx context.Context, from, to string) (*bundle, error) {
	if err := os.RemoveAll(to); err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	c, err := chunking.ReadContract(to)
	if err != nil {
		return nil, err
	}
	return &bundle{ctx: ctx, dir: to, contract: c}, nil
}

func (b *bundle) writeContract() error {
	data, err := b.contract.Marshal()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, chunking.ContractFile), data, 0o644)
}

func (b *bundle) path(chunk int) string { return filepath.Join(b.dir, b.contract.Chunks[chunk].File) }

// edit reads the package of a chunk, changes every function and writes it
// again.
func (b *bundle) edit(chunk int, change func(f *function) error) error {
	path := b.path(chunk)
	p, err := mlpackage.Read(path, mlpackage.ReadOptions{})
	if err != nil {
		return err
	}
	defer p.Close()
	for _, name := range p.Program.Names() {
		if err := change(&function{p.Program.Functions[name]}); err != nil {
			return fmt.Errorf("faults: %s: %s: %w", b.contract.Chunks[chunk].Name, name, err)
		}
	}
	changed := path + ".changed"
	opts := p.WriteOptions()
	opts.Force, opts.NoSync = true, true
	if _, err := mlpackage.Write(b.ctx, changed, p.Program, opts); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Rename(changed, path)
}

// restamp makes contract and packages say that they belong together and come
// from the checkpoint with the given hash.
func (b *bundle) restamp(source string) error {
	b.contract.Source.SHA256, b.contract.Source.Conversion = source, ""
	data, err := b.contract.Marshal()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	b.contract.Source.Conversion = hex.EncodeToString(sum[:])
	if err := b.writeContract(); err != nil {
		return err
	}
	for i := range b.contract.Chunks {
		err := b.metadata(i, map[string]string{chunking.MetaSource: source, chunking.MetaConversion: b.contract.Source.Conversion})
		if err != nil {
			return err
		}
	}
	return nil
}

// metadata rewrites a package with other metadata; empty values are dropped.
func (b *bundle) metadata(chunk int, set map[string]string) error {
	path := b.path(chunk)
	p, err := mlpackage.Read(path, mlpackage.ReadOptions{})
	if err != nil {
		return err
	}
	defer p.Close()
	opts := p.WriteOptions()
	opts.NoSync = true
	opts.Metadata.UserDefined = maps.Clone(opts.Metadata.UserDefined)
	for k, v := range set {
		if opts.Metadata.UserDefined[k] = v; v == "" {
			delete(opts.Metadata.UserDefined, k)
		}
	}
	if _, err := mlpackage.Write(b.ctx, path+".changed", p.Program, opts); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Rename(path+".changed", path)
}

// inLayer edits the chunk that holds a layer.
func (b *bundle) inLayer(layer int, change func(f *function) error) error {
	for i, ch := range b.contract.Chunks {
		if layer >= ch.First && layer < ch.Last {
			return b.edit(i, change)
		}
	}
	return fmt.Errorf("faults: no chunk holds layer %d", layer)
}

// last is the index of the last chunk.
func (b *bundle) last() int { return len(b.contract.Chunks) - 1 }

// function is a function of a program under change.
type function struct{ *mil.Function }

// has reports whether there is an op of the name.
func (f *function) has(name string) bool {
	_, err := f.op(name)
	return err == nil
}

// op finds an op by name.
func (f *function) op(name string) (*mil.Op, error) {
	for _, o := range f.Body.Ops {
		if o.Name == name {
			return o, nil
		}
	}
	return nil, fmt.Errorf("there is no op %q", name)
}

// bind gives a parameter of an op a constant of its own, before the op.
func (f *function) bind(op, param string, c mil.Const) error {
	o, err := f.op(op)
	if err != nil {
		return err
	}
	name := o.Name + "_" + param + "_fault"
	k := &mil.Op{Kind: "const", Name: name}
	k.Outputs = []*mil.Value{{Name: name, Type: c.Type(), Op: k, Const: c}}
	f.Body.Ops = slices.Insert(f.Body.Ops, slices.Index(f.Body.Ops, o), k)
	o.Set(param, k.Out())
	return nil
}

// rewire makes a parameter of an op read what another op's parameter reads.
func (f *function) rewire(op, param string, from, fromParam string) error {
	o, err := f.op(op)
	if err != nil {
		return err
	}
	g, err := f.op(from)
	if err != nil {
		return err
	}
	v := g.In(fromParam)
	if v == nil {
		return fmt.Errorf("op %q has no parameter %q", from, fromParam)
	}
	o.Set(param, v)
	return nil
}

// floats replaces a constant parameter by a function of its elements.
func (f *function) floats(op, param string, change func(shape []int, x []float64) []float64) error {
	_, c, err := f.changed(op, param, change)
	if err != nil {
		return err
	}
	return f.bind(op, param, c)
}

// floatsInPlace changes a constant under its own name.
func (f *function) floatsInPlace(op, param string, change func(shape []int, x []float64) []float64) error {
	v, c, err := f.changed(op, param, change)
	if err != nil {
		return err
	}
	v.Const = c
	return nil
}

// changed is a constant parameter, and what a function makes of its elements.
func (f *function) changed(op, param string, change func(shape []int, x []float64) []float64) (*mil.Value, mil.Const, error) {
	o, err := f.op(op)
	if err != nil {
		return nil, nil, err
	}
	v := o.In(param)
	if v == nil || v.Const == nil {
		return nil, nil, fmt.Errorf("parameter %q of op %q is no constant", param, op)
	}
	t := v.Const.Type()
	x, err := mil.ConstFloats(v.Const)
	if err != nil {
		return nil, nil, err
	}
	return v, mil.NewFloats(t.DType, t.Shape, change(t.Shape, x)...), nil
}

// scaled multiplies all elements.
func scaled(by float64) func([]int, []float64) []float64 {
	return func(_ []int, x []float64) []float64 {
		for i := range x {
			x[i] *= by
		}
		return x
	}
}
