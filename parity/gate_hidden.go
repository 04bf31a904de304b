package parity

import (
	"context"
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity/reference"
)

// hiddenPort is the last chunk's hidden_states_out, or nil.
func hiddenPort(c *chunking.Contract) *chunking.Port {
	last := c.Chunks[len(c.Chunks)-1]
	return chunking.Find(last.Functions[0].Outputs, models.HiddenOut, "")
}

// taggedGate holds the hidden states that drafters read against their tag.
func taggedGate() Gate {
	return Gate{
		ID:     "hidden",
		Proves: "the hidden states that a drafter reads are what their tag says, before or after the final norm, of the token's own row, in every function",
		Skip: func(s *Subject) string {
			switch {
			case hiddenPort(s.Contract) == nil:
				return "the bundle returns no hidden states"
			case s.Reference == nil && s.longest().Hidden["final_norm"] == nil:
				return "the recording has no hidden states and no checkpoint was given"
			}
			return ""
		},
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			last := &s.Contract.Chunks[len(s.Contract.Chunks)-1]
			rec, mode := s.longest(), s.sharp()
			n := min(len(rec.IDs), s.Contract.Context, 64)
			want, err := s.streams(ctx, rec, n)
			if err != nil {
				return nil, err
			}
			limit := s.siteLimit(mode)
			for i := range last.Functions {
				f := &last.Functions[i]
				port := chunking.Find(f.Outputs, models.HiddenOut, "")
				if port == nil {
					res.symptom("missing")
					res.fail("%s returns no hidden states, other functions do", f.Name)
					continue
				}
				if f.T != largest(s.Contract, f.Kind) {
					continue
				}
				h, err := s.Host(mode)
				if err != nil {
					return nil, err
				}
				got := Rows{}
				err = feed(ctx, h, s.Contract, f.Kind, rec.IDs[:n], func(row engine.Row) error {
					got[row.Position] = slices.Clone(row.Hidden)
					return nil
				})
				if err != nil {
					return nil, err
				}
				tag, site := "pre-norm", fmt.Sprintf("layers.%d.out", s.Contract.Model.Layers-1)
				if port.Norm == "post" {
					tag, site = "post-norm", "final_norm"
				}
				d, ok := deviation(site, want[site], s.unscaled(got, site))
				if !ok {
					return &Result{Status: Skip, Reason: "nothing to compare the hidden states with"}, nil
				}
				res.note(f.Name+" relative_l2", float64(d.Relative))
				if float64(d.Relative) <= limit {
					continue
				}
				is := s.recognise(want, got, site, limit)
				res.symptom(is)
				res.fail("%s: %s is tagged %s, but at position %d it is off by %s of its size, %s allowed (%s)",
					f.Name, port.Name, tag, d.Position, short(float64(d.Relative)), short(limit), is)
				if res.Finding == nil {
					res.Finding = &Finding{Chunk: last.Name, Function: f.Name, Layer: s.Contract.Model.Layers, Site: "hidden_states_out", Mode: mode.String(),
						Position: firstBeyond(want[site], s.unscaled(got, site), limit), Relative: d.Relative, Limit: Num(limit), MaxAbs: d.MaxAbs}
				}
			}
			res.note("limit", limit)
			return res, nil
		},
	}
}

// streams are the reference's residual streams after every layer, and the
// final norm's output.
func (s *Subject) streams(ctx context.Context, rec *Recording, n int) (siteRows, error) {
	out := siteRows{}
	for name, rows := range rec.Hidden {
		out[name] = rows
	}
	if s.Reference == nil {
		return out, nil
	}
	r, err := s.Reference.Forward(ctx, rec.IDs[:n], reference.Options{Product: product})
	if err != nil {
		return nil, err
	}
	rows := func(m *reference.Matrix) Rows {
		x := Rows{}
		for p := range n {
			x[p] = m.Row(p)
		}
		return x
	}
	for i, m := range r.Hidden {
		name := "embed"
		if i > 0 {
			name = fmt.Sprintf("layers.%d.out", i-1)
		}
		out[name] = rows(m)
	}
	out["final_norm"] = rows(r.Norm)
	return out, nil
}

// unscaled undoes the residual scale of a site's rows.
func (s *Subject) unscaled(rows Rows, site string) Rows {
	scale := scaleOf(s.Contract, s.sandwich(), site)
	if scale == 1 {
		return rows
	}
	out := Rows{}
	for p, r := range rows {
		x := make([]float32, len(r))
		for i, v := range r {
			x[i] = v / scale
		}
		out[p] = x
	}
	return out
}

// recognise says what hidden states are that are not what they should be.
func (s *Subject) recognise(want siteRows, got Rows, site string, limit float64) string {
	L := s.Contract.Model.Layers
	near := func(name string, rows Rows) bool {
		d, ok := deviation(name, want[name], rows)
		return ok && float64(d.Relative) <= limit
	}
	pre := fmt.Sprintf("layers.%d.out", L-1)
	for _, x := range []struct{ name, is string }{
		{"final_norm", "it is the output of the final norm"}, {pre, "it is the stream before the final norm"},
		{fmt.Sprintf("layers.%d.out", L-2), "it is the stream before the last layer"}, {"embed", "it is the embedding"},
	} {
		if x.name != site && near(x.name, s.unscaled(got, x.name)) {
			return x.is
		}
	}
	for _, by := range []int{1, -1} {
		moved := Rows{}
		for p, r := range s.unscaled(got, site) {
			if p-by >= 0 && p > 0 {
				moved[p-by] = r
			}
		}
		if near(site, moved) {
			if by == 1 {
				return "it belongs to the token before"
			}
			return "it belongs to the token behind"
		}
	}
	if near(site, got) {
		return "the scale of the residual stream is undone already"
	}
	if f, ok := commonFactor(want[site], s.unscaled(got, site), limit); ok {
		return "it is scaled by " + s.factorName(f)
	}
	return "it is none of the streams"
}
