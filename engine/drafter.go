package engine

import (
	"fmt"
	"math"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/drafter"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// Drafter is an opened bundle of a speculative drafter. It is safe for use by
// several sessions at once.
type Drafter struct {
	dir       string
	contract  *chunking.DrafterContract
	prog      *runtime.Program
	only      bool // the package has one function, called main
	table     checkpoint.Tensor
	targetIDs []int32
	closers   []func() error
}

// OpenDrafter reads the bundle that conversion.ConvertDrafter wrote to dir. The
// package must have exactly the functions, inputs and outputs of its contract.
func OpenDrafter(dir string, opts Options) (*Drafter, error) {
	c, err := chunking.ReadDrafter(dir)
	if err != nil {
		return nil, err
	}
	d := &Drafter{dir: dir, contract: c, only: len(c.Functions) == 1}
	ok := false
	defer func() {
		if !ok {
			d.Close()
		}
	}()
	path := filepath.Join(dir, c.File)
	pkg, err := mlpackage.Read(path, mlpackage.ReadOptions{})
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	d.closers = append(d.closers, pkg.Close)
	if err := belongs(pkg.Metadata.UserDefined, c.Source); err != nil {
		return nil, fmt.Errorf("engine: %s: %w", path, err)
	}
	if err := agree(asChunk(c), pkg.Program); err != nil {
		return nil, fmt.Errorf("engine: %s disagrees with %s: %w", path, chunking.DrafterFile, err)
	}
	if d.prog, err = runtime.Load(pkg.Program, runtime.Options{Mode: opts.Mode, Threads: opts.Threads}); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if e := c.Embedding; e != nil {
		if err := d.openTable(e); err != nil {
			return nil, err
		}
	}
	if c.TargetIDs != "" {
		if err := d.readTargetIDs(); err != nil {
			return nil, err
		}
	}
	ok = true
	return d, nil
}

// asChunk presents the functions of a drafter as those of a chunk.
func asChunk(c *chunking.DrafterContract) *chunking.Chunk {
	ch := &chunking.Chunk{Name: c.Drafter, File: c.File, Last: c.Layers}
	for _, f := range c.Functions {
		ch.Functions = append(ch.Functions, chunking.Function{Name: f.Name, T: f.T, Inputs: f.Inputs, Outputs: f.Outputs})
	}
	return ch
}

func (d *Drafter) openTable(e *chunking.Embedding) error {
	path := filepath.Join(d.dir, e.File)
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	d.closers = append(d.closers, f.Close)
	t, ok := f.Tensor(e.Tensor)
	if !ok {
		return fmt.Errorf("engine: %s has no tensor %q", path, e.Tensor)
	}
	if s := t.Shape(); len(s) != 2 || s[0] != d.contract.Vocab || s[1] != d.contract.Hidden {
		return fmt.Errorf("engine: %s: tensor %q has shape %v, want [%d %d]", path, e.Tensor, s, d.contract.Vocab, d.contract.Hidden)
	}
	d.table = t
	return nil
}

func (d *Drafter) readTargetIDs() error {
	path := filepath.Join(d.dir, d.contract.TargetIDs)
	f, err := checkpoint.OpenFile(path)
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	defer f.Close()
	t, ok := f.Tensor("target_ids")
	if !ok {
		return fmt.Errorf("engine: %s has no tensor \"target_ids\"", path)
	}
	ids, err := checkpoint.ReadInts(t)
	if err != nil {
		return fmt.Errorf("engine: %s: %w", path, err)
	}
	last := int64(-1)
	for i, id := range ids {
		if id <= last || id >= int64(d.contract.Vocab) {
			return fmt.Errorf("engine: %s: entry %d is %d after %d, in a vocabulary of %d", path, i, id, last, d.contract.Vocab)
		}
		last = id
		d.targetIDs = append(d.targetIDs, int32(id))
	}
	if len(ids) != d.contract.DraftVocab {
		return fmt.Errorf("engine: %s has %d ids, %s says %d", path, len(ids), chunking.DrafterFile, d.contract.DraftVocab)
	}
	return nil
}

// Close releases the files. Sessions must not be used afterwards.
func (d *Drafter) Close() error {
	var first error
	for _, c := range d.closers {
		if err := c(); err != nil && first == nil {
			first = err
		}
	}
	d.closers = nil
	return first
}

// TargetIDs are the target's ids of the draft vocabulary, ascending; nil if it
// is the target's vocabulary.
func (d *Drafter) TargetIDs() []int32 { return d.targetIDs }

// Contract returns the bundle's contract.
func (d *Drafter) Contract() *chunking.DrafterContract { return d.contract }

// DrafterSession is a converted drafter at work on one text.
type DrafterSession interface {
	drafter.Session
	// SetTap lets tap see the named intermediates of every call; nil stops that.
	SetTap(tap func(f *chunking.DraftFunction, name string, t *runtime.Tensor))
}

// NewSession starts at position 0. target gives the embeddings of drafters that
// have none of their own; others ignore it.
func (d *Drafter) NewSession(target drafter.Embedder) (DrafterSession, error) {
	if d.table == nil && target == nil {
		return nil, fmt.Errorf("engine: the %s drafter takes the embeddings of its target: give it", d.contract.Drafter)
	}
	b := &draftBase{d: d, c: d.contract, inst: d.prog.New(), embedder: target, calls: map[string]*draftCall{}, needs: d.contract.Needs()}
	if d.table != nil {
		b.embedder = ownTable{d.table, d.contract.Hidden, d.contract.Embedding.Scale}
	}
	b.reset()
	switch d.contract.Drafter {
	case models.Gemma4Assistant:
		return &gemma4Session{draftBase: b}, nil
	case models.Eagle3:
		return &eagle3Session{draftBase: b}, nil
	case models.MTPModules:
		return newMTPSession(b), nil
	case models.DSpark:
		return &dsparkSession{draftBase: b}, nil
	}
	return nil, fmt.Errorf("engine: drafter %q is not known", d.contract.Drafter)
}

// ownTable is a table of embeddings that came with the drafter.
type ownTable struct {
	t     checkpoint.Tensor
	width int
	scale float64
}

func (o ownTable) Embed(dst []float32, id int32) error {
	if len(dst) != o.width || id < 0 || int(id) >= o.t.Shape()[0] {
		return fmt.Errorf("engine: embedding of token %d in %d elements, the table is %v", id, len(dst), o.t.Shape())
	}
	if err := o.t.ReadFloat32(dst, int(id)*o.width); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	for i := range dst {
		dst[i] *= float32(o.scale)
	}
	return nil
}

// draftBase is what the sessions of all drafters have.
type draftBase struct {
	d        *Drafter
	c        *chunking.DrafterContract
	inst     *runtime.Instance
	embedder drafter.Embedder
	needs    drafter.Needs
	pos      int
	calls    map[string]*draftCall
	kv       map[cacheKey]*runtime.Tensor
	tap      func(f *chunking.DraftFunction, name string, t *runtime.Tensor)
}

// cacheKey names a cache: that of one module and kind.
type cacheKey struct {
	module int
	kind   models.Kind
	role   models.Role // KeyCache or ValueCache
}

// draftCall is a function with the buffers of its inputs.
type draftCall struct {
	f       *chunking.DraftFunction
	entry   string
	in      map[string]*runtime.Tensor
	byRole  map[models.Role]*runtime.Tensor // of roles without kind
	outputs map[models.Role]string
}

func (b *draftBase) Needs() drafter.Needs { return b.needs }
func (b *draftBase) Position() int        { return b.pos }
func (b *draftBase) MaxDraft() int        { return b.c.MaxDraft }

func (b *draftBase) SetTap(tap func(f *chunking.DraftFunction, name string, t *runtime.Tensor)) {
	b.tap = tap
}

func (b *draftBase) reset() {
	b.pos = 0
	if b.kv != nil {
		for _, t := range b.kv {
			clear(t.F)
		}
		return
	}
	b.kv = map[cacheKey]*runtime.Tensor{}
	for i := range b.c.Functions {
		f := &b.c.Functions[i]
		for j := range f.Inputs {
			p := &f.Inputs[j]
			if key := (cacheKey{f.Module, p.Kind, p.Role}); (p.Role == models.KeyCache || p.Role == models.ValueCache) && b.kv[key] == nil {
				b.kv[key] = newTensor(p)
			}
		}
	}
}

// call prepares a function.
func (b *draftBase) call(f *chunking.DraftFunction) *draftCall {
	if c, ok := b.calls[f.Name]; ok {
		return c
	}
	c := &draftCall{f: f, entry: f.Name, in: map[string]*runtime.Tensor{}, byRole: map[models.Role]*runtime.Tensor{}, outputs: map[models.Role]string{}}
	if b.d.only {
		c.entry = "main"
	}
	for i := range f.Inputs {
		p := &f.Inputs[i]
		if p.Role == models.KeyCache || p.Role == models.ValueCache {
			c.in[p.Name] = b.kv[cacheKey{f.Module, p.Kind, p.Role}]
			continue
		}
		c.in[p.Name] = newTensor(p)
		if p.Kind == "" {
			c.byRole[p.Role] = c.in[p.Name]
		}
	}
	for i := range f.Outputs {
		c.outputs[f.Outputs[i].Role] = f.Outputs[i].Name
	}
	b.calls[f.Name] = c
	return c
}

// store writes the new keys and values of the first n tokens, at pos, into the
// caches of the function's module.
func (c *draftCall) store(b *draftBase, out map[models.Role]*runtime.Tensor, pos, n int) {
	for kind, a := range b.c.Attention {
		for fresh, role := range map[models.Role]models.Role{models.NewKeys: models.KeyCache, models.NewValues: models.ValueCache} {
			t, cached := out[fresh], b.kv[cacheKey{c.f.Module, kind, role}]
			if t == nil || cached == nil {
				continue
			}
			D := a.HeadDim
			for row := range t.Shape[0] * t.Shape[1] {
				for i := range n {
					copy(cached.F[(row*a.Slots+a.Slot(pos+i, pos))*D:][:D], t.F[(row*c.f.T+i)*D:])
				}
			}
		}
	}
}

// room checks that n more positions fit.
func (b *draftBase) room(n int) error {
	if b.pos+n > b.c.Context {
		return fmt.Errorf("engine: position %d is beyond the drafter's context of %d", b.pos+n-1, b.c.Context)
	}
	return nil
}

// wanted checks the arguments of Draft.
func (b *draftBase) wanted(next int32, n int) error {
	switch {
	case b.pos == 0:
		return fmt.Errorf("engine: nothing has been committed to the drafter")
	case n < 1 || n > b.c.MaxDraft:
		return fmt.Errorf("engine: %d drafts asked of a drafter that gives 1 to %d", n, b.c.MaxDraft)
	case next < 0 || int(next) >= b.c.Vocab:
		return fmt.Errorf("engine: token id %d is outside the vocabulary of %d", next, b.c.Vocab)
	}
	return nil
}

// target spreads logits of the draft vocabulary over the target's.
func (b *draftBase) target(logits []float32) []float32 {
	if b.d.targetIDs == nil {
		return append([]float32(nil), logits...)
	}
	out := make([]float32, b.c.Vocab)
	for i := range out {
		out[i] = float32(math.Inf(-1))
	}
	for i, id := range b.d.targetIDs {
		out[id] = logits[i]
	}
	return out
}

// place fills masks and RoPE rows for n tokens at pos. Without masks of its own
// kind of block, tokens see earlier ones.
func (c *draftCall) place(b *draftBase, pos, n int, mask func(dst []float32, a chunking.Attn)) {
	for i := range c.f.Inputs {
		p := &c.f.Inputs[i]
		a, t := b.c.Attention[p.Kind], c.in[p.Name]
		switch p.Role {
		case models.Mask:
			if mask != nil {
				mask(t.F, a)
			} else {
				fillMask(t.F, a, block{pos, n}, c.f.T, float32(b.c.Mask.Blocked))
			}
		case models.RopeCos:
			fillRope(t.F, a, block{pos, n}, c.f.T, math.Cos)
		case models.RopeSin:
			fillRope(t.F, a, block{pos, n}, c.f.T, math.Sin)
		}
	}
}

// embed writes the rows of ids to the token embeddings; the rest is zero.
func (c *draftCall) embed(b *draftBase, ids ...int32) error {
	t := c.byRole[models.TokenEmbedding]
	clear(t.F)
	width := t.Shape[2]
	for i, id := range ids {
		if id < 0 || int(id) >= b.c.Vocab {
			return fmt.Errorf("engine: token id %d is outside the vocabulary of %d", id, b.c.Vocab)
		}
		if err := b.embedder.Embed(t.F[i*width:(i+1)*width], id); err != nil {
			return err
		}
	}
	return nil
}

// run executes the function and computes the outputs with the given roles.
func (c *draftCall) run(b *draftBase, want ...models.Role) (map[models.Role]*runtime.Tensor, error) {
	var names []string
	for _, r := range want {
		if name, ok := c.outputs[r]; ok {
			names = append(names, name)
		}
	}
	opts := []runtime.RunOption{runtime.Outputs(names...)}
	if b.tap != nil {
		opts = append(opts, runtime.WithTap(func(name string, t *runtime.Tensor) { b.tap(c.f, name, t) }))
	}
	out, err := b.inst.Run(c.entry, c.in, opts...)
	if err != nil {
		return nil, fmt.Errorf("engine: %s: %s: %w", b.c.Drafter, c.f.Name, err)
	}
	got := map[models.Role]*runtime.Tensor{}
	for _, r := range want {
		if t, ok := out[c.outputs[r]]; ok {
			got[r] = t
		}
	}
	return got, nil
}
