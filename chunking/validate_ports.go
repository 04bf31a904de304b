package chunking

import (
	"fmt"
	"slices"

	"github.com/smelt-go/smelt/models"
)

// asDesigned compares the ports of a function with those that Design gives a
// function of its kind in a bundle of these numbers. Names and order are free;
// a role that nobody fills, or a shape that the host would fill differently,
// is a contradiction.
func (c *Contract) asDesigned(ch *Chunk, f *Function) error {
	want := c.function(c.config(f), *ch, FunctionSpec{Kind: f.Kind, T: f.T}, headOf(f))
	for _, side := range []struct {
		what      string
		got, want []Port
	}{{"input", f.Inputs, want.Inputs}, {"output", f.Outputs, want.Outputs}, {"state", f.States, want.States}} {
		for _, p := range side.got {
			q := Find(side.want, p.Role, p.Kind)
			if q == nil || q.Kind != p.Kind {
				return fmt.Errorf("%s %s: role %s%s is not one of such a function in a bundle with %s caches", side.what, p.Name, p.Role, ofKind(p.Kind), c.KV)
			}
			if p.DType != q.DType || !slices.Equal(p.Shape, q.Shape) || !slices.Equal(p.Layers, q.Layers) || p.Norm != q.Norm {
				return fmt.Errorf("%s %s is %s, elsewhere the contract implies %s", side.what, p.Name, describe(p), describe(*q))
			}
		}
		for _, q := range side.want {
			if n := count(side.got, q); n != 1 {
				return fmt.Errorf("%d %ss have the role %s%s, want 1", n, side.what, q.Role, ofKind(q.Kind))
			}
		}
	}
	return nil
}

// config is as much of the model's configuration as function needs.
func (c *Contract) config(f *Function) *models.Config {
	m := c.Model
	cfg := &models.Config{Layers: m.Layers, Hidden: m.Hidden, Vocab: m.Vocab, Kinds: m.Kinds, KVSource: m.KVSource}
	for _, ps := range [][]Port{f.Inputs, f.Outputs} {
		for _, r := range []models.Role{models.PerLayerIn, models.PerLayerOut, models.PerLayerRaw} {
			if p := Find(ps, r, ""); p != nil {
				cfg.PerLayer = p.Shape[len(p.Shape)-1] / m.Layers
			}
		}
	}
	if c.PerLayer != nil {
		cfg.PerLayer = c.PerLayer.Dim
	}
	return cfg
}

// headOf tells the head that the outputs stand for.
func headOf(f *Function) Head {
	h := Head{
		Token:  Find(f.Outputs, models.TokenID, "") != nil || Find(f.Outputs, models.TokenLogit, "") != nil,
		Logits: Find(f.Outputs, models.Logits, "") != nil,
	}
	for _, r := range []models.Role{models.TopIDs, models.TopLogits} {
		if p := Find(f.Outputs, r, ""); p != nil {
			h.TopK = p.Shape[len(p.Shape)-1]
		}
	}
	if p := Find(f.Outputs, models.HiddenOut, ""); p != nil {
		if h.Hidden = p.Norm; h.Hidden == "" {
			h.Hidden = "pre"
		}
	}
	return h
}

func count(ports []Port, q Port) int {
	n := 0
	for _, p := range ports {
		if p.Role == q.Role && p.Kind == q.Kind {
			n++
		}
	}
	return n
}

func ofKind(k models.Kind) string {
	if k == "" {
		return ""
	}
	return fmt.Sprintf(" of %s attention", k)
}

func describe(p Port) string {
	s := fmt.Sprintf("%s %v", p.DType, p.Shape)
	if p.Layers != nil {
		s += fmt.Sprintf(" of layers %v", p.Layers)
	}
	if p.Norm != "" {
		s += fmt.Sprintf(", %s-norm", p.Norm)
	}
	return s
}
