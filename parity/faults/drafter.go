package faults

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity"
)

// tagged reports whether the bundle returns hidden states with the given tag.
func tagged(norm string) func(*chunking.Contract) bool {
	return func(c *chunking.Contract) bool {
		last := c.Chunks[len(c.Chunks)-1]
		p := chunking.Find(last.Functions[0].Outputs, models.HiddenOut, "")
		return p != nil && p.Norm == norm
	}
}

// drafterFaults are mistakes of what drafters are given.
func drafterFaults() []Fault {
	gate := []string{"hidden"}
	site := []string{"hidden_states_out"}
	return []Fault{
		{
			Name: "hidden-pre-for-post", Family: Drafter, Gates: append([]string{"layers"}, gate...), Sites: append([]string{"final_norm"}, site...), Applies: tagged("post"),
			What:    "hidden states tagged post-norm are those before the final norm",
			program: hidden("", preNorm),
		},
		{
			Name: "hidden-pre-for-post-in-verify", Family: Drafter, Gates: gate, Sites: site, Applies: all(tagged("post"), verifies),
			What:    "hidden states are post-norm in decode and pre-norm in verify, under one name",
			Cause:   "hidden states tagged post-norm are those before the final norm",
			program: hidden("verify", preNorm),
		},
		{
			Name: "hidden-post-for-pre", Family: Drafter, Gates: append([]string{"layers"}, gate...), Sites: append([]string{"out"}, site...), Form: formMany, Applies: tagged("pre"),
			What: "hidden states tagged pre-norm have gone through the final norm",
			program: hidden("", func(f *function, _ *bundle) (*mil.Value, error) {
				o, err := f.op("final_norm")
				if err != nil {
					return nil, err
				}
				return o.Out(), nil
			}),
		},
		{
			Name: "hidden-penultimate", Family: Drafter, Gates: append([]string{"layers"}, gate...), Sites: append([]string{"out"}, site...), Form: formMany, Applies: tagged("pre"),
			What: "hidden states are those before the last layer (hidden_states[-2])",
			program: hidden("", func(f *function, b *bundle) (*mil.Value, error) {
				return f.stream(b.contract.Model.Layers - 1)
			}),
		},
		{
			Name: "hidden-unscaled", Family: Drafter, Gates: append([]string{"layers"}, gate...), Sites: append([]string{"out"}, site...), Form: formMany,
			Applies: all(tagged("pre"), func(c *chunking.Contract) bool { return c.ResidualScale != 1 }),
			What:    "hidden states have lost the scale of the residual stream that the contract tells of",
			program: hidden("", func(f *function, b *bundle) (*mil.Value, error) {
				v, err := preNorm(f, b)
				if err != nil {
					return nil, err
				}
				m := &mil.Op{Kind: "mul", Name: "hidden_unscaled_fault"}
				m.Set("x", v)
				m.Set("y", number(v, 1/b.contract.ResidualScale))
				m.Outputs = []*mil.Value{{Name: m.Name, Type: v.Type, Op: m}}
				f.Body.Ops = append(f.Body.Ops, m)
				return m.Out(), nil
			}),
		},
		{
			Name: "hidden-tag-wrong", Family: Drafter, Gates: append([]string{"layers"}, gate...), Sites: append([]string{"out"}, site...), Applies: tagged("post"),
			What: "the contract tags post-norm hidden states pre-norm", Cause: "hidden states tagged pre-norm have gone through the final norm",
			files: func(b *bundle) error {
				fs := b.contract.Chunks[b.last()].Functions
				for i := range fs {
					chunking.Find(fs[i].Outputs, models.HiddenOut, "").Norm = "pre"
				}
				return b.restamp(b.contract.Source.SHA256)
			},
		},
		{
			Name: "hidden-row-late", Family: Drafter, Gates: gate, Sites: site, Applies: tagged("post"),
			What: "the drafter gets the hidden states of the token before",
			host: func(e *engine.Engine) parity.Host { return &lateHidden{Host: parity.NewHost(e)} },
		},
		{
			Name: "verify-labels-shifted", Family: Drafter, Gates: verifyLogits, Sites: []string{"logits"}, Applies: verifies,
			What: "drafts are compared with the row of the token before", Cause: "the row of a token is taken for the row of the next",
			host: func(e *engine.Engine) parity.Host { return &lateRows{Host: parity.NewHost(e)} },
		},
		{
			Name: "verify-rows-reversed", Family: Drafter, Gates: verifyLogits, Says: "no named intermediate differs", Applies: verifies,
			What: "rows of a verify block come in reverse order",
			host: func(e *engine.Engine) parity.Host { return reversed{parity.NewHost(e)} },
		},
	}
}

