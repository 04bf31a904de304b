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
	for _, kind := range kinds(f.Outputs) {
		c, err := s.load(i, ch, kind)
		if err != nil {
			return err
		}
		a := s.e.contract.Attention[kind]
		for j := range f.Outputs {
			q := &f.Outputs[j]
			if q.Kind != kind || q.Role != models.NewKeys && q.Role != models.NewValues {
				continue
			}
			dst, src := c.half(q.Role), p.outs[i][q.Name].F
			layers, heads, T, d := q.Shape[0], q.Shape[1], q.Shape[2], q.Shape[3]
			for l := range layers {
				for h := range heads {
					for t := range n {
						from := ((l*heads+h)*T + t) * d
						to := ((l*heads+h)*a.Slots + slotOf(a, p.b.pos+t)) * d
						copy(dst[to:to+d], src[from:from+d])
					}
				}
			}
		}
		if err := c.save(); err != nil {
			return err
		}
	}
	return nil
}

// kinds lists the kinds of attention whose new keys are among the ports.
func kinds(ports []chunking.Port) []models.Kind {
	var out []models.Kind
	for i := range ports {
		if ports[i].Role == models.NewKeys {
			out = append(out, ports[i].Kind)
		}
	}
	return out
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
		c, err := s.load(i, ch, kind)
		if err != nil {
			return nil, nil, nil, err
		}
		d := m.HeadDim
		read := func(role models.Role) [][][]float32 {
			src := c.half(role)
			out := make([][][]float32, m.KVHeads)
			for h := range out {
				for _, p := range positions {
					at := ((index*m.KVHeads+h)*a.Slots + slotOf(a, p)) * d
					out[h] = append(out[h], append([]float32(nil), src[at:at+d]...))
				}
			}
			return out
		}
		return read(models.NewKeys), read(models.NewValues), positions, nil
	}
	return nil, nil, nil, fmt.Errorf("engine: no chunk holds layer %d", layer)
}
