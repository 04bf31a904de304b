package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
)

// gain reads a norm's weights and adds the architecture's offset.
func (m *Model) gain(name string) ([]float64, error) {
	t, ok := m.src.Tensor(name)
	if !ok {
		return nil, fmt.Errorf("models: tensor %q is missing", name)
	}
	v := make([]float32, checkpoint.NumElements(t))
	if err := (&weight{t}).ReadFloat32(v, 0); err != nil {
		return nil, err
	}
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x) + m.cfg.NormOffset
	}
	return out, nil
}

// Use says what becomes of a tensor of the checkpoint.
type Use string

// What becomes of a tensor.
const (
	Used   Use = "used"
	Waived Use = "waived"
)

// WeightUse is one line of the coverage report.
type WeightUse struct {
	Name   string
	Shape  []int
	DType  string
	Use    Use
	Reason string // why it is waived
}

// expected lists the tensors the architecture needs, with their shapes.
func (m *Model) expected() map[string][]int {
	c := m.cfg
	e := map[string][]int{
		"model.embed_tokens.weight": {c.Vocab, c.Hidden},
		"model.norm.weight":         {c.Hidden},
	}
	if !c.Tied {
		e["lm_head.weight"] = []int{c.Vocab, c.Hidden}
	}
	for i := range c.Layers {
		d, own := c.Dims(c.Kinds[i]), c.Source(i) == i
		q, kv := c.Heads*d.HeadDim, d.KVHeads*d.HeadDim
		p := fmt.Sprintf("model.layers.%d.", i)
		linear := func(name string, out, in int, bias bool) {
			e[p+name+".weight"] = []int{out, in}
			if bias {
				e[p+name+".bias"] = []int{out}
			}
		}
		linear("self_attn.q_proj", q, c.Hidden, c.QKVBias)
		if own {
			linear("self_attn.k_proj", kv, c.Hidden, c.QKVBias)
			linear("self_attn.v_proj", kv, c.Hidden, c.QKVBias)
		}
		linear("self_attn.o_proj", c.Hidden, q, c.OBias)
		linear("mlp.gate_proj", c.Width(i), c.Hidden, c.MLPBias)
		linear("mlp.up_proj", c.Width(i), c.Hidden, c.MLPBias)
		linear("mlp.down_proj", c.Hidden, c.Width(i), c.MLPBias)
		norms := []string{"input_layernorm", "post_attention_layernorm"}
		if c.Sandwich {
			norms = append(norms, "pre_feedforward_layernorm", "post_feedforward_layernorm")
		}
		for _, n := range norms {
			e[p+n+".weight"] = []int{c.Hidden}
		}
		if c.QKNorm {
			e[p+"self_attn.q_norm.weight"] = []int{d.HeadDim}
			if own {
				e[p+"self_attn.k_norm.weight"] = []int{d.HeadDim}
			}
		}
	}
	m.gemma4Expected(e)
	return e
}

// Tensors lists the tensors that a checkpoint of the configuration has, with
// their shapes.
func Tensors(cfg *Config) map[string][]int { return (&Model{cfg: *cfg}).expected() }

// waive gives the reason for leaving out a tensor that is not expected.
func (m *Model) waive(name string) (string, bool) {
	switch {
	case name == "lm_head.weight" && m.cfg.Tied:
		return "the head is tied to model.embed_tokens.weight", true
	case strings.HasSuffix(name, ".rotary_emb.inv_freq"):
		return "RoPE frequencies are computed from config.json", true
	}
	var layer int
	var rest string
	if n, _ := fmt.Sscanf(name, "model.layers.%d.self_attn.%s", &layer, &rest); n == 2 && layer >= 0 && layer < m.cfg.Layers {
		switch rest {
		case "k_proj.weight", "v_proj.weight", "k_norm.weight":
			if s := m.cfg.Source(layer); s != layer {
				return fmt.Sprintf("layer %d reads the keys and values of layer %d", layer, s), true
			}
		}
	}
	return "", false
}

// cover matches the checkpoint against the architecture: every tensor is
// used, waived with a reason, or an error; all errors are reported at once.
func (m *Model) cover() error {
	if err := m.coverWith(m.expected(), nil, nil); err != nil {
		return err
	}
	return m.sameHead()
}

// coverWith is cover for the given tensors; those called ints hold integers or
// booleans, and optional ones may be absent.
func (m *Model) coverWith(want map[string][]int, ints, optional []string) error {
	want = maps.Clone(want)
	var bad []string
	for _, name := range m.src.Names() {
		t, _ := m.src.Tensor(name)
		u := WeightUse{Name: name, Shape: t.Shape(), DType: t.DType().String(), Use: Used}
		shape, ok := want[name]
		if ok {
			delete(want, name)
			if !slices.Equal(shape, t.Shape()) {
				bad = append(bad, fmt.Sprintf("tensor %q has shape %v, config.json implies %v", name, t.Shape(), shape))
			}
			switch t.DType() {
			case checkpoint.BF16, checkpoint.F16, checkpoint.F32, checkpoint.F64:
			default:
				if slices.Contains(ints, name) {
					break // whoever reads it checks it
				}
				bad = append(bad, fmt.Sprintf("tensor %q has dtype %v, want BF16, F16, F32 or F64 (an already quantized checkpoint?)", name, t.DType()))
			}
		} else if u.Reason, ok = m.waive(name); ok {
			u.Use = Waived
		} else {
			bad = append(bad, fmt.Sprintf("tensor %q %v is not part of %s (a different architecture, or an adapter?)", name, t.Shape(), m.cfg.Architecture))
		}
		m.uses = append(m.uses, u)
	}
	missing := make([]string, 0, len(want))
	for name := range want {
		if !slices.Contains(optional, name) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	for _, name := range missing {
		bad = append(bad, fmt.Sprintf("tensor %q %v is missing", name, want[name]))
	}
	if len(bad) > 0 {
		const show = 8
		more := ""
		if len(bad) > show {
			more = fmt.Sprintf("\n  and %d more", len(bad)-show)
			bad = bad[:show]
		}
		return fmt.Errorf("models: the checkpoint does not fit %s:\n  %s%s", m.cfg.Architecture, strings.Join(bad, "\n  "), more)
	}
	return nil
}