// hidden makes hidden_states_out of the functions whose name begins with
// prefix another value.
func hidden(prefix string, value func(*function, *bundle) (*mil.Value, error)) func(*bundle) error {
	return func(b *bundle) error {
		return b.edit(b.last(), func(f *function) error {
			if len(f.Name) < len(prefix) || f.Name[:len(prefix)] != prefix {
				return nil
			}
			for i, out := range f.Body.Outputs {
				if out.Name != "hidden_states_out" {
					continue
				}
				v, err := value(f, b)
				if err != nil {
					return err
				}
				if out.Op != nil { // the name goes to a copy of the other value
					for _, x := range out.Op.Outputs {
						if x == out {
							x.Name += "_right"
						}
					}
					if len(out.Op.Outputs) == 1 {
						out.Op.Name = out.Name
					}
				}
				o := &mil.Op{Kind: "identity", Name: "hidden_states_out"}
				o.Set("x", v)
				o.Outputs = []*mil.Value{{Name: o.Name, Type: out.Type, Op: o}}
				f.Body.Ops = append(f.Body.Ops, o)
				f.Body.Outputs[i] = o.Out()
				return nil
			}
			return fmt.Errorf("there is no hidden_states_out")
		})
	}
}

// preNorm is what the final norm reads.
func preNorm(f *function, _ *bundle) (*mil.Value, error) {
	o, err := f.op("final_norm_neg")
	if err != nil {
		return nil, err
	}
	return o.In("x"), nil
}

// stream is what a layer reads.
func (f *function) stream(layer int) (*mil.Value, error) {
	o, err := f.op(name(layer, "attn_norm_neg"))
	if err != nil {
		return nil, err
	}
	return o.In("x"), nil
}

// lateHidden returns hidden states one row late.
type lateHidden struct {
	parity.Host
	last []float32
}

func (h *lateHidden) late(r engine.Row) engine.Row {
	was := h.last
	h.last = slices.Clone(r.Hidden)
	if was != nil {
		r.Hidden = was
	}
	return r
}

func (h *lateHidden) Decode(id int32) (engine.Row, error) {
	r, err := h.Host.Decode(id)
	return h.late(r), err
}

func (h *lateHidden) Prefill(ids []int32, each func(engine.Row) error) (engine.Row, error) {
	if each == nil {
		return h.Host.Prefill(ids, nil)
	}
	return h.Host.Prefill(ids, func(r engine.Row) error { return each(h.late(r)) })
}

// lateRows returns the rows of verify one token late.
type lateRows struct{ parity.Host }

type changedRows struct {
	parity.Block
	rows []engine.Row
}

func (b changedRows) Rows() []engine.Row { return b.rows }

func (h *lateRows) Verify(ids []int32) (parity.Block, error) {
	b, err := h.Host.Verify(ids)
	if err != nil {
		return nil, err
	}
	rows := b.Rows()
	for t := len(rows) - 1; t > 0; t-- {
		p := rows[t].Position
		rows[t] = rows[t-1]
		rows[t].Position = p
	}
	return changedRows{b, rows}, nil
}

// reversed turns a verify block around.
type reversed struct{ parity.Host }

func (h reversed) Verify(ids []int32) (parity.Block, error) {
	b, err := h.Host.Verify(ids)
	if err != nil {
		return nil, err
	}
	rows := b.Rows()
	n := len(rows)
	out := make([]engine.Row, n)
	for t := range rows {
		out[t] = rows[n-1-t]
		out[t].Position = rows[t].Position
	}
	return changedRows{b, out}, nil
}
