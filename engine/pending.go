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
	path []*route
	ids  [1]int32
	outs []map[string]*runtime.Tensor // by chunk
	done bool
	// early is set if all tokens were written before any was accepted.
	early bool
}

// Rows returns what the head says after each of the tokens.
func (p *Pending) Rows() []Row {
	rows := make([]Row, p.b.n)
	for t := range rows {
		rows[t] = p.row(t)
	}
	return rows
}

func (p *Pending) row(t int) Row {
	last := len(p.path) - 1
	h, out := &p.path[last].head, p.outs[last]
	r := Row{Position: p.b.pos + t}
	if h.logits != "" {
		r.Logits = out[h.logits].F[t*h.vocab : (t+1)*h.vocab]
		if h.token == "" || h.tokenLogit == "" {
			r.Token, r.TokenLogit = argmax(r.Logits)
		}
	}
	if h.token != "" {
		r.Token = out[h.token].I[t]
	}
	if h.tokenLogit != "" {
		r.TokenLogit = out[h.tokenLogit].F[t]
	}
	if h.topIDs != "" {
		r.TopIDs = out[h.topIDs].I[t*h.top : (t+1)*h.top]
	}
	if h.topLogits != "" {
		r.TopLogits = out[h.topLogits].F[t*h.top : (t+1)*h.top]
	}
	if h.hidden != "" {
		r.Hidden = out[h.hidden].F[t*h.width : (t+1)*h.width]
	}
	return r
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
	if !selfCommitting && !p.early {
		for i := range p.path {
			if err := p.write(i, n); err != nil {
				return err
			}
		}
	}
	s.pos += n
	return nil
}

// write copies the new keys and values of the first n tokens of one chunk
// into its cache.
func (p *Pending) write(i, n int) error {
	s, r := p.s, p.path[i]
	for _, w := range r.whole {
		if n > 0 { // functions that return caches take one token
			copy(s.kv[i][w.kind].half(w.role), p.outs[i][w.name].F)
		}
	}
	var c *cache
	for j := range r.fresh {
		q := &r.fresh[j]
		// A kind's keys and values are neighbours; a cache that is a copy of
		// a state is loaded and saved once for both.
		if j == 0 || r.fresh[j-1].kind != q.kind {
			var err error
			if c, err = s.load(i, r.ch, q.kind); err != nil {
				return err
			}
		}
		dst, src, stride := c.half(q.role), p.outs[i][q.name].F, q.attn.Stride()
		for row := range q.layers * q.heads {
			cached := dst[row*q.attn.Slots*stride : (row+1)*q.attn.Slots*stride]
			if q.attn.Layout == chunking.Shift {
				copy(cached, cached[min(n, q.attn.Slots)*stride:])
			}
			for t := range n {
				slot := q.attn.Slot(p.b.pos+t, p.b.pos)
				if q.attn.Layout == chunking.Shift {
					slot = q.attn.Slot(t, n)
				}
				if slot >= 0 {
					from := (row*q.T + t) * q.d
					copy(cached[slot*stride:], src[from:from+q.d])
				}
			}
		}
		if j+1 == len(r.fresh) || r.fresh[j+1].kind != q.kind {
			if err := c.save(); err != nil {
				return err
			}
		}
	}
	return nil
}

// KV copies the cached keys and values of a layer at the committed positions
// that its cache still holds: k and v are [kv][positions][D], positions lists
// them in ascending order. A layer that shares those of another has these.
func (s *Session) KV(layer int) (k, v [][][]float32, positions []int, err error) {
	m := s.e.contract.Model
	if layer < 0 || layer >= m.Layers {
		return nil, nil, nil, fmt.Errorf("engine: layer %d of %d", layer, m.Layers)
	}
	if m.KVSource != nil {
		layer = m.KVSource[layer]
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
		index, err := ch.index(layer, kind)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("engine: %w", err)
		}
		c, err := s.load(i, ch, kind)
		if err != nil {
			return nil, nil, nil, err
		}
		read := func(role models.Role) [][][]float32 {
			src := c.half(role)
			out := make([][][]float32, a.KVHeads)
			for h := range out {
				for _, p := range positions {
					at := ((index*a.KVHeads+h)*a.Slots + a.Slot(p, s.pos)) * a.Stride()
					out[h] = append(out[h], append([]float32(nil), src[at:at+a.HeadDim]...))
				}
			}
			return out
		}
		return read(models.NewKeys), read(models.NewValues), positions, nil
	}
	return nil, nil, nil, fmt.Errorf("engine: no chunk holds layer %d", layer)
}
