package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime/debug"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/runtime"
)

// Options configures Open.
type Options struct {
	Mode    runtime.Mode // Typed by default
	Threads int          // 0: GOMAXPROCS
}

// Engine is an opened bundle: contract, lowered chunks and the embedding
// table. It is safe for use by several sessions at once.
type Engine struct {
	dir      string
	contract *chunking.Contract
	chunks   []*chunk
	table    checkpoint.Tensor // embedding rows, nil if the graph gathers them
	perLayer checkpoint.Tensor // per-layer embedding rows, nil if there are none to look up
	closers  []func() error
}

type chunk struct {
	decl *chunking.Chunk
	pkg  *mlpackage.Package
	prog *runtime.Program
}

// Open reads the bundle in dir and lowers every chunk. It checks that each
// package has exactly the functions, inputs, outputs and states that the
// contract declares.
func Open(dir string, opts Options) (*Engine, error) {
	c, err := chunking.ReadContract(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := chunking.ReadManifest(dir)
	if err == nil && manifest != nil {
		err = manifest.Check(context.Background(), dir, false)
	}
	if err != nil {
		return nil, err
	}
	e := &Engine{dir: dir, contract: c}
	ok := false
	defer func() {
		if !ok {
			e.Close()
		}
	}()
	for i := range c.Chunks {
		decl := &c.Chunks[i]
		path := filepath.Join(dir, decl.File)
		pkg, err := mlpackage.Read(path, mlpackage.ReadOptions{})
		if err != nil {
			return nil, fmt.Errorf("engine: %s: %w", decl.Name, err)
		}
		e.closers = append(e.closers, pkg.Close)
		if err := belongs(pkg.Metadata.UserDefined, c.Source); err != nil {
			return nil, fmt.Errorf("engine: %s: %w", path, err)
		}
		if err := agree(decl, pkg.Program); err != nil {
			return nil, fmt.Errorf("engine: %s disagrees with %s: %w", path, chunking.ContractFile, err)
		}
		prog, err := runtime.Load(pkg.Program, runtime.Options{Mode: opts.Mode, Threads: opts.Threads})
		if err != nil {
			return nil, fmt.Errorf("engine: %s: %w", decl.Name, err)
		}
		e.chunks = append(e.chunks, &chunk{decl, pkg, prog})
	}
	if c.Embedding.Mode == chunking.EmbedSidecar {
		m := c.Model
		if e.table, err = e.openTable(c.Embedding.File, c.Embedding.Tensor, m.Vocab, m.Hidden); err != nil {
			return nil, err
		}
	}
	if c.Embedding.Mode == chunking.EmbedInt8 {
		if e.table, err = e.openRows(c.Embedding.File, c.Embedding.Scales, c.Model.Vocab, c.Model.Hidden); err != nil {
			return nil, err
		}
	}
	if c.Embedding.Mode == chunking.EmbedHead {
		last := e.chunks[len(e.chunks)-1]
		if e.table, err = headTable(last.pkg.Program, c.Model.Vocab, c.Model.Hidden); err != nil {
			return nil, fmt.Errorf("engine: %s: %w", last.decl.Name, err)
		}
	}
	if p := c.PerLayer; p != nil {
		if p.Scales != "" {
			e.perLayer, err = e.openRows(p.File, p.Scales, c.Model.Vocab, c.Model.Layers*p.Dim)
		} else {
			e.perLayer, err = e.openTable(p.File, p.Tensor, c.Model.Vocab, c.Model.Layers*p.Dim)
		}
		if err != nil {
			return nil, err
		}
	}
	ok = true
	// What was read is garbage by now, and the weights will want its room.
	debug.FreeOSMemory()
	return e, nil
}

// openTable opens the sidecar table [rows, width].
func (e *Engine) openTable(file, name string, rows, width int) (checkpoint.Tensor, error) {
	path := filepath.Join(e.dir, file)
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e.closers = append(e.closers, f.Close)
	t, ok := f.Tensor(name)
	if !ok {
		return nil, fmt.Errorf("engine: %s has no tensor %q", path, name)
	}
	if s := t.Shape(); len(s) != 2 || s[0] != rows || s[1] != width {
		return nil, fmt.Errorf("engine: %s: tensor %q has shape %v, want [%d %d]", path, t.Name(), s, rows, width)
	}
	return t, nil
}

// Close releases the files. Sessions must not be used afterwards.
func (e *Engine) Close() error {
	var first error
	for _, c := range e.closers {
		if err := c(); err != nil && first == nil {
			first = err
		}
	}
	e.closers = nil
	return first
}

// Embed writes the embedding of a token, [hidden], as it enters the model's
// residual stream: scaled as the model scales it, without the residual scale.
// A bundle whose graph gathers embeddings has none to look up.
func (e *Engine) Embed(dst []float32, id int32) error {
	m, t := e.contract.Model, e.contract.Embedding
	if e.table == nil {
		return fmt.Errorf("engine: %s has no table of embeddings (convert with embed %s)", e.dir, chunking.EmbedSidecar)
	}
	if len(dst) != m.Hidden || id < 0 || int(id) >= m.Vocab {
		return fmt.Errorf("engine: embedding of token %d in %d elements, the table is [%d %d]", id, len(dst), m.Vocab, m.Hidden)
	}
	if err := e.table.ReadFloat32(dst, int(id)*m.Hidden); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	scale := float32(t.Scale / e.contract.ResidualScale)
	for i := range dst {
		dst[i] *= scale
	}
	return nil
}

// Contract returns the bundle's contract.
func (e *Engine) Contract() *chunking.Contract { return e.contract }

// Dir is the bundle's directory.
func (e *Engine) Dir() string { return e.dir }

// belongs checks that a package does not come from another conversion than the
// one that wrote the contract. Either may leave open where it is from: tools that
// rewrite packages drop their metadata. That the stamp is there is for a gate.
func belongs(meta map[string]string, want chunking.Source) error {
	for _, x := range []struct{ key, want, what string }{
		{chunking.MetaSource, want.SHA256, "another checkpoint"},
		{chunking.MetaConversion, want.Conversion, "another conversion of the same checkpoint"},
	} {
		switch got := meta[x.key]; {
		case x.want == "" || got == "" || got == x.want:
		default:
			return fmt.Errorf("the package was converted from %s: its metadata say %s %.12s, %s says %.12s (convert again)", x.what, x.key, got, chunking.ContractFile, x.want)
		}
	}
	return nil
}

// agree compares a chunk's declaration with the program in its package.
func agree(decl *chunking.Chunk, p *mil.Program) error {
	if len(p.Functions) != len(decl.Functions) {
		return fmt.Errorf("the package has functions %v, the contract declares %d", p.Names(), len(decl.Functions))
	}
	for i := range decl.Functions {
		f := &decl.Functions[i]
		g, ok := p.Functions[f.Name]
		if !ok && len(decl.Functions) == 1 {
			g, ok = p.Functions["main"]
		}
		if !ok {
			return fmt.Errorf("the package lacks function %s (has %v)", f.Name, p.Names())
		}
		if len(g.Inputs) != len(f.Inputs)+len(f.States) {
			return fmt.Errorf("function %s has %d inputs and states, the contract declares %d", f.Name, len(g.Inputs), len(f.Inputs)+len(f.States))
		}
		check := func(ports []chunking.Port, what string, get func(string) *mil.Value) error {
			for _, q := range ports {
				v := get(q.Name)
				if v == nil {
					return fmt.Errorf("function %s has no %s %q", f.Name, what, q.Name)
				}
				t, ok := v.Tensor()
				d, err := mil.ParseDType(q.DType)
				if err != nil || !ok || !t.Equal(mil.T(d, q.Shape...)) {
					return fmt.Errorf("function %s: %s %s is %v, the contract says %s %v", f.Name, what, q.Name, v.Type, q.DType, q.Shape)
				}
				if _, state := v.Type.(mil.StateType); state != (what == "state") {
					return fmt.Errorf("function %s: %s is declared as %s but is %v", f.Name, q.Name, what, v.Type)
				}
			}
			return nil
		}
		output := func(name string) *mil.Value {
			for _, v := range g.Body.Outputs {
				if v.Name == name {
					return v
				}
			}
			return nil
		}
		if err := check(f.Inputs, "input", g.Input); err != nil {
			return err
		}
		if err := check(f.States, "state", g.Input); err != nil {
			return err
		}
		if err := check(f.Outputs, "output", output); err != nil {
			return err
		}
		if len(g.Body.Outputs) != len(f.Outputs) {
			return fmt.Errorf("function %s has %d outputs, the contract declares %d", f.Name, len(g.Body.Outputs), len(f.Outputs))
		}
	}
	return nil
}
