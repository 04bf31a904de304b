package rotation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/quant"
)

// minTurn is the order of the smallest rotation.
const minTurn = 16

// Model is a rotated model as a [checkpoint.Source]: float32 tensors that are
// computed as they are read.
type Model struct {
	src     checkpoint.Source
	config  []byte
	names   []string
	hidden  int
	heads   int // of keys and values
	headDim int
	query   int
	r1, r2  turner
}

// supported are the architectures whose norms all stand before projections.
var supported = []string{"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}

// New rotates the model of a checkpoint with the signs of a seed.
func New(src checkpoint.Source, configJSON []byte, seed uint64) (*Model, error) {
	var c struct {
		Architectures []string `json:"architectures"`
		Hidden        int      `json:"hidden_size"`
		Heads         int      `json:"num_attention_heads"`
		KVHeads       int      `json:"num_key_value_heads"`
		HeadDim       int      `json:"head_dim"`
		Tied          *bool    `json:"tie_word_embeddings"`
	}
	if err := json.Unmarshal(configJSON, &c); err != nil {
		return nil, fmt.Errorf("rotation: config.json: %w", err)
	}
	if len(c.Architectures) != 1 || !slices.Contains(supported, c.Architectures[0]) {
		if len(c.Architectures) == 1 && strings.HasPrefix(c.Architectures[0], "Gemma") {
			return nil, fmt.Errorf("rotation: %s has norms between projections and the residual stream, whose gains do not commute with a rotation of it (quantize it unrotated, or with codec turboquant)", c.Architectures[0])
		}
		return nil, fmt.Errorf("rotation: architecture %v is not known to have norms before projections only (want one of %v)", c.Architectures, supported)
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	if c.Hidden < 1 || c.Heads < 1 || c.KVHeads < 1 || c.HeadDim < 1 {
		return nil, fmt.Errorf("rotation: config.json: hidden_size %d, %d heads, %d of keys, head_dim %d", c.Hidden, c.Heads, c.KVHeads, c.HeadDim)
	}
	m := &Model{src: src, hidden: c.Hidden, heads: c.KVHeads, query: c.Heads, headDim: c.HeadDim,
		r1: newTurner(seed, c.Hidden), r2: newTurner(seed+1, c.HeadDim)}
	for name, r := range map[string]turner{"hidden_size": m.r1, "head_dim": m.r2} {
		if r.order < minTurn {
			return nil, fmt.Errorf("rotation: %s is %d: runs of %d are too short to rotate", name, len(r.signs), r.order)
		}
	}
	m.names = slices.Clone(src.Names())
	if !slices.Contains(m.names, headName) {
		m.names = append(m.names, headName)
		slices.Sort(m.names)
	}
	var err error
	m.config, err = untied(configJSON)
	for _, name := range m.names {
		if _, ok := m.Tensor(name); !ok && err == nil {
			err = fmt.Errorf("rotation: tensor %q cannot be rotated: not one of a known decoder", name)
		}
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// untied is a config.json that says that the head is a tensor of its own, with
// float32 weights, its other keys in place.
func untied(config []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(config))
	d.UseNumber()
	var c map[string]any
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("rotation: config.json: %w", err)
	}
	c["tie_word_embeddings"] = false
	out, err := json.MarshalIndent(c, "", "  ")
	return append(out, '\n'), err
}

const (
	tableName = "model.embed_tokens.weight"
	headName  = "lm_head.weight"
	finalNorm = "model.norm.weight"
)

// Config is the config.json of the rotated model.
func (m *Model) Config() []byte { return m.config }

// Names lists the tensors.
func (m *Model) Names() []string { return m.names }

// Tensor returns a rotated tensor.
func (m *Model) Tensor(name string) (checkpoint.Tensor, bool) {
	t, ok := m.src.Tensor(name)
	if !ok && name == headName {
		t, ok = m.src.Tensor(tableName)
	}
	if !ok {
		return nil, false
	}
	r := &rotated{Tensor: t, name: name}
	gains := ""
	switch parts := strings.Split(name, "."); {
	case name == tableName:
		r.cols = m.r1
	case name == headName:
		r.cols, gains = m.r1, finalNorm
	case name == finalNorm:
		r.ones = true
	case len(parts) < 5 || parts[0] != "model" || parts[1] != "layers":
		return nil, false
	default:
		prefix := strings.Join(parts[:3], ".")
		input, after := prefix+".input_layernorm.weight", prefix+".post_attention_layernorm.weight"
		bias := parts[len(parts)-1] == "bias"
		switch parts[len(parts)-2] {
		case "q_proj", "k_proj":
			r.cols, gains = m.r1, input
		case "v_proj":
			r.cols, gains, r.rows, r.rowRuns = m.r1, input, m.r2, m.heads
		case "o_proj":
			r.cols, r.colRuns, r.rows, r.rowRuns = m.r2, m.query, m.r1, 1
		case "gate_proj", "up_proj":
			r.cols, gains = m.r1, after
		case "down_proj":
			r.rows, r.rowRuns = m.r1, 1
		case "input_layernorm", "post_attention_layernorm":
			r.ones = true
		case "q_norm", "k_norm":
		default:
			return nil, false
		}
		if bias {
			r.cols, gains = turner{}, ""
		}
	}
	if gains != "" {
		if r.gains, ok = m.src.Tensor(gains); !ok {
			return nil, false
		}
	}
	return r, r.fits()
}

// turner multiplies by a rotation: x·R = H·(signs∘x), by runs.
type turner struct {
	signs []float32 // nil: no rotation
	order int       // of the Hadamard matrices
}

func newTurner(seed uint64, n int) turner {
	return turner{quant.Signs(seed, n), n & -n}
}

// turn rotates every len(signs) elements of x.
func (t turner) turn(x []float32) {
	if t.signs == nil {
		return
	}
	n := len(t.signs)
	for at := 0; at < len(x); at += n {
		for i, s := range t.signs {
			x[at+i] *= s
		}
	}
	quant.Hadamard(x, t.order)
}
