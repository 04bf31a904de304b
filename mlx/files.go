package mlx

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
)

// writeIndex writes model.safetensors.index.json over the shards in dir, as
// mlx-lm does: always, with the number of parameters.
func writeIndex(dir string, parameters int64) (shards int, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "model*.safetensors"))
	if err != nil {
		return 0, fmt.Errorf("mlx: %w", err)
	}
	shardOf := map[string]string{}
	var total int64
	for _, p := range paths {
		f, err := checkpoint.OpenFile(p)
		if err != nil {
			return 0, err
		}
		for _, name := range f.Names() {
			t, _ := f.Tensor(name)
			shardOf[name] = filepath.Base(p)
			total += checkpoint.NumBytes(t)
		}
		f.Close()
	}
	meta, weights, index := newObject(), newObject(), newObject()
	meta.set("total_size", json.Number(strconv.FormatInt(total, 10)))
	meta.set("total_parameters", json.Number(strconv.FormatInt(parameters, 10)))
	for name, shard := range shardOf {
		weights.set(name, shard)
	}
	index.set("metadata", meta)
	index.set("weight_map", weights.sorted())
	return len(paths), writeFile(dir, "model.safetensors.index.json", render(index))
}

// passengers are files that travel with the weights.
var passengers = []string{
	"generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
	"added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "*.py", "*.tiktoken",
}

func copyPassengers(src, dir string) error {
	for _, pattern := range passengers {
		paths, err := filepath.Glob(filepath.Join(src, pattern))
		if err != nil {
			return fmt.Errorf("mlx: %w", err)
		}
		for _, p := range paths {
			data, err := os.ReadFile(p)
			if err != nil {
				return fmt.Errorf("mlx: copy %s: %w", filepath.Base(p), err)
			}
			if err := writeFile(dir, filepath.Base(p), data); err != nil {
				return err
			}
		}
	}
	return nil
}

// card is README.md: what the Hub reads, and the formats for people.
func card(r *Report) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "---\nlanguage: en\nlibrary_name: mlx\npipeline_tag: text-generation\ntags:\n- mlx\n---\n\n")
	fmt.Fprintf(&b, "# %s\n\nQuantized for MLX: %.3f bits per weight, %d parameters, %d bytes of tensors.\n\n", r.Source, r.BPW, r.Parameters, r.Bytes)
	b.WriteString("| tensors | format | parameters | bytes | bits per weight |\n|---|---|---|---|---|\n")
	for _, c := range r.Classes {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %.3f |\n", c.Class, c.Format, c.Parameters, c.Bytes, c.BPW)
	}
	methods := []string{}
	for _, m := range r.Modules {
		if m.Method != "" && !slices.Contains(methods, string(m.Method)) {
			methods = append(methods, string(m.Method))
		}
	}
	slices.Sort(methods)
	fmt.Fprintf(&b, "\nMethod: %s.\n", strings.Join(methods, ", "))
	return []byte(b.String())
}
