package parity

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/runtime"
)

// windowGate reads attention probabilities and counts the keys they cover.
func windowGate() Gate {
	return Gate{
		ID:     "window",
		Proves: "every query sees exactly the keys it should: itself and all before it, on sliding layers the last W",
		Skip:   func(*Subject) string { return "" },
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			w := &visibility{s: s}
			for _, via := range []Via{ViaDecode, ViaPrefill, ViaVerify} {
				if !s.has(via) {
					continue
				}
				if err := w.walk(ctx, via); err != nil {
					return nil, err
				}
			}
			if w.queries == 0 {
				return &Result{Status: Skip, Reason: "the graph has no attention probabilities of the expected name (layers_N_probs)"}, nil
			}
			if w.problem != "" {
				res.symptom(w.kind)
				res.fail("%s", w.problem)
				res.Finding = w.at
			}
			res.note("queries", float64(w.queries))
			res.note("window", float64(s.window()))
			return res, nil
		},
	}
}

// visibility checks which keys have weight.
type visibility struct {
	s       *Subject
	queries int
	problem string
	kind    string // of the problem, for the catalog
	at      *Finding
}

// walk watches blocks of tokens around the places where caches fill and wrap.
func (v *visibility) walk(ctx context.Context, via Via) error {
	s := v.s
	h, err := s.Host(s.sharp())
	if err != nil {
		return err
	}
	n := largest(s.Contract, via)
	starts := []int{0}
	if w := s.window(); w > 0 {
		starts = append(starts, w-2, 2*w-1)
	} else {
		starts = append(starts, 5)
	}
	if s.large { // the cache before the block is filled by prefill
		starts = starts[:2]
	}
	for _, p := range starts {
		count := max(4, min(n, 16))
		p = max(p, h.Pos())
		if p+count > s.Contract.Context {
			break
		}
		ids := s.extended(p + count)
		h.Watch(Watcher{})
		if p > h.Pos() {
			if _, err := h.Prefill(ids[h.Pos():p], nil); err != nil {
				return err
			}
		}
		var real int
		h.Watch(Watcher{Values: func(ch *chunking.Chunk, f *chunking.Function, name string, t *runtime.Tensor) {
			v.look(h.Pos(), real, ch, f, name, t)
		}})
		real = p + count
		if err := feed(ctx, h, s.Contract, via, ids[p:], func(engine.Row) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

var probsValue = regexp.MustCompile(`^layers_(\d+)_probs$`)

// look checks the weights of one layer: [...,T,S+T], or [...,heads,S+1] if
// the function takes one token. Queries at positions ≥ end are padding.
func (v *visibility) look(pos, end int, ch *chunking.Chunk, f *chunking.Function, name string, t *runtime.Tensor) {
	m := probsValue.FindStringSubmatch(name)
	if m == nil || v.problem != "" {
		return
	}
	layer, _ := strconv.Atoi(m[1])
	if layer >= len(v.s.Contract.Model.Kinds) {
		return
	}
	fail := func(q int, kind, format string, args ...any) {
		v.problem, v.kind = fmt.Sprintf(format, args...), kind
		v.at = &Finding{Chunk: ch.Name, Function: f.Name, Layer: layer, Site: fmt.Sprintf("layers.%d.probs", layer), Position: pos + q,
			Mode: v.s.sharp().String(), Hint: hints["attn_ctx"]}
	}
	a := v.s.Contract.Attention[v.s.Contract.Model.Kinds[layer]]
	width := a.Slots + f.T
	merged := v.s.Contract.KV == chunking.KVCoreMLLLM
	if merged && (a.Layout != chunking.Shift || f.Kind == ViaDecode) {
		width = a.Slots // the call's tokens are in the cache
	}
	if t.Shape[len(t.Shape)-1] != width {
		fail(0, "columns", "%s: layer %d has weights %v, want %d columns", f.Name, layer, t.Shape, width)
		return
	}
	for q := range f.T {
		if pos+q >= end {
			break
		}
		v.queries++
		var seen []int
		for col := range width {
			weight := false
			for row := q; row < len(t.F)/width; row += f.T {
				weight = weight || t.F[row*width+col] > 0
			}
			if !weight {
				continue
			}
			p := pos + col - a.Slots
			if merged {
				// The last column of a shifting cache is the call's last token.
				if p = col; a.Layout == chunking.Shift {
					p = pos + f.T - width + col
				}
				if p < 0 {
					fail(q, "empty slot", "%s: layer %d at position %d attends to column %d, which is empty", f.Name, layer, pos+q, col)
					return
				}
			} else if col < a.Slots {
				if p = held(a, col, pos); p < 0 {
					fail(q, "empty slot", "%s: layer %d at position %d attends to cache slot %d, which is empty", f.Name, layer, pos+q, col)
					return
				}
			}
			seen = append(seen, p)
		}
		slices.Sort(seen)
		first := 0
		if w := v.s.window(); v.s.sliding(layer) && w > 0 {
			first = max(0, pos+q-w+1)
		}
		if want := pos + q - first + 1; len(seen) != want || seen[0] != first || seen[len(seen)-1] != pos+q {
			kind := "other keys"
			switch {
			case len(seen) > 0 && seen[len(seen)-1] > pos+q:
				kind = "keys behind it"
			case len(seen) == want+1:
				kind = "one key more"
			case len(seen) == want-1:
				kind = "one key less"
			case len(seen) > want:
				kind = "more keys"
			}
			fail(q, kind, "%s: layer %d at position %d attends to %d keys, %s; want %d, from %d to itself",
				f.Name, layer, pos+q, len(seen), fromTo(seen), want, first)
			return
		}
	}
}

func fromTo(p []int) string {
	if len(p) == 0 {
		return "none"
	}
	return fmt.Sprintf("from %d to %d", p[0], p[len(p)-1])
}

// held is the position whose keys slot s holds when positions below pos are
// committed, or -1.
func held(a chunking.Attn, s, pos int) int {
	if a.Layout != chunking.Ring {
		if s < pos {
			return s
		}
		return -1
	}
	for p := pos - 1; p >= 0 && p >= pos-a.Slots; p-- {
		if p%a.Slots == s {
			return p
		}
	}
	return -1
}
