package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
	"github.com/smelt-go/smelt/tokenizer"
)

// Source is an opened Hugging Face directory.
type Source struct {
	Dir   string
	Model *models.Model
	view  *checkpoint.View
	ckpt  *checkpoint.Checkpoint

	compression *compression // nil: none

	ignore []string // keys of config.json that are accepted unread
}

// OpenSource opens dir, matches its tensors with the architecture that
// config.json names and sets tensors of other modalities aside.
func OpenSource(dir string, ignoreKeys ...string) (*Source, error) {
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("conversion: %s is not a Hugging Face model directory: %w", dir, err)
	}
	ckpt, err := checkpoint.Open(dir)
	if err != nil {
		return nil, err
	}
	view := ckpt.Text()
	m, err := models.New(bytes.NewReader(config), view, ignoreKeys...)
	if err != nil {
		ckpt.Close()
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return &Source{Dir: dir, Model: m, view: view, ckpt: ckpt, ignore: ignoreKeys}, nil
}

// tokenizer loads the source's tokenizer, nil if there is none. One that
// cannot be used is an error: the bundle would be of no use for text.
func (s *Source) tokenizer() (*tokenizer.Tokenizer, error) {
	path := filepath.Join(s.Dir, "tokenizer.json")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	t, err := tokenizer.Load(path)
	if err != nil {
		return nil, fmt.Errorf("%w (to convert the model without its tokenizer, move %s away)", err, path)
	}
	return t, nil
}

// Close releases the checkpoint's files.
func (s *Source) Close() error {
	if s.ckpt == nil {
		return nil
	}
	return s.ckpt.Close()
}

// endTokens returns the ids that end a text: those of config.json and of
// generation_config.json.
func (s *Source) endTokens() ([]int, error) {
	ids := slices.Clone(s.Model.Config().EOS)
	path := filepath.Join(s.Dir, "generation_config.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ids, nil
	}
	if err != nil {
		return nil, fmt.Errorf("conversion: %w", err)
	}
	var g struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err := json.Unmarshal(data, &g); err != nil {
		return nil, fmt.Errorf("conversion: %s: %w", path, err)
	}
	var one int
	var many []int
	switch {
	case len(g.EOS) == 0, string(g.EOS) == "null":
	case json.Unmarshal(g.EOS, &one) == nil:
		many = []int{one}
	case json.Unmarshal(g.EOS, &many) != nil:
		return nil, fmt.Errorf("conversion: %s: eos_token_id is neither a number nor a list of numbers", path)
	}
	for _, id := range many {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// dtypes lists the element types of the tensors used.
func (s *Source) dtypes() []string {
	var out []string
	for _, u := range s.Model.Weights() {
		if u.Use == models.Used && !slices.Contains(out, u.DType) {
			out = append(out, u.DType)
		}
	}
	slices.Sort(out)
	return out
}

// sizes are the bytes of layers, embedding and head at the given precision.
func sizes(m *models.Model, compute, embed string) chunking.Sizes {
	cfg, width := m.Config(), int64(2)
	if compute == "fp32" {
		width = 4
	}
	table := int64(cfg.Vocab) * int64(cfg.Hidden) * width
	s := chunking.Sizes{Last: table, Tied: cfg.Tied}
	// Per-layer embeddings: the projection, and the table where it is gathered.
	wide := int64(cfg.Layers) * int64(cfg.PerLayer)
	s.First = (wide*int64(cfg.Hidden) + int64(cfg.PerLayer)) * width
	if embed == chunking.EmbedGraph {
		s.First += table + int64(cfg.Vocab)*wide*width
	}
	for i := range cfg.Layers {
		s.Layers = append(s.Layers, m.LayerElements(i)*width)
	}
	return s
}

// passengers are the files of the source that travel with a bundle.
var passengers = []string{
	"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
	"special_tokens_map.json", "chat_template.jinja", "chat_template.json",
}

// copyPassengers copies the source's small files into dir and returns their names.
func (s *Source) copyPassengers(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("conversion: %w", err)
	}
	var names []string
	for _, name := range passengers {
		data, err := os.ReadFile(filepath.Join(s.Dir, name))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil && name == "config.json" {
			// Whoever reads the bundle is to see what was understood.
			data, err = s.config()
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("conversion: copy %s: %w", name, err)
		}
		names = append(names, name)
	}
	return names, nil
}
