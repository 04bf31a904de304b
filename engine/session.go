package engine

import (
	"fmt"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// Row is what the head says after one token. Slices are the caller's until
// the next call on the session.
type Row struct {
	Position   int       // of the token that was fed
	Logits     []float32 // [vocab], nil if the bundle has no logits output
	Token      int32     // the first of the largest logits
	TokenLogit float32
	Hidden     []float32 // hidden_states_out of the last chunk, nil if it has none
}

// Tap sees named intermediates while a function runs. The tensor is only
// valid during the call.
type Tap func(chunk *chunking.Chunk, f *chunking.Function, name string, t *runtime.Tensor)

// Session is one sequence: its position and its key-value cache.
type Session struct {
	e    *Engine
	inst []*runtime.Instance
	pos  int
	kv   []map[models.Kind]*cache   // per chunk, tensor bundles only
	bufs map[string]*runtime.Tensor // inputs by name and shape, reused
	Tap  Tap                        // optional
	// Adjust, if set, may look at and change the inputs of every call before
	// it runs. Gates and experiments use it; caches changed here stay changed.
	Adjust func(chunk *chunking.Chunk, f *chunking.Function, in map[string]*runtime.Tensor)
	// Trace, if not nil, sees the inputs and outputs of every call of a chunk.
	// The tensors are only valid during the call.
	Trace func(chunk *chunking.Chunk, f *chunking.Function, in, out map[string]*runtime.Tensor)
}

// NewSession starts an empty sequence.
func (e *Engine) NewSession() *Session {
	s := &Session{e: e, bufs: map[string]*runtime.Tensor{}}
	for _, c := range e.chunks {
		s.inst = append(s.inst, c.prog.New())
		caches := map[models.Kind]*cache{}
		f := &c.decl.Functions[0]
		for i := range f.Inputs {
			p := &f.Inputs[i]
			if p.Role != models.KeyCache && p.Role != models.ValueCache {
				continue
			}
			if caches[p.Kind] == nil {
				caches[p.Kind] = &cache{}
			}
			t := newTensor(p)
			if p.Role == models.KeyCache {
				caches[p.Kind].k = t
			} else {
				caches[p.Kind].v = t
			}
		}
		s.kv = append(s.kv, caches)
	}
	return s
}

func newTensor(p *chunking.Port) *runtime.Tensor {
	d, _ := mil.ParseDType(p.DType) // validated with the contract
	return runtime.NewTensor(d, p.Shape...)
}

// Pos is the number of committed positions.
func (s *Session) Pos() int { return s.pos }

// Reset empties the cache.
func (s *Session) Reset() {
	s.pos = 0
	for _, i := range s.inst {
		i.ResetStates()
	}
	for _, m := range s.kv {
		for _, c := range m {
			clear(c.k.F)
			clear(c.v.F)
		}
	}
}

// input returns the reusable buffer of port p and enters it into in.
func (s *Session) input(in map[string]*runtime.Tensor, p *chunking.Port) *runtime.Tensor {
	key := fmt.Sprint(p.Name, p.Shape)
	t, ok := s.bufs[key]
	if !ok {
		t = newTensor(p)
		s.bufs[key] = t
	}
	in[p.Name] = t
	return t
}

// Decode feeds one token and commits it.
func (s *Session) Decode(id int32) (Row, error) {
	f, err := s.e.function(chunking.Decode, 1)
	if err != nil {
		return Row{}, err
	}
	p, err := s.call(f, []int32{id})
	if err != nil {
		return Row{}, err
	}
	rows := p.Rows()
	return rows[0], p.Commit(1)
}

// Prefill feeds ids through the prefill functions, at whatever position the
// session stands, and commits them. each, if not nil, gets the row of every
// token in order. It returns the last row.
func (s *Session) Prefill(ids []int32, each func(Row) error) (Row, error) {
	var last Row
	for len(ids) > 0 {
		f := s.e.prefillFor(s, len(ids))
		n := min(f.T, len(ids))
		p, err := s.call(f, ids[:n])
		if err != nil {
			return last, err
		}
		rows := p.Rows()
		if err := p.Commit(n); err != nil {
			return last, err
		}
		for _, r := range rows {
			if each != nil {
				if err := each(r); err != nil {
					return r, err
				}
			}
		}
		last = rows[n-1]
		ids = ids[n:]
	}
	return last, nil
}

// Verify feeds up to K tokens without committing them. Row t is what the
// model says after ids[0..t]; it does not depend on the ids after t.
func (s *Session) Verify(ids []int32) (*Pending, error) {
	f, err := s.e.function(chunking.Verify, len(ids))
	if err != nil {
		return nil, err
	}
	return s.call(f, ids)
}

// function picks the function of the kind with the fewest tokens ≥ n.
func (e *Engine) function(kind chunking.FunctionKind, n int) (*chunking.Function, error) {
	var best *chunking.Function
	for i := range e.contract.Chunks[0].Functions {
		f := &e.contract.Chunks[0].Functions[i]
		if f.Kind == kind && f.T >= n && (best == nil || f.T < best.T) {
			best = f
		}
	}
	if best == nil {
		return nil, fmt.Errorf("engine: the bundle has no %s function for %d tokens (convert with --functions)", kind, n)
	}
	return best, nil
}

// prefillFor picks the function for the next of n tokens: the largest prefill
// that is filled, else the smallest, padded; decode where none fits.
func (e *Engine) prefillFor(s *Session, n int) *chunking.Function {
	var full, padded *chunking.Function
	var decode *chunking.Function
	for i := range e.contract.Chunks[0].Functions {
		f := &e.contract.Chunks[0].Functions[i]
		switch {
		case f.Kind == chunking.Decode:
			decode = f
		case f.Kind != chunking.Prefill || !e.writable(f, s.pos):
		case f.T <= n && (full == nil || f.T > full.T):
			full = f
		case f.T > n && (padded == nil || f.T < padded.T):
			padded = f
		}
	}
	switch {
	case full != nil:
		return full
	case padded != nil && n > 1:
		return padded
	}
	return decode
}

// writable reports whether all T slots that f writes from pos on exist. A
// graph that commits by itself writes padding rows as well.
func (e *Engine) writable(f *chunking.Function, pos int) bool {
	return e.contract.KV != chunking.KVState || pos+f.T <= e.contract.Context
}

// call runs function f of every chunk over ids at the current position.
func (s *Session) call(f *chunking.Function, ids []int32) (*Pending, error) {
	c := s.e.contract
	b := block{s.pos, len(ids)}
	if b.n == 0 {
		return nil, fmt.Errorf("engine: no tokens")
	}
	if b.pos+b.n > c.Context {
		return nil, fmt.Errorf("engine: position %d is beyond the context of %d", b.pos+b.n-1, c.Context)
	}
	for _, id := range ids {
		if id < 0 || int(id) >= c.Model.Vocab {
			return nil, fmt.Errorf("engine: token id %d is outside the vocabulary of %d", id, c.Model.Vocab)
		}
	}
	p := &Pending{s: s, b: b, f: f}
	var hidden *runtime.Tensor
	for i, ch := range s.e.chunks {
		cf := ch.decl.Function(f.Name)
		in := map[string]*runtime.Tensor{}
		s.hostInputs(in, cf, b)
		for j := range cf.Inputs {
			q := &cf.Inputs[j]
			switch q.Role {
			case models.InputIDs:
				t := s.input(in, q)
				clear(t.I)
				copy(t.I, ids)
			case models.HiddenIn:
				if hidden != nil {
					in[q.Name] = hidden
				} else if err := s.embed(s.input(in, q), ids); err != nil {
					return nil, err
				}
			case models.KeyCache:
				in[q.Name] = s.kv[i][q.Kind].k
			case models.ValueCache:
				in[q.Name] = s.kv[i][q.Kind].v
			}
		}
		if s.Adjust != nil {
			s.Adjust(ch.decl, cf, in)
		}
		var opts []runtime.RunOption
		if s.Tap != nil {
			opts = append(opts, runtime.WithTap(func(name string, t *runtime.Tensor) { s.Tap(ch.decl, cf, name, t) }))
		}
		out, err := s.inst[i].Run(s.entry(ch, cf), in, opts...)
		if err != nil {
			return nil, fmt.Errorf("engine: %s: %w", ch.decl.Name, err)
		}
		if s.Trace != nil {
			s.Trace(ch.decl, cf, in, out)
		}
		p.outs = append(p.outs, out)
		if h := chunking.Find(cf.Outputs, models.HiddenOut, ""); h != nil {
			hidden = out[h.Name]
		}
	}
	return p, nil
}

// entry is the function's name in the package; a package with one function
// calls it main.
func (s *Session) entry(ch *chunk, f *chunking.Function) string {
	if _, ok := ch.pkg.Program.Functions[f.Name]; !ok {
		return "main"
	}
	return f.Name
}

// embed writes the scaled embedding rows of ids; padding rows are zero.
func (s *Session) embed(dst *runtime.Tensor, ids []int32) error {
	clear(dst.F)
	h := s.e.contract.Model.Hidden
	scale := float32(s.e.contract.Embedding.Scale)
	for t, id := range ids {
		row := dst.F[t*h : (t+1)*h]
		if err := s.e.table.ReadFloat32(row, int(id)*h); err != nil {
			return fmt.Errorf("engine: %w", err)
		}
		for i := range row {
			row[i] *= scale
		}
	}
	return nil
}
