package reference

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/checkpoint"
)

func TestGemma4Tensors(t *testing.T) {
	e2b, e4b := openModel(t, loadGolden(t, "gemma4-e2b").dir).src, openModel(t, loadGolden(t, "gemma4-e4b").dir).src
	zeros := func(name string, shape ...int) map[string]checkpoint.Tensor {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return map[string]checkpoint.Tensor{name: f32(name, shape, make([]float32, n))}
	}
	tests := []struct {
		name, fixture string
		src           Source
		with          map[string]checkpoint.Tensor
		want          string // "" for no error
	}{
		{"table of another width", "gemma4-e2b", e2b, zeros(perLayerTableName, 512, 144), "asks for [512 160] (vocab_size_per_layer_input × num_hidden_layers·hidden_size_per_layer_input)"},
		{"projection of another width", "gemma4-e2b", e2b, zeros(perLayerProjectionName, 144, 80), "asks for [160 80] (num_hidden_layers·hidden_size_per_layer_input × hidden_size)"},
		{"no table", "gemma4-e2b", e2b, map[string]checkpoint.Tensor{perLayerTableName: nil}, "is missing"},
		{"no scalar", "gemma4-e2b", e2b, map[string]checkpoint.Tensor{"model.layers.3.layer_scalar": nil}, `"model.layers.3.layer_scalar" is missing`},
		{"scalars", "gemma4-e2b", e2b, zeros("model.layers.3.layer_scalar", 80), "shape is [80], config.json asks for [1]"},
		{"narrow MLP", "gemma4-e2b", e2b, zeros("model.layers.5.mlp.up_proj.weight", 96, 80), "shape is [96 80], config.json asks for [192 80]"},
		{"norm of the other kind", "gemma4-e2b", e2b, zeros("model.layers.4.self_attn.q_norm.weight", 16), "shape is [16], config.json asks for [32]"},
		{"unused keys", "gemma4-e2b", e2b, zeros("model.layers.5.self_attn.k_proj.weight", 16, 80), ""},
		{"unused keys of another shape", "gemma4-e2b", e2b, zeros("model.layers.5.self_attn.k_proj.weight", 32, 80), "asks for [16 80]"},
		{"keys of a producer", "gemma4-e4b", e4b, map[string]checkpoint.Tensor{"model.layers.5.self_attn.k_proj.weight": nil}, "is missing"},
		{"some unused keys", "gemma4-e4b", e4b, map[string]checkpoint.Tensor{"model.layers.7.self_attn.k_proj.weight": nil}, ""},
		{"norm of v", "gemma4-e2b", e2b, zeros("model.layers.0.self_attn.v_norm.weight", 16), "nothing in config.json makes use of it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(patched{tt.src, tt.with}, edit(t, tt.fixture, nil))
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// prefixed is a checkpoint under the names of a multimodal one.
type prefixed struct{ Source }

func (p prefixed) Names() []string {
	names := []string{"model.vision_tower.norm.weight"}
	for _, name := range p.Source.Names() {
		names = append(names, strings.Replace(name, "model.", "model.language_model.", 1))
	}
	return names
}

func (p prefixed) Tensor(name string) (checkpoint.Tensor, bool) {
	if name == "model.vision_tower.norm.weight" {
		return f32(name, []int{4}, make([]float32, 4)), true
	}
	t, ok := p.Source.Tensor(strings.Replace(name, "model.language_model.", "model.", 1))
	if !ok {
		return nil, false
	}
	return checkpoint.Rename(t, name), true
}

// TestGemma4Multimodal: the text part of a multimodal checkpoint computes what
// the text model does, in both spellings and with or without unused tensors.
func TestGemma4Multimodal(t *testing.T) {
	for _, name := range []string{"gemma4-e2b", "gemma4-e4b"} {
		g := loadGolden(t, name)
		text, err := os.ReadFile(filepath.Join(g.dir, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		config, err := json.Marshal(map[string]any{
			"architectures": []string{"Gemma4ForConditionalGeneration"}, "model_type": "gemma4", "text_config": json.RawMessage(text),
			"vision_config": map[string]any{"hidden_size": 8}, "audio_config": map[string]any{"hidden_size": 8},
			"image_token_id": 500, "audio_token_id": 501, "vision_soft_tokens_per_image": 280, "tie_word_embeddings": true,
		})
		if err != nil {
			t.Fatal(err)
		}
		plain := openModel(t, g.dir)
		var src Source = plain.src
		if name == "gemma4-e4b" {
			without := map[string]checkpoint.Tensor{}
			_, unused := plain.config.tensors()
			for name := range unused {
				without[name] = nil
			}
			if len(without) != 18 {
				t.Errorf("%d unused tensors, want 18", len(without))
			}
			src = patched{src, without}
		}
		nested, err := New(checkpoint.TextView(prefixed{src}), config)
		if err != nil {
			t.Fatal(err)
		}
		c := nested.Config()
		c.Architecture = plain.config.Architecture
		if diff := cmp.Diff(plain.config, c); diff != "" {
			t.Errorf("(-text model +text part)\n%s", diff)
		}
		want, err := plain.Forward(t.Context(), g.ids, Options{Head: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := nested.Forward(t.Context(), g.ids, Options{Head: true})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Logits.Data, want.Logits.Data) {
			t.Errorf("%s: the text part computes other logits", name)
		}
	}
}
