package parity

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mlpackage"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/parity/reference"
)

// contractGate compares contract, packages and config.json.
func contractGate() Gate {
	return Gate{
		ID:     "contract",
		Proves: "contract, packages and config.json agree on functions, shapes, layer kinds, window, RoPE and scales",
		Skip:   func(*Subject) string { return "" },
		Run: func(_ context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			// Opening compares every function of every package with the contract.
			for _, mode := range s.modes() {
				if _, err := s.Engine(mode); missing(err) {
					return nil, err
				} else if err != nil {
					res.fail("%v", err)
					return res, nil
				}
			}
			for _, ch := range s.Contract.Chunks {
				foreign, err := foreignLayer(filepath.Join(s.Dir, ch.File), ch)
				if err != nil {
					return nil, err
				}
				if foreign != "" {
					res.fail("%s", foreign)
				}
			}
			functions := 0
			for _, ch := range s.Contract.Chunks {
				functions += len(ch.Functions)
			}
			res.note("chunks", float64(len(s.Contract.Chunks)))
			res.note("functions", float64(functions))
			if s.Config == nil {
				res.fail("hf/config.json: %v", s.ConfigErr)
				return res, nil
			}
			for _, d := range disagreements(s.Contract, s.Config) {
				res.fail("%s", d)
			}
			if s.Reference != nil && fmt.Sprint(s.Reference.Config()) != fmt.Sprint(*s.Config) {
				res.fail("config.json of the checkpoint differs from the one in the bundle (another model's checkpoint?)")
			}
			return res, nil
		},
	}
}

// foreignLayer says which value of a chunk's package belongs to a layer that
// the contract does not place there; "" if none does.
func foreignLayer(path string, ch chunking.Chunk) (string, error) {
	p, err := mlpackage.Read(path, mlpackage.ReadOptions{})
	if err != nil {
		return "", err
	}
	defer p.Close()
	for _, name := range p.Program.Names() {
		for _, op := range p.Program.Functions[name].Body.Ops {
			m := layerValue.FindStringSubmatch(op.Name)
			if m == nil {
				continue
			}
			if l, err := strconv.Atoi(m[1]); err == nil && (l < ch.First || l >= ch.Last) {
				return fmt.Sprintf("%s holds layer %d (%s), the contract puts layers %d to %d there (chunks mixed up?)",
					ch.File, l, op.Name, ch.First, ch.Last-1), nil
			}
		}
	}
	return "", nil
}

// disagreements lists where the contract says something else than config.json.
func disagreements(c *chunking.Contract, want *reference.Config) []string {
	var out []string
	differ := func(what string, got, want any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			out = append(out, fmt.Sprintf("contract: %s is %v, config.json implies %v", what, got, want))
		}
	}
	m := c.Model
	differ("num_hidden_layers", m.Layers, want.Layers)
	differ("hidden_size", m.Hidden, want.Hidden)
	differ("vocab_size", m.Vocab, want.Vocab)
	differ("num_attention_heads", m.Heads, want.Heads)
	differ("num_key_value_heads", m.KVHeads, want.KVHeads)
	differ("head_dim", m.HeadDim, want.HeadDim)
	if c.Context > want.MaxPositions {
		out = append(out, fmt.Sprintf("contract: context %d exceeds max_position_embeddings %d", c.Context, want.MaxPositions))
	}
	for i, k := range m.Kinds {
		if i < len(want.Kinds) && (k == models.Sliding) != (want.Kinds[i] == reference.SlidingAttention) {
			out = append(out, fmt.Sprintf("contract: layer %d is %s, config.json implies %s", i, k, want.Kinds[i]))
		}
	}
	for _, kind := range []models.Kind{models.Full, models.Sliding} {
		if !slices.Contains(m.Kinds, kind) {
			continue
		}
		a, ok := c.Attention[kind]
		if !ok {
			out = append(out, fmt.Sprintf("contract: attention %s is missing", kind))
			continue
		}
		rope, window, heads, dim := want.FullRope, 0, want.FullKVHeads, want.FullHeadDim
		if kind == models.Sliding {
			rope, window, heads, dim = want.SlidingRope, want.Window, want.KVHeads, want.HeadDim
		}
		differ(fmt.Sprintf("window of %s layers", kind), a.Window, window)
		differ(fmt.Sprintf("num_key_value_heads of %s layers", kind), a.KVHeads, heads)
		differ(fmt.Sprintf("head_dim of %s layers", kind), a.HeadDim, dim)
		freq := rope.Frequencies(a.HeadDim)
		if i := ropeDiffers(a.InvFreq, freq); i >= 0 {
			out = append(out, fmt.Sprintf("contract: RoPE of %s layers: frequency %d is %g, config.json implies %g (theta %g)",
				kind, i, a.InvFreq[i], freq[i], rope.Theta))
		}
	}
	scale := float64(want.EmbedScale) * c.ResidualScale
	if math.Abs(c.Embedding.Scale-scale) > 1e-6*scale {
		out = append(out, fmt.Sprintf("contract: embedding scale is %g, config.json and the residual scale imply %g", c.Embedding.Scale, scale))
	}
	for i, source := range want.KVSource {
		if got := m.KVSource; i < len(got) && got[i] != source || got == nil && source != i {
			out = append(out, fmt.Sprintf("contract: layer %d does not read the keys and values of layer %d, as config.json implies", i, source))
		}
	}
	if p := c.PerLayer; p != nil {
		differ("the width of per-layer embeddings", p.Dim, want.PerLayer.Width)
	}
	if c.Mask.Blocked > -1e3 {
		out = append(out, fmt.Sprintf("contract: mask value %g does not block (want -1000 or less)", c.Mask.Blocked))
	}
	return out
}

// ropeDiffers is the first frequency that is not the one wanted, or -1.
func ropeDiffers(freq, want []float32) int {
	for i, f := range freq {
		if w := float64(want[i]); math.Abs(float64(f)-w) > 1e-5*w {
			return i
		}
	}
	return -1
}
