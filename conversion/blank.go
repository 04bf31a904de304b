package conversion

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/models"
)

// planSource opens a checkpoint to plan with. A directory without tensors
// will do: then the tensors are those that config.json implies, in BF16.
func planSource(dir string, ignore []string) (*Source, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*.safetensors*"))
	if err != nil || len(found) > 0 {
		return OpenSource(dir, ignore...)
	}
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("conversion: %s is not a Hugging Face model directory: %w", dir, err)
	}
	cfg, err := models.ParseConfig(bytes.NewReader(config), ignore...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	view := checkpoint.TextView(checkpoint.Blanks(models.Tensors(cfg)))
	m, err := models.New(bytes.NewReader(config), view, ignore...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return &Source{Dir: dir, Model: m, view: view, ignore: ignore}, nil
}
