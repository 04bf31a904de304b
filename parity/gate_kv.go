package parity

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/runtime"
)

// kvGate speculates with wrong drafts and compares with a sequence that never
// did.
func kvGate() Gate {
	return Gate{
		ID:     "kv",
		Proves: "after prefill, and after verify of which only some drafts are accepted, the cache is that of serial decode, and what follows is too",
		Skip:   func(*Subject) string { return "" },
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			mode := s.sharp()
			starts := []int{3}
			if w := s.window(); w > 2 && w+8 <= s.Contract.Context {
				starts = append(starts, w-2)
			}
			limit := 2e-3
			if mode == runtime.Typed && s.Contract.Compute != "fp32" {
				limit = s.siteLimit(mode)
			}
			k := &speculation{s: s, mode: mode, tail: 6, limit: limit}
			for _, p := range starts {
				if p+1+2*max(1, largest(s.Contract, ViaVerify))+k.tail > s.Contract.Context {
					continue
				}
				if err := k.compare(ctx, p); err != nil {
					return nil, err
				}
				if k.problem != "" {
					break
				}
			}
			if k.caches == 0 {
				return &Result{Status: Skip, Reason: "the context is too short"}, nil
			}
			res.note("caches", float64(k.caches))
			if k.problem != "" {
				res.symptom("positions")
				res.fail("%s", k.problem)
				return res, nil
			}
			res.atMost("kv relative_l2", k.worst, limit)
			if !(k.worst <= limit) {
				res.Reason = fmt.Sprintf("%s: relative error %s, at most %s allowed", k.where, short(k.worst), short(limit))
			}
			tol := s.between(k.size, mode)
			res.atMost("max_abs_dlogit", k.maxAbs, tol.MaxAbs)
			if res.Status == Fail {
				res.Finding = k.at
				res.symptom(k.phase)
			}
			return res, nil
		},
	}
}

// speculation compares a session that speculates with one that does not.
type speculation struct {
	s    *Subject
	mode runtime.Mode
	tail int // tokens decoded after the speculation

	caches  int // compared
	worst   float64
	where   string
	at      *Finding // the first cache that differs
	limit   float64
	maxAbs  float64
	size    float64
	problem string
	phase   string // after what the first cache differed
}

func (k *speculation) finding(layer int, what string, d Deviation) *Finding {
	f := &Finding{Layer: layer, Position: d.Position, Mode: k.mode.String(), Site: fmt.Sprintf("layers.%d.%s", layer, what[:1]),
		Relative: d.Relative, Limit: Num(k.limit), MaxAbs: d.MaxAbs, Function: "commit",
		Hint: "look at what is committed, to which slots, and at what rejected drafts leave behind"}
	for _, ch := range k.s.Contract.Chunks {
		if layer >= ch.First && layer < ch.Last {
			f.Chunk = ch.Name
		}
	}
	return f
}

