package sensitivity

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/quant"
)

// Model is a checkpoint to measure.
type Model struct {
	Decoder *decoder.Decoder
	Source  Source
	// Weights are the matrices that can be coded, in the order of the model.
	Weights []Weight

	keptBytes, keptParameters int64
}

// Weight is a matrix of a model.
type Weight struct {
	Path   string
	Class  quant.Class
	Layer  int // −1 outside of layers
	Tensor checkpoint.Tensor
}

// Open reads a Hugging Face directory. Hashing it takes as long as reading it.
func Open(ctx context.Context, dir string) (*Model, error) {
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("sensitivity: %w", err)
	}
	d, err := decoder.Open(dir)
	if err != nil {
		return nil, err
	}
	m, err := newModel(ctx, d, filepath.Base(filepath.Clean(dir)), config)
	if err != nil {
		d.Close()
		return nil, err
	}
	return m, nil
}

// Close closes the checkpoint.
func (m *Model) Close() error { return m.Decoder.Close() }

func newModel(ctx context.Context, d *decoder.Decoder, name string, config []byte) (*Model, error) {
	var c struct {
		ModelType string `json:"model_type"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, fmt.Errorf("sensitivity: config.json: %w", err)
	}
	m := &Model{Decoder: d, Source: Source{Name: name, ModelType: c.ModelType, Layers: d.Config().Layers}}
	h := sha256.New()
	h.Write(config)
	runs := map[string]int{decoder.EmbedModule: -1, d.Head(): -1, "model.embed_tokens_per_layer": -1, "model.per_layer_model_projection": -1}
	order := []string{decoder.EmbedModule, "model.embed_tokens_per_layer", "model.per_layer_model_projection"}
	for i := range m.Source.Layers {
		for _, module := range d.Modules(i) {
			runs[module] = i
			order = append(order, module)
		}
	}
	if d.Head() != decoder.EmbedModule {
		order = append(order, d.Head())
	}
	found := map[string]Weight{}
	for _, name := range d.Source().Names() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t, _ := d.Source().Tensor(name)
		fmt.Fprintf(h, "%s %v %v\n", name, t.DType(), t.Shape())
		_ = binary.Write(h, binary.LittleEndian, int64(checkpoint.NumElements(t)))
		if _, err := t.WriteTo(h); err != nil {
			return nil, fmt.Errorf("sensitivity: %w", err)
		}
		checkpoint.Release(t)
		n, b := int64(checkpoint.NumElements(t)), checkpoint.NumBytes(t)
		m.Source.Parameters += n
		m.Source.Bytes += b
		path := strings.TrimSuffix(name, ".weight")
		layer, ok := runs[path]
		if !ok || len(t.Shape()) != 2 {
			m.keptParameters += n
			m.keptBytes += b
			continue
		}
		class, _ := quant.Classify(name)
		found[path] = Weight{path, class, layer, t}
	}
	for _, path := range order {
		if w, ok := found[path]; ok {
			m.Weights = append(m.Weights, w)
		}
	}
	m.Source.SHA256 = hex.EncodeToString(h.Sum(nil))
	return m, nil
}

// tensor is a map's entry for a weight, without candidates.
func (w Weight) entry() Tensor {
	return Tensor{Path: w.Path, Class: w.Class, Layer: w.Layer, Shape: slices.Clone(w.Tensor.Shape()),
		Parameters: int64(checkpoint.NumElements(w.Tensor)), Bytes: checkpoint.NumBytes(w.Tensor)}
}

// Belongs is an error unless the map was made from this checkpoint.
func (m *Model) Belongs(to *Map) error {
	if to.Source.SHA256 != m.Source.SHA256 {
		return fmt.Errorf("sensitivity: the map is of %s (%.12s…), not of %s (%.12s…) (measure this checkpoint)", to.Source.Name, to.Source.SHA256, m.Source.Name, m.Source.SHA256)
	}
	return nil
}
