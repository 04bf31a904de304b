package parity

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/runtime"
)

// fp16Max is the largest finite fp16 number.
const fp16Max = 65504

// finiteGate looks at every intermediate of every function.
func finiteGate() Gate {
	return Gate{
		ID:     "finite",
		Proves: "no intermediate of any function is NaN or infinite; says which comes closest to the end of fp16",
		Skip:   func(*Subject) string { return "" },
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			mode := s.modes()[len(s.modes())-1]
			w := &extremes{context: s.Contract.Context}
			for _, via := range []Via{ViaPrefill, ViaDecode, ViaVerify} {
				if !s.has(via) {
					continue
				}
				h, err := s.Host(mode)
				if err != nil {
					return nil, err
				}
				// The sequence through the quickest function, a few blocks through the others.
				n := 2 * largest(s.Contract, via)
				if via == s.quickest() {
					if n = len(s.longest().IDs); s.large {
						n = min(n, 256) // under a tap nothing is fused
					}
				}
				ids := s.longest().IDs
				ids = ids[:min(n, len(ids), s.Contract.Context)]
				h.Watch(Watcher{Values: func(ch *chunking.Chunk, f *chunking.Function, name string, t *runtime.Tensor) {
					w.look(h.Pos(), ch, f, name, t)
				}})
				if err := feed(ctx, h, s.Contract, via, ids, func(engine.Row) error { return nil }); err != nil {
					return nil, err
				}
			}
			if w.bad != "" {
				res.fail("%s", w.bad)
				res.Finding = w.badAt
			}
			res.note("values", float64(w.values))
			res.note("largest", w.peak)
			res.note("headroom", fp16Max/w.peak)
			if w.at != "" && w.bad == "" {
				res.Reason = join(res.Reason, "closest to the end of fp16: "+w.at)
			}
			return res, nil
		},
	}
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// extremes remembers the largest magnitude and the first bad value.
type extremes struct {
	context int
	values  int
	peak    float64
	at, bad string
	badAt   *Finding
}

func (e *extremes) look(pos int, ch *chunking.Chunk, f *chunking.Function, name string, t *runtime.Tensor) {
	if t.F == nil {
		return
	}
	e.values++
	if i := finite(t.F); i >= 0 {
		if e.bad != "" {
			return
		}
		e.bad = fmt.Sprintf("%s %s: %s is %v in the call at position %d", ch.Name, f.Name, name, t.F[i], pos)
		e.badAt = &Finding{Chunk: ch.Name, Function: f.Name, Layer: layerOf(name), Site: name, Position: pos,
			Hint: "look at the scale of the residual stream and at what is squared or summed in fp16"}
		if site, ok := siteOf(ch, f, name); ok {
			e.badAt.Site = site
		}
		return
	}
	// Masked scores are as large as the mask by design.
	if strings.Contains(name, "scores_masked") {
		return
	}
	if p := maxAbs(t.F); p > e.peak {
		e.peak = p
		e.at = fmt.Sprintf("%s %s: %s reaches %s, %s of 65504", ch.Name, f.Name, name, short(p), percent(p/fp16Max))
	}
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*math.Min(x, 99.99)) }
