package models

import (
	"fmt"
	"io"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/mil"
)

// Model is a checkpoint matched with its architecture.
type Model struct {
	cfg    Config
	src    checkpoint.Source
	uses   []WeightUse
	consts map[string]mil.Const // one constant a tensor, so that functions share blobs
}

// New reads config.json and checks that the tensors of src are exactly those
// which the architecture needs. ignore lists config.json keys to accept
// unread.
func New(config io.Reader, src checkpoint.Source, ignore ...string) (*Model, error) {
	cfg, err := ParseConfig(config, ignore...)
	if err != nil {
		return nil, err
	}
	m := &Model{cfg: *cfg, src: src, consts: map[string]mil.Const{}}
	if err := m.cover(); err != nil {
		return nil, err
	}
	return m, nil
}

// Config returns the normalised configuration.
func (m *Model) Config() *Config { return &m.cfg }

// Weights reports every tensor of the checkpoint: used, or waived and why.
func (m *Model) Weights() []WeightUse { return m.uses }

// Embedding is the table of token embeddings, [Vocab, Hidden].
func (m *Model) Embedding() checkpoint.Tensor {
	t, _ := m.src.Tensor("model.embed_tokens.weight")
	return t
}

// PerLayerEmbedding is the table of per-layer embeddings, [Vocab, L*P], of
// models that have one, else nil.
func (m *Model) PerLayerEmbedding() checkpoint.Tensor {
	t, _ := m.src.Tensor("model.embed_tokens_per_layer.weight")
	return t
}

// headName is the tensor that makes logits.
func (m *Model) headName() string {
	if m.cfg.Tied {
		return "model.embed_tokens.weight"
	}
	return "lm_head.weight"
}

// LayerElements is the number of weights of layer i.
func (m *Model) LayerElements(i int) int64 {
	var n int64
	prefix := fmt.Sprintf("model.layers.%d.", i)
	for name, shape := range m.expected() {
		if len(name) > len(prefix) && name[:len(prefix)] == prefix {
			k := int64(1)
			for _, d := range shape {
				k *= int64(d)
			}
			n += k
		}
	}
	return n
}

// constant returns the shared fp32 constant of a checkpoint tensor.
func (m *Model) constant(name string) mil.Const {
	if c, ok := m.consts[name]; ok {
		return c
	}
	t, ok := m.src.Tensor(name)
	if !ok {
		return nil
	}
	c := &weight{t}
	m.consts[name] = c
	return c
}
