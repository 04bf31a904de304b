package mlx_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/mlx"
	"github.com/smelt-go/smelt/quant"
)

// dspark copies the drafter fixture and changes its tensors and config.
func dspark(t *testing.T, config func(string) string, tensors func([]checkpoint.Tensor) []checkpoint.Tensor) string {
	t.Helper()
	dir, src := t.TempDir(), fixture(t, "drafters/dspark-forward")
	data, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if config != nil {
		if text = config(text); text == string(data) {
			t.Fatal("the change of config.json changes nothing")
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ck, err := checkpoint.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	var list []checkpoint.Tensor
	for _, name := range ck.Names() {
		x, _ := ck.Tensor(name)
		list = append(list, x)
	}
	if tensors != nil {
		list = tensors(list)
	}
	if err := checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), list, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestQuantizeDrafter(t *testing.T) {
	// The head is a copy of the embedding, and both are the target's.
	var table checkpoint.Tensor
	dir := dspark(t, nil, func(list []checkpoint.Tensor) []checkpoint.Tensor {
		i := slices.IndexFunc(list, func(x checkpoint.Tensor) bool { return x.Name() == "embed_tokens.weight" })
		j := slices.IndexFunc(list, func(x checkpoint.Tensor) bool { return x.Name() == "lm_head.weight" })
		raw, err := checkpoint.ReadBytes(list[i])
		if err != nil {
			t.Fatal(err)
		}
		if table, err = checkpoint.NewRaw("model.embed_tokens.weight", list[i].DType(), list[i].Shape(), raw); err != nil {
			t.Fatal(err)
		}
		list[j] = checkpoint.Rename(table, "lm_head.weight")
		return list
	})
	target := t.TempDir()
	if err := checkpoint.WriteFile(filepath.Join(target, "model.safetensors"), []checkpoint.Tensor{table}, nil); err != nil {
		t.Fatal(err)
	}
	recipe := quant.Uniform(4, 32)
	recipe.KeepIndivisible = true // the bigram head of rank 16
	out := filepath.Join(t.TempDir(), "q")
	rep, err := mlx.QuantizeDrafter(t.Context(), dir, out, mlx.DrafterOptions{Options: mlx.Options{Recipe: recipe}, Target: target})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Tensors != 74 || rep.Projected <= 0 {
		t.Errorf("%d tensors, projected context %g", rep.Tensors, rep.Projected)
	}
	if !slices.Contains(rep.Kept, "confidence_head.proj") || !slices.Contains(rep.Kept, "layers.3.layer_scalar") || !slices.Contains(rep.Kept, "norm") || slices.Contains(rep.Kept, "fc") {
		t.Errorf("kept: %v", rep.Kept)
	}
	var pairs []string
	for _, c := range rep.Copies {
		pairs = append(pairs, c.Tensor+" = "+c.Of)
	}
	base := filepath.Base(target)
	want := []string{"lm_head.weight = embed_tokens.weight", "embed_tokens.weight = " + base + ": model.embed_tokens.weight", "lm_head.weight = " + base + ": model.embed_tokens.weight"}
	if !slices.Equal(pairs, want) {
		t.Errorf("copies %q, want %q", pairs, want)
	}
	d, err := mlx.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	// 5 layers of 6 weights, fc, embedding, head.
	if len(d.Modules) != 33 {
		t.Errorf("%d quantized modules, want 33", len(d.Modules))
	}
	if _, err := mlx.QuantizeDrafter(t.Context(), out, filepath.Join(t.TempDir(), "again"), mlx.DrafterOptions{Options: mlx.Options{Recipe: recipe, Requantize: true}}); err == nil || !strings.Contains(err.Error(), "quantized already") {
		t.Errorf("a quantized drafter: %v", err)
	}
}

func TestQuantizeDrafterRefuses(t *testing.T) {
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	drop := func(name string) func([]checkpoint.Tensor) []checkpoint.Tensor {
		return func(list []checkpoint.Tensor) []checkpoint.Tensor {
			return slices.DeleteFunc(list, func(x checkpoint.Tensor) bool { return x.Name() == name })
		}
	}
	extra := func(list []checkpoint.Tensor) []checkpoint.Tensor {
		return append(list, checkpoint.NewFloat32("layers.0.self_attn.v_proj.weight", []int{32, 64}, make([]float32, 2048)))
	}
	for name, tt := range map[string]struct {
		config  func(string) string
		tensors func([]checkpoint.Tensor) []checkpoint.Tensor
		want    string
	}{
		"another layout":   {replace("Gemma4DSparkModel", "LlamaForCausalLMEagle3"), nil, "only the layout of Gemma4DSparkModel"},
		"one missing":      {nil, drop("layers.2.mlp.up_proj.weight"), "tensor layers.2.mlp.up_proj.weight is missing"},
		"one too many":     {nil, extra, "tensor layers.0.self_attn.v_proj.weight is none of"},
		"another width":    {replace(`"hidden_size": 64`, `"hidden_size": 96`), nil, "config.json makes it [512 96]"},
		"no taps":          {replace(`"target_layer_ids"`, `"layer_ids"`), nil, "lacks target_layer_ids"},
		"an unknown head":  {replace(`"vanilla"`, `"gated"`), nil, `markov_head_type is "gated"`},
		"no global heads":  {replace(`"num_global_key_value_heads": 1,`, ``), nil, "lacks num_global_key_value_heads"},
		"quantized before": {replace(`"block_size"`, `"quantization": {"bits": 4, "group_size": 32}, "block_size"`), nil, "quantized already"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "q")
			_, err := mlx.QuantizeDrafter(t.Context(), dspark(t, tt.config, tt.tensors), out, mlx.DrafterOptions{Options: mlx.Options{Recipe: quant.Uniform(4, 32)}})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
			if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
}
