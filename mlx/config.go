package mlx

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/smelt-go/smelt/checkpoint"
)

// readConfig reads config.json with the end tokens of generation_config.json,
// which mlx-lm prefers.
func readConfig(dir string) (*object, error) {
	path := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("mlx: %s is not a model directory: %w", dir, err)
	}
	c, err := parseObject(data)
	if err != nil {
		return nil, fmt.Errorf("mlx: %s: %w", path, err)
	}
	path = filepath.Join(dir, "generation_config.json")
	data, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("mlx: %w", err)
	}
	g, err := parseObject(data)
	if err != nil {
		return nil, fmt.Errorf("mlx: %s: %w", path, err)
	}
	if eos, ok := g.get("eos_token_id"); ok && eos != nil && eos != json.Number("0") {
		c.set("eos_token_id", eos)
	}
	return c, nil
}

// text is the part of a config that describes the language model.
func text(c *object) *object {
	if t := c.child("text_config"); t != nil {
		return t
	}
	return c
}

// dtype is the type that mlx-lm casts weights to before it quantizes: that of
// torch_dtype, or of text_config.dtype; 0 says that they keep theirs.
func dtype(c *object) checkpoint.DType {
	name := c.str("torch_dtype")
	if name == "" {
		if t := c.child("text_config"); t != nil {
			name = t.str("dtype")
		}
	}
	return map[string]checkpoint.DType{"bfloat16": checkpoint.BF16, "float16": checkpoint.F16, "float32": checkpoint.F32}[name]
}

// olderSpellings adds what mlx-lm reads under older names than newer
// checkpoints have: it would take its defaults without a word. It returns what
// cannot be expressed.
func olderSpellings(c *object) (warnings []string) {
	put := func(key string, v any, ok bool) {
		if _, there := c.get(key); !there && ok {
			c.set(key, v)
		}
	}
	if rope := c.child("rope_parameters"); rope != nil {
		full := rope
		if f := rope.child("full_attention"); f != nil {
			full = f
		}
		theta, ok := full.get("rope_theta")
		put("rope_theta", theta, ok)
		if local := rope.child("sliding_attention"); local != nil {
			theta, ok = local.get("rope_theta")
			put("rope_local_base_freq", theta, ok)
		}
		if kind := full.str("rope_type"); kind != "" && kind != "default" {
			s := newObject()
			for _, k := range full.keys {
				if k != "rope_theta" {
					s.set(k, full.values[k])
				}
			}
			put("rope_scaling", s, true)
		}
	}
	if kinds, ok := c.values["layer_types"].([]any); ok {
		n, all := period(kinds)
		if n > 0 {
			put("sliding_window_pattern", json.Number(strconv.Itoa(n)), true)
		} else if !all && c.str("model_type") == "gemma3_text" {
			warnings = append(warnings, "mlx-lm reads layer_types as sliding_window_pattern, which cannot express this order of layers: it will compute another model")
		}
	}
	if per := c.child("per_layer_config"); per != nil {
		for _, k := range per.keys {
			if l := per.child(k); l != nil {
				d, ok := l.get("head_dim")
				put("global_head_dim", d, ok)
			}
		}
	}
	return warnings
}

// period is the n for which every n-th layer, and no other, is full; all says
// that the layers are of one kind.
func period(kinds []any) (n int, all bool) {
	first := -1
	for i, k := range kinds {
		if k == "full_attention" {
			first = i
			break
		}
	}
	if first < 0 {
		return len(kinds) + 1, true
	}
	n = first + 1
	for i, k := range kinds {
		if (k == "full_attention") != ((i+1)%n == 0) {
			return 0, false
		}
	}
	return n, n == 1
}
