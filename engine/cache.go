package engine

import (
	"fmt"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// cache holds the keys and values of the layers of one kind in one chunk,
// each [n,kv,Slots,D]: as two tensors, or as the two halves of a state.
type cache struct {
	k, v *runtime.Tensor

	state *runtime.Tensor // a copy; save writes it back
	store func(*runtime.Tensor) error
}

// half returns the elements that new keys or new values go to.
func (c *cache) half(r models.Role) []float32 {
	switch {
	case c.state != nil && r == models.NewValues:
		return c.state.F[len(c.state.F)/2:]
	case c.state != nil:
		return c.state.F[:len(c.state.F)/2]
	case r == models.NewValues, r == models.ValueCacheOut:
		return c.v.F
	}
	return c.k.F
}

// save makes changes to half take effect.
func (c *cache) save() error {
	if c.state == nil {
		return nil
	}
	return c.store(c.state)
}

// load returns the cache of one kind in chunk i.
func (s *Session) load(i int, ch *chunk, k models.Kind) (*cache, error) {
	if s.e.contract.KV != chunking.KVState {
		return s.kv[i][k], nil
	}
	st := chunking.Find(ch.decl.Functions[0].States, models.KVState, k)
	if st == nil {
		return nil, fmt.Errorf("engine: %s declares no state for %s layers", ch.decl.Name, k)
	}
	t, ok := s.inst[i].State(st.Name)
	if !ok {
		return nil, fmt.Errorf("engine: %s has no state %q", ch.decl.Name, st.Name)
	}
	inst := s.inst[i]
	return &cache{state: t, store: func(t *runtime.Tensor) error { return inst.SetState(st.Name, t) }}, nil
}
