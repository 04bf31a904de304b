package models_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
)

func zeros(name string, shape ...int) checkpoint.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return checkpoint.NewFloat32(name, shape, make([]float32, n))
}

func model(t testing.TB, name string, changes set, src checkpoint.Source) *models.Model {
	t.Helper()
	m, err := models.New(bytes.NewReader(config(t, name, changes)), src)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCoverage: every tensor of every fixture is used, none twice.
func TestCoverage(t *testing.T) {
	for _, name := range []string{"llama-tied", "llama3-scaled", "qwen2", "qwen3", "gemma3", "llama-biased", "qwen2-window"} {
		src := load(t, name)
		m := model(t, name, nil, src)
		var names []string
		for _, u := range m.Weights() {
			if u.Use != models.Used || u.Reason != "" {
				t.Errorf("%s: %s is %s (%s)", name, u.Name, u.Use, u.Reason)
			}
			names = append(names, u.Name)
		}
		if d := cmp.Diff(src.Names(), names); d != "" {
			t.Errorf("%s: report (-checkpoint +report)\n%s", name, d)
		}
		// Layers, embedding, final norm and head are all there is.
		var elements int64
		for _, n := range src {
			elements += int64(checkpoint.NumElements(n))
		}
		c := m.Config()
		rest := int64(c.Vocab*c.Hidden + c.Hidden)
		if !c.Tied {
			rest += int64(c.Vocab * c.Hidden)
		}
		for i := range c.Layers {
			rest += m.LayerElements(i)
		}
		if rest != elements {
			t.Errorf("%s: the layers' elements and the rest are %d, the checkpoint has %d", name, rest, elements)
		}
	}
}

func TestCoverageErrors(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(source)
		changes set
		want    []string
	}{
		{name: "missing", change: func(s source) { delete(s, "model.layers.3.mlp.up_proj.weight") },
			want: []string{`tensor "model.layers.3.mlp.up_proj.weight" [192 96] is missing`}},
		{name: "missing norm", change: func(s source) { delete(s, "model.layers.0.pre_feedforward_layernorm.weight") },
			want: []string{`tensor "model.layers.0.pre_feedforward_layernorm.weight" [96] is missing`}},
		{name: "extra", change: func(s source) {
			s["model.layers.0.self_attn.q_proj.bias"] = zeros("model.layers.0.self_attn.q_proj.bias", 128)
		},
			want: []string{`tensor "model.layers.0.self_attn.q_proj.bias" [128] is not part of gemma3`}},
		{name: "adapter", change: func(s source) { s["base_model.lora_A.weight"] = zeros("base_model.lora_A.weight", 8, 96) },
			want: []string{`tensor "base_model.lora_A.weight" [8 96] is not part of gemma3 (a different architecture, or an adapter?)`}},
		{name: "a layer too many", change: func(source) {}, changes: set{"num_hidden_layers": 7, "layer_types": nil, "_sliding_window_pattern": 4},
			want: []string{`tensor "model.layers.7.input_layernorm.weight" [96] is not part of gemma3`, "and 5 more"}},
		{name: "transposed", change: func(s source) {
			s["model.layers.2.mlp.down_proj.weight"] = zeros("model.layers.2.mlp.down_proj.weight", 192, 96)
		},
			want: []string{`tensor "model.layers.2.mlp.down_proj.weight" has shape [192 96], config.json implies [96 192]`}},
		{name: "another width", changes: set{"intermediate_size": 200}, change: func(source) {},
			want: []string{`"model.layers.0.mlp.gate_proj.weight" has shape [192 96], config.json implies [200 96]`}},
		{name: "integers", change: func(s source) {
			s["model.norm.weight"] = checkpoint.NewInt32("model.norm.weight", []int{96}, make([]int32, 96))
		},
			want: []string{`tensor "model.norm.weight" has dtype I32`, "already quantized"}},
		{name: "several", change: func(s source) {
			delete(s, "model.norm.weight")
			s["x"] = zeros("x", 1)
			s["model.layers.0.self_attn.q_norm.weight"] = zeros("model.layers.0.self_attn.q_norm.weight", 31)
		},
			want: []string{`"model.norm.weight" [96] is missing`, `"x" [1] is not part`, `q_norm.weight" has shape [31]`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src := load(t, "gemma3")
			tt.change(src)
			_, err := models.New(bytes.NewReader(config(t, "gemma3", tt.changes)), src)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("got %v, want %q in it", err, w)
				}
			}
		})
	}
}

