package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/lint"
	"github.com/smelt-go/smelt/models"
)

// advise says on standard error what others have measured of what a
// conversion asks for.
func (s *session) advise(list []lint.Advice) {
	for _, w := range list {
		fmt.Fprintf(s.stderr, "%s: warning: %s\n", s.name, w)
	}
}

// printAdvised prints a report as JSON, with the warnings in it.
func (s *session) printAdvised(report any, list []lint.Advice) error {
	data, err := json.Marshal(report)
	if err != nil {
		return err
	}
	warnings, err := json.Marshal(list)
	if err != nil {
		return err
	}
	all := fmt.Appendf(data[:len(data)-1:len(data)-1], ",\"warnings\":%s}", warnings)
	return s.printJSON(json.RawMessage(all))
}

// planned is what the contract of a plan would say, as far as the ledger asks.
func planned(p *conversion.PlanReport) *chunking.Contract {
	c := &chunking.Contract{KV: p.KV, Model: chunking.ModelInfo{Architecture: p.Architecture, Layers: p.Layers}}
	own := map[int]bool{}
	for _, x := range p.Chunks {
		ch := chunking.Chunk{Name: x.Name, First: x.Layers[0], Last: x.Layers[1]}
		for _, f := range x.Functions {
			kind := chunking.Decode
			for _, k := range []chunking.FunctionKind{chunking.Prefill, chunking.Verify} {
				if len(f.Name) > len(k) && f.Name[:len(k)] == string(k) {
					kind = k
				}
			}
			ch.Functions = append(ch.Functions, chunking.Function{Name: f.Name, Kind: kind, T: f.Tokens, Inputs: f.Inputs, Outputs: f.Outputs, States: f.States})
			for _, q := range slices.Concat(f.Inputs, f.States) {
				switch q.Role {
				case models.KeyCache, models.KVState:
					for _, l := range q.Layers {
						own[l] = true
					}
				case models.PerLayerRaw, models.PerLayerIn:
					c.PerLayer = &chunking.PerLayer{}
				}
			}
			if q := chunking.Find(f.Outputs, models.Logits, ""); q != nil {
				c.Model.Vocab = q.Shape[len(q.Shape)-1]
			}
		}
		c.Chunks = append(c.Chunks, ch)
	}
	last := 0
	for l := range p.Layers {
		if own[l] {
			last = l
		}
		c.Model.KVSource = append(c.Model.KVSource, last)
	}
	return c
}
