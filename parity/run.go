package parity

import (
	"context"
	"fmt"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/runtime"
)

// Via is the kind of function that tokens are fed through.
type Via = chunking.FunctionKind

// The ways to feed tokens.
const (
	ViaDecode  = chunking.Decode
	ViaPrefill = chunking.Prefill
	ViaVerify  = chunking.Verify
)

// feed runs ids through functions of one kind and commits them. each gets the
// row of every token in order.
func feed(ctx context.Context, h Host, c *chunking.Contract, via Via, ids []int32, each func(engine.Row) error) error {
	for len(ids) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := 1
		switch via {
		case ViaDecode:
			row, err := h.Decode(ids[0])
			if err != nil {
				return err
			}
			if err := each(row); err != nil {
				return err
			}
		case ViaPrefill:
			n = min(len(ids), largest(c, ViaPrefill))
			if _, err := h.Prefill(ids[:n], each); err != nil {
				return err
			}
		case ViaVerify:
			n = min(len(ids), largest(c, ViaVerify))
			b, err := h.Verify(ids[:n])
			if err != nil {
				return err
			}
			for _, row := range b.Rows() {
				if err := each(row); err != nil {
					return err
				}
			}
			if err := b.Commit(n); err != nil {
				return err
			}
		default:
			return fmt.Errorf("parity: via %q: want decode, prefill or verify", via)
		}
		ids = ids[n:]
	}
	return nil
}

// largest is the number of tokens that the largest function of a kind takes;
// 0 if there is none.
func largest(c *chunking.Contract, kind Via) int {
	n := 0
	for _, f := range c.Chunks[0].Functions {
		if f.Kind == kind {
			n = max(n, f.T)
		}
	}
	return n
}

// hasLogits reports whether the bundle returns logits.
func hasLogits(c *chunking.Contract) bool { return returns(c, models.Logits) }

// hasToken reports whether the bundle returns a token of its own.
func hasToken(c *chunking.Contract) bool { return returns(c, models.TokenID) }

func returns(c *chunking.Contract, r models.Role) bool {
	last := c.Chunks[len(c.Chunks)-1]
	return chunking.Find(last.Functions[0].Outputs, r, "") != nil
}

// run is one pass over a recording, compared as it went.
type run struct {
	Metrics
	tol       Tolerance
	positions []Position
	first     int // first position that is beyond tolerance, or -1
	worst     int // the position to look at: where logits are farthest off, else first
	off, late int // rows that are off, and of these those that are the token before's
}

type runKey struct {
	rec  *Recording
	mode runtime.Mode
	via  Via
}

// run feeds a recording's tokens through one kind of function, once.
func (s *Subject) run(ctx context.Context, k runKey) (*run, error) {
	if r, ok := s.runs[k]; ok {
		return r, nil
	}
	h, err := s.Host(k.mode)
	if err != nil {
		return nil, err
	}
	r := &run{tol: s.tolerance(k.rec, k.mode), first: -1}
	ids := k.rec.IDs[:min(len(k.rec.IDs), s.Contract.Context)]
	err = feed(ctx, h, s.Contract, k.via, ids, func(row engine.Row) error {
		s.progress(fmt.Sprintf("%s, %s", k.via, k.mode), len(r.positions)+1, len(ids))
		return r.take(k.rec, row)
	})
	if err != nil {
		return nil, fmt.Errorf("parity: %s in %s mode: %w", k.via, k.mode, err)
	}
	r.finish()
	if r.worst = max(r.first, 0); r.MaxAbs > 0 {
		r.worst = max(r.worst, r.MaxAbsAt)
	}
	s.runs[k] = r
	return r, nil
}

// take compares one row.
func (r *run) take(rec *Recording, row engine.Row) error {
	t := len(r.positions)
	if t >= len(rec.Positions) {
		return fmt.Errorf("the host returned more rows than it was given tokens")
	}
	if row.Position != t && r.Problem == "" {
		r.Problem = fmt.Sprintf("the row of token %d claims position %d", t, row.Position)
	}
	p := r.reduce(row, rec.keeps(t))
	flips, worst := len(r.Flips), r.MaxAbs
	r.add(rec, t, row.Logits, &p, r.tol.Margin)
	bad := len(r.Flips) > flips && r.Flips[flips].Counts || r.MaxAbs != worst && !(r.MaxAbs <= r.tol.MaxAbs)
	if r.first < 0 && bad {
		r.first = t
	}
	if before := max(t-1, 0); row.Logits != nil && rec.keeps(t) && maxAbsDiff(rec.Positions[t].Row, row.Logits) > r.tol.MaxAbs {
		r.off++
		if t > 0 && rec.keeps(before) && maxAbsDiff(rec.Positions[before].Row, row.Logits) <= r.tol.MaxAbs {
			r.late++
		}
	}
	r.positions = append(r.positions, p)
	return nil
}

// reduce keeps what later comparisons need, and checks what can be checked
// on the spot.
func (m *Metrics) reduce(row engine.Row, keep bool) Position {
	if len(row.TopIDs) > 0 && row.TopIDs[0] != row.Token && m.TokenHead == "" {
		m.TokenHead = fmt.Sprintf("after position %d token_id is %d, the first of top_ids is %d", row.Position, row.Token, row.TopIDs[0])
		m.tokenHeadAt = row.Position
		m.wrap(row.Position, row.TopIDs[0], row.Token)
	}
	if row.Logits == nil {
		if v := row.TokenLogit; v-v != 0 && m.Problem == "" {
			m.Problem = fmt.Sprintf("token_logit after position %d is %v", row.Position, v)
		}
		p := Position{Argmax: row.Token, LSE: nan, margin: nan}
		p.Top = []Scored{{row.Token, row.TokenLogit}}
		for i := 1; i < min(len(row.TopIDs), len(row.TopLogits)); i++ {
			p.Top = append(p.Top, Scored{row.TopIDs[i], row.TopLogits[i]})
		}
		return p
	}
	if i := finite(row.Logits); i >= 0 && m.Problem == "" {
		m.Problem = fmt.Sprintf("logit %d after position %d is %v", i, row.Position, row.Logits[i])
	}
	p := positionOf(row.Logits, keep)
	m.TokenHeads++
	m.wrap(row.Position, row.Token, p.Top[0].ID)
	if best := p.Top[0]; (row.Token != best.ID || row.TokenLogit != best.Logit) && m.TokenHead == "" {
		m.TokenHead = fmt.Sprintf("after position %d token_id is %d (%s), the largest logit is %d (%s)",
			row.Position, row.Token, short(float64(row.TokenLogit)), best.ID, short(float64(best.Logit)))
		m.tokenHeadAt = row.Position
	}
	return p
}