// compare does it from position p on.
func (k *speculation) compare(ctx context.Context, p int) error {
	s := k.s
	K := largest(s.Contract, ViaVerify)
	ids := s.extended(p + 1 + 2*max(K, 1) + k.tail)
	serial, err := s.Host(k.mode)
	if err != nil {
		return err
	}
	spec, err := s.Host(k.mode)
	if err != nil {
		return err
	}
	var rows []Position
	var m Metrics
	keep := func(row engine.Row) error {
		rows = append(rows, m.reduce(row, len(row.Logits) <= rowBudget/64))
		k.size = math.Max(k.size, math.Max(math.Abs(float64(row.TokenLogit)), maxAbs(row.Logits)))
		return nil
	}
	// Large bundles start both from the same prefill: serial decode of a whole
	// window would take minutes.
	start := 0
	if s.large && p > 16 {
		start = p
		for _, h := range []Host{serial, spec} {
			if err := feed(ctx, h, s.Contract, s.quickest(), ids[:p], func(engine.Row) error { return nil }); err != nil {
				return err
			}
		}
		rows = make([]Position, p)
	}
	advance := func(to int) error { return feed(ctx, serial, s.Contract, ViaDecode, ids[serial.Pos():to], keep) }
	check := func(what string) error {
		if err := advance(spec.Pos()); err != nil {
			return err
		}
		return k.cache(what, serial, spec)
	}

	if start == 0 {
		if _, err := spec.Prefill(ids[:p], nil); err != nil {
			return err
		}
		if err := check(fmt.Sprintf("after a prefill of %d tokens", p)); err != nil {
			return err
		}
	}
	// The first decode after prefill, before anything else touches the cache.
	if err := advance(p + 1); err != nil {
		return err
	}
	row, err := spec.Decode(ids[p])
	if err != nil {
		return err
	}
	k.row(row, &rows[p])
	if p++; K > 1 {
		m := max(1, K/2)
		block := append([]int32(nil), ids[p:p+m]...)
		for i := m; i < K; i++ { // drafts that turn out wrong
			block = append(block, int32((int(ids[p+i])+1+s.Contract.Model.Vocab/2)%s.Contract.Model.Vocab))
		}
		b, err := spec.Verify(block)
		if err != nil {
			return err
		}
		if err := b.Commit(m); err != nil {
			return err
		}
		if got := spec.Pos(); got != p+m && k.problem == "" {
			k.problem = fmt.Sprintf("verify of %d at position %d with %d accepted leaves the sequence at %d", K, p, m, got)
			return nil
		}
		if err := check(fmt.Sprintf("after verify of %d at position %d with %d accepted", K, p, m)); err != nil {
			return err
		}
		if b, err = spec.Verify(ids[p+m : p+m+K]); err != nil {
			return err
		}
		if err := b.Commit(K); err != nil {
			return err
		}
		if err := check(fmt.Sprintf("after verify of %d at position %d, all accepted", K, p+m)); err != nil {
			return err
		}
	}
	end := spec.Pos() + k.tail
	if err := advance(end); err != nil {
		return err
	}
	return feed(ctx, spec, s.Contract, ViaDecode, ids[spec.Pos():end], func(row engine.Row) error {
		k.row(row, &rows[row.Position])
		return nil
	})
}

// row compares a row of the speculating session with the serial one's.
func (k *speculation) row(row engine.Row, want *Position) {
	worst := 0.0
	switch {
	case row.Logits == nil:
		if row.Token == want.Argmax {
			worst = math.Abs(float64(row.TokenLogit) - float64(want.Top[0].Logit))
		}
	case want.Row != nil:
		worst = maxAbsDiff(want.Row, row.Logits)
	default:
		for _, t := range want.Top {
			worst = math.Max(worst, math.Abs(float64(t.Logit)-float64(row.Logits[t.ID])))
		}
	}
	if !(worst <= k.maxAbs) && k.maxAbs == k.maxAbs {
		k.maxAbs = worst
	}
}

// cache compares the caches of two sessions at the same position.
func (k *speculation) cache(what string, a, b Host) error {
	for layer := range k.s.Contract.Model.Layers {
		ak, av, ap, err := a.KV(layer)
		if err != nil {
			return err
		}
		bk, bv, bp, err := b.KV(layer)
		if err != nil {
			return err
		}
		if fmt.Sprint(ap) != fmt.Sprint(bp) {
			if k.problem == "" {
				k.problem = fmt.Sprintf("%s: layer %d caches positions %v, serial decode %v", what, layer, bp, ap)
			}
			continue
		}
		k.caches += 2
		for _, c := range []struct {
			name string
			a, b [][][]float32
		}{{"keys", ak, bk}, {"values", av, bv}} {
			for h := range c.a {
				want, got := Rows{}, Rows{}
				for i, p := range ap {
					want[p], got[p] = c.a[h][i], c.b[h][i]
				}
				d, ok := deviation("", want, got)
				if ok && !(float64(d.Relative) <= k.worst) && k.worst == k.worst {
					k.worst = float64(d.Relative)
					if k.at == nil && !(k.worst <= k.limit) {
						k.phase = strings.SplitN(what, " at ", 2)[0]
						k.at = k.finding(layer, c.name, d)
					}
					k.where = fmt.Sprintf("%s: %s of layer %d, head %d, position %d", what, c.name, layer, h, d.Position)
				}
			}
		}
	}
	return nil
}
