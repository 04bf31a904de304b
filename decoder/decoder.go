package decoder

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/parity/reference"
)

// Names of modules outside of layers.
const (
	EmbedModule = "model.embed_tokens"
	HeadModule  = "lm_head"
)

// Decoder is a model ready to run. It holds no weights: they are read again at
// every use. It is safe for concurrent use; a State is not.
type Decoder struct {
	config reference.Config
	src    checkpoint.Source
	closer func() error
}

// Open reads the checkpoint directory dir: config.json and safetensors. The
// caller closes the decoder.
func Open(dir string) (*Decoder, error) {
	configJSON, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	c, err := checkpoint.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	d, err := New(c.Text(), configJSON)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%w (in %s)", err, dir)
	}
	d.closer = c.Close
	return d, nil
}

// New makes a decoder of tensors under the names of a text-only checkpoint and
// the bytes of config.json. It reads names, shapes and types, but no values.
func New(src checkpoint.Source, configJSON []byte) (*Decoder, error) {
	m, err := reference.New(src, configJSON)
	if err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	return &Decoder{config: m.Config(), src: src}, nil
}

// With is the decoder with tensors of another source of the same model, such as
// the decoded weights of a quantized one. It is closed with d.
func (d *Decoder) With(src checkpoint.Source) *Decoder {
	return &Decoder{config: d.config, src: src}
}

// Config returns the normalised configuration.
func (d *Decoder) Config() reference.Config { return d.config }

// Source returns the tensors.
func (d *Decoder) Source() checkpoint.Source { return d.src }

// Head is the path of the module that computes logits: HeadModule, or
// EmbedModule where the head is tied to the embedding.
func (d *Decoder) Head() string {
	if d.config.TiedHead {
		return EmbedModule
	}
	return HeadModule
}

// Close closes what Open opened.
func (d *Decoder) Close() error {
	if d.closer == nil {
		return nil
	}
	return d.closer()
}
