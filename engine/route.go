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

	hidden string // output that feeds the next chunk, or empty
	head   head
	fresh  []fresh

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
	t    *runtime.Tensor // nil for hidden_states of the chunk before
}

// head names the outputs that make a Row; empty where there is none.
type head struct {
	logits, token, tokenLogit, hidden string
	vocab, width                      int
}

// fresh is an output of new keys or values, [layers,heads,T,D].
type fresh struct {
	name                string
	role                models.Role
	kind                models.Kind
	attn                chunking.Attn
	layers, heads, T, d int
}

// routes returns the way of function f through all chunks.
func (s *Session) routes(f *chunking.Function) []*route {
	if r, ok := s.paths[f]; ok {
		return r
	}
	var path []*route
	for i := range s.e.chunks {
		path = append(path, s.newRoute(i, f.Name))
	}
	s.paths[f] = path
	return path
}

func (s *Session) newRoute(i int, name string) *route {
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
		case p.Role == models.HiddenIn && i > 0:
		default:
			fd.t = newTensor(p)
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
		case models.HiddenOut:
			r.head.hidden, r.head.width = p.Name, p.Shape[2]
			if !last {
				r.hidden = p.Name
				keep = append(keep, p.Name)
			}
		case models.Logits:
			r.head.logits, r.head.vocab = p.Name, p.Shape[2]
		case models.TokenID:
			r.head.token = p.Name
		case models.TokenLogit:
			r.head.tokenLogit = p.Name
		}
	}
	r.all = []runtime.RunOption{runtime.Rounded(caches...)}
	r.lean = append(r.all[:1:1], runtime.Outputs(keep...))
	return r
}

// fill sets the inputs of a call: tokens ids at the positions of b, after a
// chunk that returned hidden (nil: this is the first).
func (r *route) fill(s *Session, ids []int32, b block, hidden *runtime.Tensor) error {
	for k := range r.feeds {
		fd := &r.feeds[k]
		t := fd.t
		switch fd.role {
		case models.InputIDs:
			clear(t.I[copy(t.I, ids):])
		case models.HiddenIn:
			if t == nil {
				t = hidden
			} else if err := s.embed(t, ids); err != nil {
				return err
			}
		case models.Mask:
			fillMask(t.F, fd.attn, b, r.f.T, float32(s.e.contract.Mask.Blocked))
		case models.RopeCos:
			fillRope(t.F, fd.attn, b, r.f.T, math.Cos)
		case models.RopeSin:
			fillRope(t.F, fd.attn, b, r.f.T, math.Sin)
		case models.WriteOneHot:
			fillOneHot(t.F, fd.attn, b, r.f.T)
		case models.WritePos:
			t.I[0] = int32(slotOf(fd.attn, b.pos))
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
