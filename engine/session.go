package engine

import (
	"fmt"
	"math"

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
	TopIDs     []int32 // of the largest logits, largest first; nil if the bundle has no such output
	TopLogits  []float32
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
	kv   []map[models.Kind]*cache // per chunk, tensor bundles only
	// paths are the routes of a function (of the first chunk) through all
	// chunks.
	paths map[*chunking.Function][]*route
	own   Pending // the call of Decode and Prefill
	Tap   Tap     // optional
	// Adjust, if set, may look at and change the inputs of every call before
	// it runs. Gates and experiments use it; caches changed here stay changed.
	Adjust func(chunk *chunking.Chunk, f *chunking.Function, in map[string]*runtime.Tensor)
	// Trace, if not nil, sees the inputs and outputs of every call of a chunk.
	// The tensors are only valid during the call.
	Trace func(chunk *chunking.Chunk, f *chunking.Function, in, out map[string]*runtime.Tensor)
	// WriteThrough makes Verify write the keys and values of all drafts into
	// the cache at once, accepted or not, as some hosts used to. Rejected ones
	// stay there, and push older positions out of sliding caches: what follows
	// is not what the model says. It serves to show that.
	WriteThrough bool
	// Profile, if not nil, adds up what the ops of every call cost.
	Profile *runtime.Profile
}

// NewSession starts an empty sequence.
func (e *Engine) NewSession() *Session {
	s := &Session{e: e, paths: map[*chunking.Function][]*route{}}
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
			clearWritten(c.k.F)
			clearWritten(c.v.F)
		}
	}
}

// clearWritten zeroes what is not zero, page by page: writing to a page that
// nothing was written to would make it take memory.
func clearWritten(x []float32) {
	const page = 1024
	for len(x) > 0 {
		p := x[:min(page, len(x))]
		for _, v := range p {
			if math.Float32bits(v) != 0 {
				clear(p)
				break
			}
		}
		x = x[len(p):]
	}
}

// Decode feeds one token and commits it.
func (s *Session) Decode(id int32) (Row, error) {
	f, err := s.e.function(chunking.Decode, 1)
	if err != nil {
		return Row{}, err
	}
	p := &s.own
	p.ids[0] = id
	if err := s.call(p, f, p.ids[:], false); err != nil {
		return Row{}, err
	}
	return p.row(0), p.Commit(1)
}

// Prefill feeds ids through the prefill functions, at whatever position the
// session stands, and commits them. each, if not nil, gets the row of every
// token in order. It returns the last row.
//
// Without each, the head is computed for the last token alone: the others go
// through functions cut to their keys and values, the last through decode.
func (s *Session) Prefill(ids []int32, each func(Row) error) (Row, error) {
	if len(ids) == 0 {
		return Row{}, nil
	}
	if _, err := s.e.function(chunking.Decode, 1); each == nil && err == nil {
		last := len(ids) - 1
		if err := s.feed(ids[:last]); err != nil {
			return Row{}, err
		}
		return s.Decode(ids[last])
	}
	var last Row
	for len(ids) > 0 {
		f := s.e.prefillFor(s, len(ids))
		n := min(f.T, len(ids))
		p := &s.own
		if err := s.call(p, f, ids[:n], false); err != nil {
			return last, err
		}
		if err := p.Commit(n); err != nil {
			return last, err
		}
		for t := range n {
			last = p.row(t)
			if each == nil {
				continue
			}
			if err := each(last); err != nil {
				return last, err
			}
		}
		ids = ids[n:]
	}
	return last, nil
}

// feed commits ids and computes no rows.
func (s *Session) feed(ids []int32) error {
	for len(ids) > 0 {
		f := s.e.prefillFor(s, len(ids))
		// A call of T rows takes as long for padding as for tokens. Products
		// over T rows are some four times cheaper a row than one by one, so
		// that a call less than a quarter full is slower than single steps.
		if 4*len(ids) < f.T {
			f, _ = s.e.function(chunking.Decode, 1)
		}
		n := min(f.T, len(ids))
		if err := s.call(&s.own, f, ids[:n], true); err != nil {
			return err
		}
		if err := s.own.Commit(n); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// Verify feeds up to K tokens without committing them. Row t is what the
// model says after ids[0..t]; it does not depend on the ids after t.
func (s *Session) Verify(ids []int32) (*Pending, error) {
	f, err := s.e.function(chunking.Verify, len(ids))
	if err != nil {
		return nil, err
	}
	p := &Pending{}
	if err := s.call(p, f, ids, false); err != nil {
		return nil, err
	}
	if s.WriteThrough {
		for i := range p.path {
			if err := p.write(i, p.b.n); err != nil {
				return nil, err
			}
		}
		p.early = true
	}
	return p, nil
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

// call runs function f of every chunk over ids at the current position, and
// makes p the pending call. A lean call computes no rows.
func (s *Session) call(p *Pending, f *chunking.Function, ids []int32, lean bool) error {
	c := s.e.contract
	b := block{s.pos, len(ids)}
	if b.n == 0 {
		return fmt.Errorf("engine: no tokens")
	}
	if b.pos+b.n > c.Context {
		return fmt.Errorf("engine: position %d is beyond the context of %d", b.pos+b.n-1, c.Context)
	}
	for _, id := range ids {
		if id < 0 || int(id) >= c.Model.Vocab {
			return fmt.Errorf("engine: token id %d is outside the vocabulary of %d", id, c.Model.Vocab)
		}
	}
	path, err := s.routes(f)
	if err != nil {
		return err
	}
	p.s, p.b, p.f, p.done, p.early = s, b, f, false, false
	p.path, p.outs = path, p.outs[:0]
	for _, r := range p.path {
		if err := r.fill(s, ids, b, p.outs); err != nil {
			return err
		}
		out, err := r.run(s, lean)
		if err != nil {
			return err
		}
		p.outs = append(p.outs, out)
	}
	return nil
}
