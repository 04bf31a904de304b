package rotation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/internal/atomicdir"
)

// Options configures Rotate.
type Options struct {
	Seed  uint64
	DType checkpoint.DType // BF16, F16 or F32; 0: F32, which loses nothing
	Force bool             // replace an existing directory
}

// maxShard is the largest file.
const maxShard = 5 << 30

// passengers are the files that go along.
var passengers = []string{"generation_config.json", "tokenizer.json", "tokenizer_config.json",
	"special_tokens_map.json", "chat_template.jinja", "chat_template.json"}

// Rotate writes the rotated model of the Hugging Face directory src to the
// directory out, which appears whole or not at all.
func Rotate(ctx context.Context, src, out string, o Options) error {
	if entries, err := os.ReadDir(out); err == nil {
		if !o.Force {
			return fmt.Errorf("rotation: %s exists already (use --force to replace it)", out)
		}
		if _, err := os.Stat(filepath.Join(out, "config.json")); err != nil && len(entries) > 0 {
			return fmt.Errorf("rotation: %s exists and is not a model directory: it has no config.json (remove it yourself, or choose another name)", out)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rotation: %s exists and is not a directory (choose another name)", out)
	}
	config, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		return fmt.Errorf("rotation: %s is not a model directory: %w", src, err)
	}
	ck, err := checkpoint.Open(src)
	if err != nil {
		return err
	}
	defer ck.Close()
	m, err := New(ck, config, o.Seed)
	if err != nil {
		return err
	}
	return atomicdir.Write(out, atomicdir.Options{Force: o.Force}, func(dir string) error {
		var tensors []checkpoint.Tensor
		for _, name := range m.Names() {
			t, _ := m.Tensor(name)
			if o.DType != 0 && o.DType != checkpoint.F32 {
				t = checkpoint.AsType(t, o.DType)
			}
			tensors = append(tensors, t)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("rotation: %w", err)
		}
		if err := checkpoint.WriteSharded(dir, tensors, map[string]string{"format": "pt"}, maxShard); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "config.json"), m.Config(), 0o644); err != nil {
			return fmt.Errorf("rotation: %w", err)
		}
		for _, name := range passengers {
			data, err := os.ReadFile(filepath.Join(src, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
			}
			if err != nil {
				return fmt.Errorf("rotation: %w", err)
			}
		}
		return nil
	})
}
