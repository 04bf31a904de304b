package mlx_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/mlx"
	"github.com/smelt-go/smelt/quant"
)

func fixture(t *testing.T, name string) string {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func config(t *testing.T, dir string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// What is read back is what the codec decodes: every value within half a step of
// the source, and every file is where mlx-lm looks for it.
func TestRoundTrip(t *testing.T) {
	src := fixture(t, "llama-tied")
	out := filepath.Join(t.TempDir(), "q")
	rep, err := mlx.Quantize(context.Background(), src, out, mlx.Options{Recipe: quant.Uniform(8, 32)})
	if err != nil {
		t.Fatal(err)
	}
	d, err := mlx.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	original, err := checkpoint.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer original.Close()
	if len(d.Modules) != 36 {
		t.Errorf("%d quantized modules, want 36", len(d.Modules))
	}
	var size int64
	for _, name := range d.Names() {
		x, _ := d.Tensor(name)
		y, ok := original.Tensor(name)
		if !ok {
			t.Fatalf("the source has no tensor %q", name)
		}
		a, err := checkpoint.ReadAll(x)
		if err != nil {
			t.Fatal(err)
		}
		b, err := checkpoint.ReadAll(y)
		if err != nil {
			t.Fatal(err)
		}
		var peak, worst float64
		for i := range a {
			peak = max(peak, float64(max(b[i], -b[i])))
			worst = max(worst, float64(max(a[i]-b[i], b[i]-a[i])))
		}
		if worst > peak/64 {
			t.Errorf("%s: an element is off by %g of at most %g", name, worst, peak)
		}
		// In float32 the values are those that mx.dequantize rounds.
		z, _ := d.Float32().Tensor(name)
		c, err := checkpoint.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c {
			// Two roundings to eight bits, of a product up to twice the peak.
			if math.Abs(float64(c[i]-a[i])) > peak/64 || len(x.Shape()) == 1 && a[i] != c[i] {
				t.Errorf("%s: element %d is %g in float32, %g rounded", name, i, c[i], a[i])
				break
			}
		}
		// Reads at any offset and as bytes agree.
		part := make([]float32, min(37, len(a)))
		if err := x.ReadFloat32(part, len(a)-len(part)); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(a[len(a)-len(part):], part); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		var raw bytes.Buffer
		if n, err := x.WriteTo(&raw); err != nil || n != checkpoint.NumBytes(x) {
			t.Errorf("%s: wrote %d bytes of %d: %v", name, n, checkpoint.NumBytes(x), err)
		}
	}
	for _, m := range d.Modules {
		size += m.Bytes
	}
	// 11 norms of 96 bfloat16 weights.
	if size+11*96*2 != rep.Bytes || rep.Parameters != 495648 {
		t.Errorf("%d parameters, %d bytes in modules, %d in all", rep.Parameters, size, rep.Bytes)
	}
}

func TestBlock(t *testing.T) {
	src := fixture(t, "tiny-gemma3-target")
	out := filepath.Join(t.TempDir(), "q")
	r := quant.Uniform(4, 64)
	r.Rules = []quant.Rule{
		{Class: []quant.Class{quant.Embedding}, Keep: true},
		{Path: []string{"model.layers.3.mlp.down_proj"}, Format: quant.Format{Bits: 6, GroupSize: 32}},
		{Path: []string{"model.layers.*.self_attn.v_proj"}, Layers: []int{1}, Format: quant.Format{Codec: "nvfp4"}},
	}
	if _, err := mlx.Quantize(context.Background(), src, out, mlx.Options{Recipe: r}); err != nil {
		t.Fatal(err)
	}
	c := config(t, out)
	want := map[string]any{
		"bits": 4.0, "group_size": 64.0, "mode": "affine",
		"model.embed_tokens":              false,
		"model.layers.3.mlp.down_proj":    map[string]any{"bits": 6.0, "group_size": 32.0, "mode": "affine"},
		"model.layers.1.self_attn.v_proj": map[string]any{"bits": 4.0, "group_size": 16.0, "mode": "nvfp4"},
	}
	for _, key := range []string{"quantization", "quantization_config"} {
		if d := cmp.Diff(want, c[key]); d != "" {
			t.Errorf("%s: %s", key, d)
		}
	}
	// A directory that says other bits than it has is refused.
	path := filepath.Join(out, "config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Replace(data, []byte(`"bits": 6`), []byte(`"bits": 5`), 1)
	if err := os.WriteFile(path, bad, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = mlx.Open(out)
	if err == nil || !strings.Contains(err.Error(), "module model.layers.3.mlp.down_proj: weight is U32 [128 72], affine 5-bit g32 wants U32 [128 60]") {
		t.Errorf("error %v", err)
	}
}

// Mixtures of experts: the matrices of a layer become one stack, as mlx-lm's
// sanitize makes it, and the router has 8 bits.
func TestExperts(t *testing.T) {
	src := t.TempDir()
	var tensors []checkpoint.Tensor
	add := func(name string, scale float32, shape ...int) {
		w := make([]float32, shape[0]*shape[1])
		for i := range w {
			w[i] = scale * float32(i%97-48)
		}
		tensors = append(tensors, checkpoint.AsType(checkpoint.NewFloat32(name, shape, w), checkpoint.BF16))
	}
	add("model.layers.0.mlp.gate.weight", 0.01, 12, 64)
	for e := range 12 {
		for _, n := range []string{"gate_proj", "up_proj", "down_proj"} {
			add("model.layers.0.mlp.experts."+strconv.Itoa(e)+"."+n+".weight", float32(e+1)/100, 64, 64)
		}
	}
	if err := checkpoint.WriteSharded(src, tensors, nil, 0); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(src, "config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"model_type": "qwen3_moe", "num_hidden_layers": 1, "tie_word_embeddings": true}`)
	out := filepath.Join(t.TempDir(), "q")
	if _, err := mlx.Quantize(context.Background(), src, out, mlx.Options{Recipe: quant.Uniform(4, 64)}); err != nil {
		t.Fatal(err)
	}
	d, err := mlx.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var got []string
	for _, m := range d.Modules {
		got = append(got, m.Path+" "+m.Codec.String())
	}
	want := []string{
		"model.layers.0.mlp.gate affine 8-bit g64",
		"model.layers.0.mlp.switch_mlp.down_proj affine 4-bit g64",
		"model.layers.0.mlp.switch_mlp.gate_proj affine 4-bit g64",
		"model.layers.0.mlp.switch_mlp.up_proj affine 4-bit g64",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	x, _ := d.Tensor("model.layers.0.mlp.switch_mlp.up_proj.weight")
	if diff := cmp.Diff([]int{12, 64, 64}, x.Shape()); diff != "" {
		t.Error(diff)
	}
	w, err := checkpoint.ReadAll(x)
	if err != nil {
		t.Fatal(err)
	}
	// Element 0 of expert e is −48·(e+1)/100, the end of its group's range.
	for e := range 12 {
		if v, want := w[e*64*64], -0.48*float32(e+1); v > want*0.98 || v < want*1.02 {
			t.Errorf("expert %d starts with %g, want %g", e, v, want)
		}
	}
	write(`{"model_type": "llama4", "num_hidden_layers": 1}`)
	rep, err := mlx.Quantize(context.Background(), src, filepath.Join(t.TempDir(), "q"), mlx.Options{Recipe: quant.Uniform(4, 64)})
	if err != nil || len(rep.Warnings) != 1 || !strings.Contains(rep.Warnings[0], `model type "llama4" is not known here`) {
		t.Errorf("warnings %v, error %v", rep, err)
	}
}

// A failed run leaves nothing behind.
func TestNothingIsLeft(t *testing.T) {
	src := t.TempDir()
	w := make([]float32, 64*64)
	w[100] = float32(math.Inf(1))
	tensors := []checkpoint.Tensor{checkpoint.NewFloat32("model.embed_tokens.weight", []int{64, 64}, w)}
	if err := checkpoint.WriteSharded(src, tensors, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "config.json"), []byte(`{"model_type": "llama"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	_, err := mlx.Quantize(context.Background(), src, filepath.Join(parent, "q"), mlx.Options{Recipe: quant.Uniform(4, 64)})
	if err == nil || !strings.Contains(err.Error(), `tensor "model.embed_tokens.weight": element 100 is infinite`) {
		t.Errorf("error %v", err)
	}
	left, err := os.ReadDir(parent)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := mlx.Quantize(ctx, fixture(t, "llama-tied"), filepath.Join(parent, "q"), mlx.Options{Recipe: quant.Uniform(4, 32)}); err == nil {
		t.Error("a cancelled run succeeded")
	}
	if left, _ := os.ReadDir(parent); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
