package parity

import (
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/runtime"
)

// Host drives a bundle, as engine.Session does. Gates know the engine only
// through it, so that a deliberately wrong host can be put in its place.
type Host interface {
	Pos() int
	Decode(id int32) (engine.Row, error)
	Prefill(ids []int32, each func(engine.Row) error) (engine.Row, error)
	Verify(ids []int32) (Block, error)
	KV(layer int) (k, v [][][]float32, positions []int, err error)
	// Watch shows every later call to the watcher; the zero Watcher ends it.
	Watch(w Watcher)
}

// Block is a finished verify call.
type Block interface {
	Rows() []engine.Row
	Commit(n int) error
}

// Watcher looks at calls. Tensors are valid during a call of its functions.
type Watcher struct {
	Values engine.Tap // every named intermediate
	// Inputs sees what a chunk is about to be given.
	Inputs Inputs
}

// Inputs sees the inputs of a call by name.
type Inputs func(chunk *chunking.Chunk, f *chunking.Function, in map[string]*runtime.Tensor)

// NewHost is the host that applications use: an engine's session.
func NewHost(e *engine.Engine) Host { return session{e.NewSession()} }

// NewWriteThroughHost is a host that writes the drafts of a verify call into
// the cache before any is accepted, as some used to: a mistake, to be shown.
func NewWriteThroughHost(e *engine.Engine) Host {
	s := e.NewSession()
	s.WriteThrough = true
	return session{s}
}

type session struct{ *engine.Session }

func (s session) Verify(ids []int32) (Block, error) {
	p, err := s.Session.Verify(ids)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (s session) Watch(w Watcher) {
	s.Tap = w.Values
	s.Adjust = w.Inputs
}
