package engine

import (
	"fmt"
	"math"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// route is one function of one chunk as a session drives it. Ports, buffers
// and options are resolved once, so that a call looks nothing up and
// allocates nothing.
type route struct {
	ch    *chunk
	inst  *runtime.Instance
	f     *chunking.Function
	entry string // the function's name in the package
	in    map[string]*runtime.Tensor
	feeds []feed

	head  head
	fresh []fresh
	whole []whole

	// Caches hold what earlier runs returned. Options say so, and, for lean,
	// that nothing but keys, values and hidden_states of the next chunk is
	// wanted.
	all, lean []runtime.RunOption
}

// feed is an input and where it comes from.
type feed struct {
	name string
	role models.Role
	attn chunking.Attn
	t    *runtime.Tensor
	// What an earlier chunk has returned in this call: elements [lo, hi) of
	// its output, seen through t.
	chunk  int
	output string
	lo, hi int
}

// head names the outputs that make a Row; empty where there is none.
type head struct {
	logits, token, tokenLogit, topIDs, topLogits, hidden string
	vocab, top, width                                    int
}

// fresh is an output of new keys or values, [layers,heads,T,D].
type fresh struct {
	name                string
	role                models.Role
	kind                models.Kind
	attn                chunking.Attn
	layers, heads, T, d int
}

// whole is an output that takes the place of a cache.
type whole struct {
	name string
	role models.Role
	kind models.Kind
}

// routes returns the way of function f through all chunks.
func (s *Session) routes(f *chunking.Function) ([]*route, error) {
	if r, ok := s.paths[f]; ok {
		return r, nil
	}
	var path []*route
	for i := range s.e.chunks {
		r, err := s.newRoute(i, f.Name)
		if err != nil {
			return nil, fmt.Errorf("engine: %s: %s: %w", s.e.chunks[i].decl.Name, f.Name, err)
		}
		path = append(path, r)
	}
	s.paths[f] = path
	return path, nil
}

func (s *Session) newRoute(i int, name string) (*route, error) {
	ch, c := s.e.chunks[i], s.e.contract
	r := &route{ch: ch, inst: s.inst[i], f: ch.decl.Function(name), entry: name, in: map[string]*runtime.Tensor{}}
	if _, ok := ch.pkg.Program.Functions[name]; !ok {
		r.entry = "main" // a package with one function
	}
	var caches []string
	for j := range r.f.Inputs {
		p := &r.f.Inputs[j]
		fd := feed{name: p.Name, role: p.Role, attn: c.Attention[p.Kind]}
		switch {
		case p.Role == models.KeyCache:
			fd.t, caches = s.kv[i][p.Kind].k, append(caches, p.Name)
		case p.Role == models.ValueCache:
			fd.t, caches = s.kv[i][p.Kind].v, append(caches, p.Name)
		default:
			fd.t = newTensor(p)
			switch p.Role {
			case models.SharedKeys, models.SharedValues, models.SharedNewKeys, models.SharedNewValues:
				caches = append(caches, p.Name)
			}
			if err := s.connect(&fd, i, p, name); err != nil {
				return nil, err
			}
		}
		r.feeds = append(r.feeds, fd)
	}
	last := i == len(s.e.chunks)-1
	var keep []string
	for j := range r.f.Outputs {
		p := &r.f.Outputs[j]
		switch p.Role {
		case models.NewKeys, models.NewValues:
			r.fresh = append(r.fresh, fresh{p.Name, p.Role, p.Kind, c.Attention[p.Kind], p.Shape[0], p.Shape[1], p.Shape[2], p.Shape[3]})
			keep = append(keep, p.Name)
		case models.KeyCacheOut, models.ValueCacheOut:
			r.whole = append(r.whole, whole{p.Name, p.Role, p.Kind})
			keep = append(keep, p.Name)
		case models.PerLayerOut, models.SharedKeys, models.SharedValues, models.SharedNewKeys, models.SharedNewValues:
			keep = append(keep, p.Name)
		case models.HiddenOut:
			r.head.hidden, r.head.width = p.Name, p.Shape[2]
			if !last {
				keep = append(keep, p.Name)
			}
		case models.Logits:
			r.head.logits, r.head.vocab = p.Name, p.Shape[2]
		case models.TokenID:
			r.head.token = p.Name
		case models.TokenLogit:
			r.head.tokenLogit = p.Name
		case models.TopIDs:
			r.head.topIDs, r.head.top = p.Name, p.Shape[2]
		case models.TopLogits:
			r.head.topLogits = p.Name
		}
	}
	r.all = []runtime.RunOption{runtime.Rounded(caches...)}
	r.lean = append(r.all[:1:1], runtime.Outputs(keep...))
	return r, nil
}

// fill sets the inputs of a call: tokens ids at the positions of b, after the
// earlier chunks returned outs.
func (r *route) fill(s *Session, ids []int32, b block, outs []map[string]*runtime.Tensor) error {
	c := s.e.contract
	for k := range r.feeds {
		fd := &r.feeds[k]
		t := fd.t
		if fd.output != "" {
			t.F = outs[fd.chunk][fd.output].F[fd.lo:fd.hi]
		}
		switch fd.role {
		case models.InputIDs:
			clear(t.I[copy(t.I, ids):])
		case models.HiddenIn:
			if fd.output == "" {
				if err := lookup(t, s.e.table, ids, c.Model.Hidden, c.Embedding.Scale); err != nil {
					return err
				}
			}
		case models.PerLayerRaw:
			if err := lookup(t, s.e.perLayer, ids, c.Model.Layers*c.PerLayer.Dim, c.PerLayer.Scale); err != nil {
				return err
			}
		case models.Mask:
			fill := fillMask
			if c.Merged() {
				fill = fillMergedMask
			}
			fill(t.F, fd.attn, b, r.f.T, float32(c.Mask.Blocked))
		case models.RopeCos:
			fillRope(t.F, fd.attn, b, r.f.T, math.Cos)
		case models.RopeSin:
			fillRope(t.F, fd.attn, b, r.f.T, math.Sin)
		case models.WriteOneHot:
			fillOneHot(t.F, fd.attn, b, r.f.T)
		case models.WritePos:
			t.I[0] = int32(fd.attn.Slot(b.pos, b.pos))
		}
		r.in[fd.name] = t
	}
	return nil
}

// run executes the function on its inputs.
func (r *route) run(s *Session, lean bool) (map[string]*runtime.Tensor, error) {
	opts := r.all
	if lean {
		opts = r.lean
	}
	if s.Adjust != nil {
		s.Adjust(r.ch.decl, r.f, r.in)
		opts = opts[1:] // caches may hold anything now
	}
	if s.Tap != nil {
		opts = append(opts[:len(opts):len(opts)], runtime.WithTap(func(name string, t *runtime.Tensor) { s.Tap(r.ch.decl, r.f, name, t) }))
	}
	if s.Profile != nil {
		opts = append(opts[:len(opts):len(opts)], runtime.WithProfile(s.Profile))
	}
	out, err := r.inst.Run(r.entry, r.in, opts...)
	if err != nil {
		return nil, fmt.Errorf("engine: %s: %w", r.ch.decl.Name, err)
	}
	if s.Trace != nil {
		s.Trace(r.ch.decl, r.f, r.in, out)
	}
	return out, nil
}
