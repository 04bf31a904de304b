package reference

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
)

// Source is where the stored tensors come from, under the names of a text-only
// checkpoint: "model.layers.0.self_attn.q_proj.weight".
type Source = checkpoint.Source

// Model is a decoder ready to run. It holds no weights: they are read again at
// every forward pass. One Model may run several passes at the same time.
type Model struct {
	config Config
	src    Source
	closer func() error

	// skipNorm, set by tests, leaves RMS norms out.
	skipNorm func(name string) bool
}

// Open reads the checkpoint directory dir: config.json and safetensors, single
// or sharded. The caller closes the model.
func Open(dir string) (*Model, error) {
	configJSON, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	m, err := New(c.Text(), configJSON)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%w (in %s)", err, dir)
	}
	m.closer = c.Close
	return m, nil
}

// New makes a model from tensors and the bytes of config.json. It reads names,
// shapes and dtypes, but no values.
func New(src Source, configJSON []byte) (*Model, error) {
	config, err := ParseConfig(configJSON)
	if err != nil {
		return nil, err
	}
	used, unused := config.tensors()
	if err := checkTensors(src, used, unused); err != nil {
		return nil, err
	}
	return &Model{config: config, src: src}, nil
}

// Config returns the decoder's normalised configuration.
func (m *Model) Config() Config { return m.config }

// Close releases the checkpoint that Open opened.
func (m *Model) Close() error {
	if m.closer == nil {
		return nil
	}
	return m.closer()
}
