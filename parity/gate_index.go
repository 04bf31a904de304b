package parity

import (
	"context"
	"fmt"
	"math"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
)

// indexGate follows token ids through the graph.
func indexGate() Gate {
	return Gate{
		ID:     "index",
		Proves: "no token id passes through a type too narrow for the vocabulary: 16 bits wrap at 65,536",
		Skip:   func(*Subject) string { return "" },
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			pkgs, err := s.packages()
			if err != nil {
				return nil, err
			}
			vocab := s.Contract.Model.Vocab
			followed := 0
			for i, p := range pkgs {
				ch := &s.Contract.Chunks[i]
				for j := range ch.Functions {
					decl := &ch.Functions[j]
					f, ok := p.Program.Functions[decl.Name]
					if !ok {
						if f, ok = p.Program.Functions["main"]; !ok {
							continue
						}
					}
					for _, v := range tokenValues(decl, f) {
						followed++
						t, ok := v.Tensor()
						if !ok || !t.DType.IsInt() || holds(t.DType) >= float64(vocab) {
							continue
						}
						res.symptom(fmt.Sprintf("%d bits", t.DType.Bits()))
						res.fail("%s %s: %s is %v, which holds ids up to %.0f; the vocabulary has %d", ch.Name, decl.Name, v.Name, t.DType, holds(t.DType)-1, vocab)
						if res.Finding == nil {
							res.Finding = &Finding{Chunk: ch.Name, Function: decl.Name, Layer: s.Contract.Model.Layers, Site: v.Name, Position: -1}
						}
					}
				}
			}
			res.note("vocabulary", float64(vocab))
			res.note("values", float64(followed))
			if vocab <= 1<<16 || !hasToken(s.Contract) || !hasLogits(s.Contract) {
				return res, nil
			}
			// Beyond 16 bits, look at ids that need them.
			r, err := s.run(ctx, runKey{s.longest(), s.modes()[len(s.modes())-1], s.quickest()})
			if err != nil {
				return nil, err
			}
			high := 0
			for i := range r.positions {
				if r.positions[i].Argmax > math.MaxUint16 {
					high++
				}
			}
			res.note("tokens above 65,535", float64(high))
			if r.Wrapped != "" {
				res.symptom("wrapped")
				res.fail("%s", r.Wrapped)
			}
			if r.Wrapped != "" && res.Finding == nil {
				res.Finding = &Finding{Chunk: s.Contract.Chunks[len(s.Contract.Chunks)-1].Name, Function: string(s.quickest()), Layer: s.Contract.Model.Layers, Site: "token_id", Position: r.wrappedAt}
			}
			return res, nil
		},
	}
}

// holds is how many different ids a type has room for.
func holds(d mil.DType) float64 {
	bits := d.Bits()
	if d.IsSigned() {
		bits--
	}
	return math.Exp2(float64(bits))
}

// tokenValues are the values that token ids pass through: those between the
// ids' inputs and the gather they feed, and those between reductions to
// indices and the outputs.
func tokenValues(decl *chunking.Function, f *mil.Function) []*mil.Value {
	var out []*mil.Value
	isIndex := func(v *mil.Value) bool {
		t, ok := v.Tensor()
		return ok && t.DType.IsInt()
	}
	carries := map[*mil.Value]bool{}
	for _, p := range decl.Inputs {
		if v := f.Input(p.Name); p.Role == models.InputIDs && v != nil {
			carries[v] = true
			out = append(out, v)
		}
	}
	for _, o := range f.Body.Ops {
		from := false
		switch o.Kind {
		case "reduce_argmax", "reduce_argmin", "topk", "argsort", "non_zero":
			from = true
		default:
			for _, a := range o.Args {
				for _, v := range a.Values {
					from = from || carries[v]
				}
			}
		}
		if !from {
			continue
		}
		for _, v := range o.Outputs {
			if isIndex(v) {
				carries[v] = true
				out = append(out, v)
			}
		}
	}
	return out
}

// wrap notes a token that differs from the largest logit by a multiple of
// 65,536.
func (m *Metrics) wrap(position int, got, want int32) {
	if d := got - want; m.Wrapped == "" && d != 0 && d%(1<<16) == 0 {
		m.Wrapped = fmt.Sprintf("after position %d the graph says token %d, the largest logit is that of %d: off by a multiple of 65,536", position, got, want)
		m.wrappedAt = position
	}
}
