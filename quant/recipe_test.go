package quant

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/checkpoint"
)

func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"lm_head", "lm_head", true},
		{"lm_head", "lm_head2", false},
		{"model.layers.*.mlp.up_proj", "model.layers.12.mlp.up_proj", true},
		{"model.layers.*.up_proj", "model.layers.12.mlp.up_proj", false},
		{"model.layers.**.up_proj", "model.layers.12.mlp.up_proj", true},
		{"**", "a.b.c", true},
		{"*", "a.b", false},
		{"*.b*", "a.bc", true},
		{"a*c*e", "abcde", true},
		{"a*c*e", "abde", false},
		{"", "", true},
	} {
		if got := glob(tt.pattern, tt.s); got != tt.want {
			t.Errorf("glob(%q, %q) = %v", tt.pattern, tt.s, got)
		}
	}
}

func TestClassify(t *testing.T) {
	for name, want := range map[string]struct {
		c     Class
		layer int
	}{
		"model.embed_tokens.weight":                                     {Embedding, -1},
		"lm_head.weight":                                                {Head, -1},
		"model.norm.weight":                                             {Norm, -1},
		"model.layers.3.self_attn.q_proj.weight":                        {Query, 3},
		"model.layers.3.self_attn.q_proj.bias":                          {Bias, 3},
		"model.layers.3.self_attn.q_norm.weight":                        {Norm, 3},
		"model.layers.13.mlp.gate_proj.weight":                          {Gate, 13},
		"model.layers.0.mlp.gate.weight":                                {Router, 0},
		"model.layers.0.mlp.switch_mlp.down_proj.weight":                {Down, 0},
		"language_model.model.layers.7.post_attention_layernorm.weight": {Norm, 7},
		"model.layers.2.layer_scalar":                                   {Other, 2},
	} {
		if c, l := Classify(name); c != want.c || l != want.layer {
			t.Errorf("%s: %s in layer %d, want %s in %d", name, c, l, want.c, want.layer)
		}
	}
}

func targets(layers int) []Target {
	var out []Target
	add := func(path string, shape ...int) {
		c, l := Classify(path + ".weight")
		out = append(out, Target{Path: path, Class: c, Layer: l, DType: checkpoint.BF16, Shape: shape, Weight: len(shape) > 1})
	}
	add("model.embed_tokens", 256, 64)
	add("lm_head", 256, 64)
	for i := range layers {
		p := "model.layers." + string(rune('0'+i/10)) + string(rune('0'+i%10))
		p = strings.Replace(p, "layers.0", "layers.", 1)
		add(p+".self_attn.v_proj", 64, 64)
		add(p+".self_attn.o_proj", 64, 64)
		add(p+".mlp.down_proj", 64, 128)
		add(p+".input_layernorm", 64)
	}
	return out
}

// mlx-lm gives the higher width to these layers of 16: 16/8 = 2 at each end, and
// every third between.
func TestMixedPreset(t *testing.T) {
	r, err := Preset("mixed_3_6", 16)
	if err != nil {
		t.Fatal(err)
	}
	ts := targets(16)
	choices, err := r.Plan(ts)
	if err != nil {
		t.Fatal(err)
	}
	var high []int
	for i, c := range choices {
		switch ts[i].Class {
		case Norm:
			if !c.Keep {
				t.Errorf("%s is not kept", ts[i].Path)
			}
		case Head:
			if c.Format.Bits != 6 {
				t.Errorf("%s has %d bits", ts[i].Path, c.Format.Bits)
			}
		case Down:
			if c.Format.Bits == 6 {
				high = append(high, ts[i].Layer)
			}
		case Output, Embedding:
			if c.Format.Bits != 3 {
				t.Errorf("%s has %d bits", ts[i].Path, c.Format.Bits)
			}
		}
	}
	if d := cmp.Diff([]int{0, 1, 4, 7, 10, 13, 14, 15}, high); d != "" {
		t.Errorf("layers with 6 bits: %s", d)
	}
}

func TestRecipeRoundTrip(t *testing.T) {
	for _, name := range Presets() {
		r, err := Preset(name, 12)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseRecipe(r.Marshal())
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, r.Marshal())
		}
		if d := cmp.Diff(r, back); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestRecipeErrors(t *testing.T) {
	for _, tt := range []struct{ recipe, want string }{
		{`{}`, `target is "" (want mlx or coreml)`},
		{`{"target": "mlx", "default": {"codec": "affine", "bits": 4, "group_size": 64}} x`, "text after the object"},
		{`{"target": "mlx", "default": {"codec": "lut", "bits": 4}}`, `codec "lut" is unknown to MLX`},
		{`{"target": "mlx", "default": {"codec": "nvfp4", "group_size": 32}}`, "codec nvfp4 has 4 bits and groups of 16 only"},
		{`{"target": "mlx", "default": {"codec": "affine", "bits": 4, "group_size": 64, "unsigned": true}}`, "codec affine has no granularity"},
		{`{"target": "mlx", "default": {"codec": "affine", "bits": 4, "group_size": 64, "method": "gptq"}}`, `method "gptq" is unknown`},
		{`{"target": "mlx", "default": {"codec": "affine", "bits": 4, "group_size": 64}, "rules": [{"bits": 3}]}`, "rule 0: names no tensors"},
		{`{"target": "mlx", "default": {"codec": "affine", "bits": 4, "group_size": 64}, "rules": [{"class": ["router"], "keep": true, "bits": 3}]}`, "keep and a format exclude each other"},
		{`{"target": "mlx", "default": {"codec": "affine", "bits": 4, "group_size": 64}, "rules": [{"class": ["query"]}]}`, `class "query" is unknown`},
		{`{"target": "mlx", "default": {"codec": "affine", "bits": 4, "group_size": 64}, "rules": [{"path": ["lm_head.weight"]}]}`, "want a module path"},
		{`{"target": "coreml", "default": {"codec": "palette", "bits": 5}}`, "palettes have no 5-bit codes"},
		{`{"target": "coreml", "default": {"codec": "linear", "bits": 4, "granularity": "tensor", "group_size": 32}}`, "group_size is 32 with granularity tensor"},
	} {
		if _, err := ParseRecipe([]byte(tt.recipe)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.recipe, err, tt.want)
		}
	}
}

func TestPlanErrors(t *testing.T) {
	r := Uniform(4, 128)
	r.Rules = append(r.Rules, Rule{Path: []string{"model.layers.*.mlp.up_proj"}, Format: Format{Bits: 8}},
		Rule{Path: []string{"model.layers.0.input_layernorm"}, Format: Format{Bits: 8}})
	_, err := r.Plan(targets(1))
	for _, want := range []string{
		"model.embed_tokens: the last dimension is 64, which groups of 128 do not divide",
		"model.layers.0.input_layernorm: shape [64] is not the weight",
		"rule 1 (path [model.layers.*.mlp.up_proj]) applies to no tensor",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}
