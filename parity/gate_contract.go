package parity

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/mil"
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
					s.broken = true
					res.symptom(openSymptom(err))
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
					res.symptom("foreign layer")
					res.fail("%s", foreign)
					if res.Finding == nil {
						res.Finding = &Finding{Chunk: ch.Name, Layer: ch.First, Position: -1}
					}
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
				res.symptom(d.symptom)
				res.fail("%s", d.text)
			}
			if err := s.epsilons(res); err != nil {
				return nil, err
			}
			if s.Original != nil && fmt.Sprint(s.Original.Config()) != fmt.Sprint(*s.Config) {
				res.symptom("other config.json")
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

// openSymptom says in a few words why a bundle cannot be opened.
func openSymptom(err error) string {
	text := err.Error()
	for _, x := range []struct{ part, symptom string }{
		{"was converted from", "other stamp"}, {"disagrees with", "ports differ"}, {chunking.ManifestFile, "manifest"}, {chunking.ContractFile, "contract"},
	} {
		if strings.Contains(text, x.part) {
			return x.symptom
		}
	}
	return "unreadable"
}

// disagreement is one number of the contract that config.json does not imply.
type disagreement struct{ symptom, text string }

// disagreements lists where the contract says something else than config.json.
func disagreements(c *chunking.Contract, want *reference.Config) []disagreement {
	var out []disagreement
	say := func(symptom, format string, args ...any) {
		out = append(out, disagreement{symptom, "contract: " + fmt.Sprintf(format, args...)})
	}
	differ := func(what string, got, want any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			say(what, "%s is %v, config.json implies %v", what, got, want)
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
		say("context", "context %d exceeds max_position_embeddings %d", c.Context, want.MaxPositions)
	}
	for i, k := range m.Kinds {
		if i < len(want.Kinds) && (k == models.Sliding) != (want.Kinds[i] == reference.SlidingAttention) {
			say("layer kinds", "layer %d is %s, config.json implies %s", i, k, want.Kinds[i])
		}
	}
	for _, kind := range []models.Kind{models.Full, models.Sliding} {
		if !slices.Contains(m.Kinds, kind) {
			continue
		}
		a, ok := c.Attention[kind]
		if !ok {
			say("attention", "attention %s is missing", kind)
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
			symptom := fmt.Sprintf("RoPE of %s layers", kind)
			if freq[i] == 0 {
				symptom += ": tail turns"
			}
			say(symptom, "RoPE of %s layers: frequency %d is %g, config.json implies %g (theta %g)",
				kind, i, a.InvFreq[i], freq[i], rope.Theta)
		}
	}
	scale := float64(want.EmbedScale) * c.ResidualScale
	if math.Abs(c.Embedding.Scale-scale) > 1e-6*scale {
		say("embedding scale", "embedding scale is %g, config.json and the residual scale imply %g", c.Embedding.Scale, scale)
	}
	for i, source := range want.KVSource {
		if got := m.KVSource; i < len(got) && got[i] != source || got == nil && source != i {
			say("key and value sources", "layer %d does not read the keys and values of layer %d, as config.json implies", i, source)
		}
	}
	if p := c.PerLayer; p != nil {
		differ("the width of per-layer embeddings", p.Dim, want.PerLayer.Width)
		if s := float64(want.PerLayer.TokenScale); math.Abs(p.Scale-s) > 1e-6*s {
			say("per-layer scale", "the per-layer table's scale is %g, config.json implies %g", p.Scale, s)
		}
	}
	if c.Mask.Blocked > -1e3 {
		say("mask value", "mask value %g does not block (want -1000 or less)", c.Mask.Blocked)
	}
	return out
}

// epsilons compares the epsilon of every norm in the graphs with config.json's.
// Norms of the residual stream have that times the square of its scale, as far
// as fp16 can tell.
func (s *Subject) epsilons(res *Result) error {
	pkgs, err := s.packages()
	if err != nil {
		return err
	}
	eps, scale := s.Config.NormEps, s.Contract.ResidualScale
	count := 0
	for i, p := range pkgs {
		for _, name := range p.Program.Names() {
			for _, o := range p.Program.Functions[name].Body.Ops {
				v := o.In("epsilon")
				if o.Kind != "layer_norm" || v == nil || v.Const == nil {
					continue
				}
				x, err := mil.ConstFloats(v.Const)
				if err != nil || len(x) != 1 {
					continue
				}
				count++
				// fp16 has steps of 6e-8 here.
				near := func(want float64) bool { return math.Abs(x[0]-want) <= 0.02*want+1.2e-7 }
				if x[0] > 0 && (near(eps) || near(eps*scale*scale)) {
					continue
				}
				if x[0] == 0 && eps*scale*scale < 1.2e-7 && scale != 1 {
					continue
				}
				res.symptom("epsilon")
				res.fail("%s %s: the epsilon of %s is %g, config.json says %g", s.Contract.Chunks[i].Name, name, o.Name, x[0], eps)
				if res.Finding == nil {
					res.Finding = &Finding{Chunk: s.Contract.Chunks[i].Name, Function: name, Layer: layerOf(o.Name), Site: o.Name, Position: -1}
				}
			}
		}
	}
	res.note("norms", float64(count))
	return nil
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
