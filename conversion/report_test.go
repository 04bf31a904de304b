package conversion_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
)

// TestReport: the report says what is in the files.
func TestReport(t *testing.T) {
	src := variant(t, "gemma3", func(all map[string]checkpoint.Tensor) {
		all["lm_head.weight"] = checkpoint.Rename(all["model.embed_tokens.weight"], "lm_head.weight")
	}, map[string]any{"attention_multiplier": 1.5})
	if err := os.WriteFile(filepath.Join(src, "generation_config.json"), []byte(`{"eos_token_id": [1, 106]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	out, r := convert(t, src, conversion.Options{Layers: "0-3,3-4,4-8", IgnoreKeys: []string{"attention_multiplier"}})

	if r.Architecture != "gemma3" || r.Used != 106 || r.ResidualScale != 1 {
		t.Errorf("report %+v", r)
	}
	if d := cmp.Diff([]conversion.WaivedTensor{{Name: "lm_head.weight", Reason: "the head is tied to model.embed_tokens.weight"}}, r.Waived); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"attention_multiplier"}, r.Ignored); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"config.json", "generation_config.json"}, r.Files); d != "" {
		t.Error(d)
	}
	if r.Probe == nil || r.Probe.Tokens != 16 || r.Probe.Residual <= 0 || r.Probe.Sites["mlp_act"] <= 0 {
		t.Errorf("probe %+v", r.Probe)
	}
	c := r.Contract()
	if d := cmp.Diff([]int{1, 106}, c.Model.EOS); d != "" {
		t.Errorf("end tokens of both files: %s", d)
	}
	var layers [][2]int
	got := files(t, out)
	for i, ch := range r.Chunks {
		layers = append(layers, ch.Layers)
		pkg := c.Chunks[i].File + "/Data/com.apple.CoreML/"
		if n := int64(len(got[pkg+"weights/weight.bin"])); n != ch.Weights {
			t.Errorf("%s: weights of %d bytes, the report says %d", ch.Name, n, ch.Weights)
		}
		if n := int64(len(got[pkg+"model.mlmodel"])); n != ch.Model {
			t.Errorf("%s: a model file of %d bytes, the report says %d", ch.Name, n, ch.Model)
		}
		if d := cmp.Diff([]string{"decode", "prefill_64", "verify_4"}, ch.Functions); d != "" {
			t.Error(d)
		}
		// Three functions use every weight; two of the uses take no bytes.
		if ch.Shared < ch.Weights || ch.Ops == 0 {
			t.Errorf("%s: %d bytes shared of %d, %d ops", ch.Name, ch.Shared, ch.Weights, ch.Ops)
		}
	}
	if d := cmp.Diff([][2]int{{0, 3}, {3, 4}, {4, 8}}, layers); d != "" {
		t.Error(d)
	}
	var back conversion.Report
	if err := json.Unmarshal([]byte(got[chunking.ReportFile]), &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(*r, back, cmpopts.IgnoreUnexported(conversion.Report{})); d != "" {
		t.Errorf("report.json (-returned +file)\n%s", d)
	}
	read, err := chunking.ReadContract(out)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(c, read); d != "" {
		t.Errorf("contract.json (-returned +file)\n%s", d)
	}
}

// TestDefaults: the context follows the model, and functions the context.
func TestDefaults(t *testing.T) {
	_, r := convert(t, fixture(t, "llama-tied"), conversion.Options{})
	c := r.Contract()
	if c.Context != 256 || c.Compute != "fp16" || c.KV != chunking.KVTensor || c.Embedding.Mode != chunking.EmbedSidecar || len(c.Chunks) != 1 {
		t.Errorf("defaults: context %d, %s, %s, %s, %d chunks", c.Context, c.Compute, c.KV, c.Embedding.Mode, len(c.Chunks))
	}
	_, r = convert(t, fixture(t, "llama-tied"), conversion.Options{Context: 3})
	var names []string
	for _, f := range r.Contract().Chunks[0].Functions {
		names = append(names, f.Name)
	}
	if d := cmp.Diff([]string{"decode", "prefill_3", "verify_3"}, names); d != "" {
		t.Error(d)
	}
}

// TestMaxChunkBytes: no weight file is larger than asked for.
func TestMaxChunkBytes(t *testing.T) {
	const limit = 400_000
	out, r := convert(t, fixture(t, "gemma3"), conversion.Options{MaxChunkBytes: limit})
	if len(r.Chunks) < 3 {
		t.Errorf("%d chunks", len(r.Chunks))
	}
	for name, data := range files(t, out) {
		// Norms, masks of constants and padding come on top of the weights.
		if strings.HasSuffix(name, "weight.bin") && len(data) > limit*102/100 {
			t.Errorf("%s has %d bytes", name, len(data))
		}
	}
}

// TestResidualScale: the probe picks the largest power of two that keeps the
// stream a factor of four below the end of fp16.
func TestResidualScale(t *testing.T) {
	for _, gain := range []float32{1, 1 << 12, 1 << 15} {
		src := variant(t, "llama3-scaled", func(all map[string]checkpoint.Tensor) {
			values(t, all, "model.embed_tokens.weight", func(_ int, x float32) float32 { return x * gain })
		}, nil)
		out, r := convert(t, src, conversion.Options{})
		top := float64(r.Probe.Residual) * conversion.ProbeHeadroom
		scale := 1.0
		for scale*top > 65504 {
			scale /= 2
		}
		if r.ResidualScale != scale || r.Probe.Scale != scale {
			t.Errorf("gain %g: residual %g, scale %g, want %g", gain, r.Probe.Residual, r.ResidualScale, scale)
		}
		if gain >= 1<<15 && scale == 1 {
			t.Errorf("gain %g: nothing was scaled (residual %g)", gain, r.Probe.Residual)
		}
		c, err := chunking.ReadContract(out)
		if err != nil {
			t.Fatal(err)
		}
		if c.ResidualScale != scale || c.Embedding.Scale != scale {
			t.Errorf("contract: residual scale %g, embedding scale %g, want %g", c.ResidualScale, c.Embedding.Scale, scale)
		}
	}
	_, r := convert(t, fixture(t, "llama-tied"), conversion.Options{ResidualScale: 1.0 / 16})
	if r.Probe != nil || r.ResidualScale != 1.0/16 {
		t.Errorf("a given scale: %g, probe %+v", r.ResidualScale, r.Probe)
	}
	_, r = convert(t, fixture(t, "llama-tied"), conversion.Options{Compute: "fp32"})
	if r.Probe != nil || r.ResidualScale != 1 {
		t.Errorf("fp32: %g, probe %+v", r.ResidualScale, r.Probe)
	}
}

// TestMultimodal: the text part of a multimodal checkpoint gives the packages
// of the text model alone.
func TestMultimodal(t *testing.T) {
	plain := fixture(t, "gemma3")
	config, err := os.ReadFile(filepath.Join(plain, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var text map[string]any
	if err := json.Unmarshal(config, &text); err != nil {
		t.Fatal(err)
	}
	delete(text, "architectures")
	outer, err := json.Marshal(map[string]any{"architectures": []string{"Gemma3ForConditionalGeneration"}, "model_type": "gemma3",
		"text_config": text, "vision_config": map[string]any{"hidden_size": 8}, "mm_tokens_per_image": 4})
	if err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(plain)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var tensors []checkpoint.Tensor
	for _, n := range c.Names() {
		x, _ := c.Tensor(n)
		tensors = append(tensors, checkpoint.Rename(x, "language_model."+n))
	}
	tensors = append(tensors, checkpoint.NewFloat32("vision_tower.patch.weight", []int{4}, make([]float32, 4)))
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "config.json"), outer, 0o644),
		checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), tensors, nil)); err != nil {
		t.Fatal(err)
	}
	o := conversion.Options{Chunks: 2}
	out, r := convert(t, dir, o)
	want, _ := convert(t, plain, o)
	if d := cmp.Diff([]conversion.WaivedTensor{{Name: "vision_tower.patch.weight", Reason: "vision encoder"}}, r.Waived); d != "" {
		t.Error(d)
	}
	a, b := files(t, want), files(t, out)
	compared := 0
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if strings.Contains(name, ".mlpackage/") || name == chunking.EmbeddingFile {
			compared++
			if a[name] != b[name] {
				t.Errorf("%s differs from that of the text model", name)
			}
		}
	}
	if compared != 7 {
		t.Errorf("%d files compared", compared)
	}
}