// TestHeadAgainstTie: a stored head that config.json ties must be the
// embedding.
func TestHeadAgainstTie(t *testing.T) {
	for name, head := range map[string]checkpoint.Tensor{
		"values": zeros("lm_head.weight", 512, 96),
		"shape":  zeros("lm_head.weight", 96, 512),
	} {
		src := load(t, "gemma3")
		src["lm_head.weight"] = head
		_, err := models.New(bytes.NewReader(config(t, "gemma3", nil)), src)
		if err == nil || !strings.Contains(err.Error(), `"lm_head.weight" differs from "model.embed_tokens.weight"`) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestWaived(t *testing.T) {
	src := load(t, "gemma3")
	src["lm_head.weight"] = checkpoint.Rename(src["model.embed_tokens.weight"], "lm_head.weight")
	src["model.layers.0.self_attn.rotary_emb.inv_freq"] = zeros("model.layers.0.self_attn.rotary_emb.inv_freq", 16)
	waived := map[string]string{}
	for _, u := range model(t, "gemma3", nil, src).Weights() {
		if u.Use == models.Waived {
			waived[u.Name] = u.Reason
		}
	}
	want := map[string]string{
		"lm_head.weight": "the head is tied to model.embed_tokens.weight",
		"model.layers.0.self_attn.rotary_emb.inv_freq": "RoPE frequencies are computed from config.json",
	}
	if d := cmp.Diff(want, waived); d != "" {
		t.Error(d)
	}
}

// TestMultimodal loads the text part of a checkpoint that has a vision part,
// as published: nested config, prefixed names.
func TestMultimodal(t *testing.T) {
	plain := load(t, "gemma3")
	for _, prefix := range []string{"language_model.", "model.language_model."} {
		dir := t.TempDir()
		text := config(t, "gemma3", set{"architectures": nil, "eos_token_id": nil, "bos_token_id": nil})
		outer, err := json.Marshal(set{"architectures": []string{"Gemma3ForConditionalGeneration"}, "model_type": "gemma3",
			"text_config": json.RawMessage(text), "vision_config": set{"hidden_size": 8}, "mm_tokens_per_image": 4,
			"eos_token_id": []int{1, 106}, "bos_token_id": 2})
		if err != nil {
			t.Fatal(err)
		}
		var tensors []checkpoint.Tensor
		for _, n := range plain.Names() {
			shown := prefix + n
			if prefix == "model.language_model." {
				shown = prefix + strings.TrimPrefix(n, "model.")
			}
			tensors = append(tensors, checkpoint.Rename(plain[n], shown))
		}
		tensors = append(tensors, zeros("vision_tower.encoder.layers.0.weight", 8, 8), zeros("multi_modal_projector.weight", 8, 96))
		err = errors.Join(
			os.WriteFile(filepath.Join(dir, "config.json"), outer, 0o644),
			checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), tensors, nil))
		if err != nil {
			t.Fatal(err)
		}
		c, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		m, err := models.New(bytes.NewReader(outer), c.Text())
		if err != nil {
			t.Fatalf("%s: %v", prefix, err)
		}
		want := parse(t, config(t, "gemma3", nil))
		want.EOS, want.ModelType = []int{1, 106}, "gemma3_text"
		if d := cmp.Diff(want, m.Config()); d != "" {
			t.Errorf("%s: config (-plain +multimodal)\n%s", prefix, d)
		}
		if got := len(m.Weights()); got != len(plain) {
			t.Errorf("%s: %d tensors, want %d", prefix, got, len(plain))
		}
		if n := len(c.Text().Waived()); n != 2 {
			t.Errorf("%s: %d tensors set aside, want 2", prefix, n)
		}
	}
}

// TestUnusableWeights: contents are checked when they are read, and named.
func TestUnusableWeights(t *testing.T) {
	for name, x := range map[string]float32{"NaN": float32(math.NaN()), "+Inf": float32(math.Inf(1))} {
		src := load(t, "gemma3")
		const tensor = "model.layers.1.mlp.up_proj.weight"
		data := make([]float32, 192*96)
		data[777] = x
		src[tensor] = checkpoint.NewFloat32(tensor, []int{192, 96}, data)
		m := model(t, "gemma3", nil, src)
		i := slices.IndexFunc(build(t, m, decodePart(t, m, 0, 2)).Body.Ops, func(o *mil.Op) bool { return o.Name == "model_layers_1_mlp_up_proj_weight" })
		if i < 0 {
			t.Fatal("the weight's const is not in the graph")
		}
		_, err := mil.ConstBytes(build(t, m, decodePart(t, m, 0, 2)).Body.Ops[i].Out().Const)
		if want := `tensor "` + tensor + `": element 777 is ` + name; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
