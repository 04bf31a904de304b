package engine

import (
	"fmt"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// Pending is a finished call whose tokens may or may not become part of the
// sequence. It is valid until the next call on the session.
type Pending struct {
	s    *Session
	b    block
	f    *chunking.Function
	outs []map[string]*runtime.Tensor // by chunk
	done bool
}

// Rows returns what the head says after each of the tokens.
func (p *Pending) Rows() []Row {
	last := p.s.e.chunks[len(p.s.e.chunks)-1]
	f := last.decl.Function(p.f.Name)
	out := p.outs[len(p.outs)-1]
	rows := make([]Row, p.b.n)
	for t := range rows {
		r := &rows[t]
		r.Position = p.b.pos + t
		if q := chunking.Find(f.Outputs, models.Logits, ""); q != nil {
			v := q.Shape[2]
			r.Logits = out[q.Name].F[t*v : (t+1)*v]
			r.Token, r.TokenLogit = argmax(r.Logits)
		}
		if q := chunking.Find(f.Outputs, models.TokenID, ""); q != nil {
			r.Token = out[q.Name].I[t]
		}
		if q := chunking.Find(f.Outputs, models.TokenLogit, ""); q != nil {
			r.TokenLogit = out[q.Name].F[t]
		}
		if q := chunking.Find(f.Outputs, models.HiddenOut, ""); q != nil {
			h := q.Shape[2]
			r.Hidden = out[q.Name].F[t*h : (t+1)*h]
		}
	}
	return rows
}

func argmax(x []float32) (int32, float32) {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best), x[best]
}

// Commit makes the first n tokens part of the sequence: exactly their keys
// and values enter the cache. Graphs that write their own states (decode and
// prefill of state bundles) have done so already; they take only n = all.
func (p *Pending) Commit(n int) error {
	switch {
	case p.done:
		return fmt.Errorf("engine: the call is committed already")
	case n < 0 || n > p.b.n:
		return fmt.Errorf("engine: commit %d of %d tokens", n, p.b.n)
	}
	s := p.s
	selfCommitting := s.e.contract.KV == chunking.KVState && p.f.Kind != chunking.Verify
	if selfCommitting && n != p.b.n {
		return fmt.Errorf("engine: function %s has committed %d tokens by itself; cannot commit %d", p.f.Name, p.b.n, n)
	}
	p.done = true
	if !selfCommitting {
		for i, ch := range s.e.chunks {
			if err := p.write(i, ch, n); err != nil {
				return err
			}
		}
	}
	s.pos += n
	return nil
}

// write copies the new keys and values of the first n tokens of one chunk
// into its cache.
func (p *Pending) write(i int, ch *chunk, n int) error {
	s := p.s
	f := ch.decl.Function(p.f.Name)
	for j := range f.Outputs {
		q := &f.Outputs[j]
		if q.Role != models.NewKeys && q.Role != models.NewValues {
			continue
		}
		dst, layer0, err := s.store(i, ch, q)
		if err != nil {
			return err
		}
		a := s.e.contract.Attention[q.Kind]
		src := p.outs[i][q.Name]
		layers, heads, T, d := q.Shape[0], q.Shape[1], q.Shape[2], q.Shape[3]
		for l := range layers {
			for h := range heads {
				for t := range n {
					from := ((l*heads+h)*T + t) * d
					to := (((layer0+l)*heads+h)*a.Slots + slotOf(a, p.b.pos+t)) * d
					copy(dst.F[to:to+d], src.F[from:from+d])
				}
			}
		}
	}
	return nil
}

// store is the cache that the keys or values of port q belong to, and the
// index of their first layer along axis 0.
func (s *Session) store(i int, ch *chunk, q *chunking.Port) (*runtime.Tensor, int, error) {
	values := q.Role == models.NewValues || q.Role == models.ValueCache
	if s.e.contract.KV == chunking.KVTensor {
		c := s.kv[i][q.Kind]
		if values {
			return c.v, 0, nil
		}
		return c.k, 0, nil
	}
	st := chunking.Find(ch.decl.Functions[0].States, models.KVState, q.Kind)
	if st == nil {
		return nil, 0, fmt.Errorf("engine: %s declares no state for %s layers", ch.decl.Name, q.Kind)
	}
	t, ok := s.inst[i].State(st.Name)
	if !ok {
		return nil, 0, fmt.Errorf("engine: %s has no state %q", ch.decl.Name, st.Name)
	}
	if values {
		return t, len(st.Layers), nil
	}
	return t, 0, nil
}

// KV copies the cached keys and values of a layer at the committed positions
// that its cache still holds: k and v are [kv][positions][D], positions lists
// them in ascending order.
func (s *Session) KV(layer int) (k, v [][][]float32, positions []int, err error) {
	m := s.e.contract.Model
	if layer < 0 || layer >= m.Layers {
		return nil, nil, nil, fmt.Errorf("engine: layer %d of %d", layer, m.Layers)
	}
	kind := m.Kinds[layer]
	a := s.e.contract.Attention[kind]
	for p := max(0, s.pos-a.Slots); p < s.pos; p++ {
		positions = append(positions, p)
	}
	for i, ch := range s.e.chunks {
		if layer < ch.decl.First || layer >= ch.decl.Last {
			continue
		}
		index := 0
		for l := ch.decl.First; l < layer; l++ {
			if m.Kinds[l] == kind {
				index++
			}
		}
		read := func(role models.Role) ([][][]float32, error) {
			t, layer0, err := s.store(i, ch, &chunking.Port{Role: role, Kind: kind})
			if err != nil {
				return nil, err
			}
			heads, d := t.Shape[1], t.Shape[3]
			out := make([][][]float32, heads)
			for h := range heads {
				for _, p := range positions {
					at := (((layer0+index)*heads+h)*a.Slots + slotOf(a, p)) * d
					out[h] = append(out[h], append([]float32(nil), t.F[at:at+d]...))
				}
			}
			return out, nil
		}
		if k, err = read(models.NewKeys); err != nil {
			return nil, nil, nil, err
		}
		v, err = read(models.NewValues)
		return k, v, positions, err
	}
	return nil, nil, nil, fmt.Errorf("engine: no chunk holds layer %d", layer)
}
