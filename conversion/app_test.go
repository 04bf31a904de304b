package conversion_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/models"
)

// app converts a fixture into an app's bundle.
func app(t *testing.T, name string) (src, out string, c *chunking.Contract) {
	src = fixture(t, name)
	out, r := convert(t, src, conversion.Options{Bundle: conversion.BundleCoreMLLLM, Context: 64, Functions: functions(t, "decode,verify:3,prefill:8")})
	return src, out, r.Contract()
}

// TestAppFiles: every file that the app loads is there, of the size that the
// formula says, and the bundle runs.
func TestAppFiles(t *testing.T) {
	src, out, c := app(t, "gemma4-e2b")
	data, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := models.ParseConfig(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	sizes := conversion.AppSizes(cfg, 64)
	// The formula in the numbers of this model: 10 layers of 80, vocabulary 512.
	for name, want := range map[string]int64{
		"embed_tokens_q8.bin": 512 * 80, "embed_tokens_scales.bin": 2 * 512,
		"embed_tokens_per_layer_q8.bin": 512 * 160, "embed_tokens_per_layer_scales.bin": 2 * 512,
		"per_layer_projection.bin": 2 * 160 * 80, "per_layer_norm_weight.bin": 2 * 16,
		"cos_sliding.npy": 128 + 4096*16*2, "sin_sliding.npy": 128 + 4096*16*2,
		"cos_full.npy": 128 + 4096*32*2, "sin_full.npy": 128 + 4096*32*2,
	} {
		if sizes[name] != want {
			t.Errorf("%s: the formula says %d, want %d", name, sizes[name], want)
		}
		delete(sizes, name)
		info, err := os.Stat(filepath.Join(out, name))
		if err != nil {
			t.Error(err)
		} else if info.Size() != want {
			t.Errorf("%s has %d bytes, want %d", name, info.Size(), want)
		}
	}
	if len(sizes) > 0 {
		t.Errorf("sizes of %v, which are not expected", sizes)
	}
	for _, name := range []string{"chunk1.mlpackage", "chunk2_3way.mlpackage", "chunk3_3way.mlpackage", "hf_model/config.json", chunking.ManifestFile} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	a, err1 := os.Stat(filepath.Join(out, "hf/config.json"))
	b, err2 := os.Stat(filepath.Join(out, "hf_model/config.json"))
	if err1 != nil || err2 != nil || !os.SameFile(a, b) {
		t.Errorf("hf_model/config.json is no link to hf/config.json (%v, %v)", err1, err2)
	}
	for _, f := range c.Chunks[0].Functions {
		if want := map[bool]string{true: "CPU_AND_GPU", false: "CPU_AND_NE"}[f.Kind == chunking.Prefill]; f.ComputeUnits != want {
			t.Errorf("%s: hint %q, want %q", f.Name, f.ComputeUnits, want)
		}
	}
	e, err := engine.Open(out, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.NewSession().Decode(3); err != nil {
		t.Error(err)
	}
}

// TestAppRows reads the tables as the app does, int8·scale/127, and holds them
// against the checkpoint.
func TestAppRows(t *testing.T) {
	src, out, _ := app(t, "gemma4-e4b")
	ck, err := checkpoint.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	view := ck.Text()
	for file, name := range map[string]string{"embed_tokens": "model.embed_tokens.weight", "embed_tokens_per_layer": "model.embed_tokens_per_layer.weight"} {
		x, _ := view.Tensor(name)
		want, err := checkpoint.ReadAll(x)
		if err != nil {
			t.Fatal(err)
		}
		codes, err1 := os.ReadFile(filepath.Join(out, file+"_q8.bin"))
		scales, err2 := os.ReadFile(filepath.Join(out, file+"_scales.bin"))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		width := x.Shape()[1]
		for r := range x.Shape()[0] {
			scale := half.ToF32(binary.LittleEndian.Uint16(scales[2*r:]))
			full := false
			for i, w := range want[r*width : (r+1)*width] {
				q := int8(codes[r*width+i])
				full = full || q == 127 || q == -127
				// Half a step, and what fp16 takes off the largest.
				if got := float32(q) * scale / 127; math.Abs(float64(got-w)) > float64(scale)*(0.5/127+1.0/2048) {
					t.Fatalf("%s: row %d element %d is %g, want %g within half a step of %g", file, r, i, got, w, scale/127)
				}
			}
			if !full {
				t.Fatalf("%s: row %d does not use the range", file, r)
			}
		}
	}
	for file, name := range map[string]string{"per_layer_projection.bin": "model.per_layer_model_projection.weight", "per_layer_norm_weight.bin": "model.per_layer_projection_norm.weight"} {
		x, _ := view.Tensor(name)
		want, err := checkpoint.ReadAll(x)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(out, file))
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if got := half.ToF32(binary.LittleEndian.Uint16(raw[2*i:])); math.Abs(float64(got-w)) > 1e-3*math.Abs(float64(w))+1e-7 {
				t.Fatalf("%s: element %d is %g, want %g", file, i, got, w)
			}
		}
	}
}

// TestAppRope reads the .npy files: shape, and rows that rotate what they
// should and leave the tail of full layers alone.
func TestAppRope(t *testing.T) {
	_, out, c := app(t, "gemma4-e2b")
	for kind, dim := range map[models.Kind]int{models.Sliding: 16, models.Full: 32} {
		for _, fn := range []string{"cos", "sin"} {
			raw, err := os.ReadFile(filepath.Join(out, fn+"_"+string(kind)+".npy"))
			if err != nil {
				t.Fatal(err)
			}
			n := 10 + int(binary.LittleEndian.Uint16(raw[8:]))
			head := string(raw[10:n])
			if string(raw[:8]) != "\x93NUMPY\x01\x00" || n%64 != 0 || !strings.HasSuffix(head, "\n") ||
				!strings.Contains(head, "'descr': '<f2'") || !strings.Contains(head, map[int]string{16: "(4096, 16)", 32: "(4096, 32)"}[dim]) {
				t.Fatalf("%s %s: header %q", fn, kind, head)
			}
			f := map[string]func(float64) float64{"cos": math.Cos, "sin": math.Sin}[fn]
			still := 0
			for _, p := range []int{0, 1, 17, 4095} {
				for i := range dim {
					freq := c.Attention[kind].InvFreq[i%(dim/2)]
					got := half.ToF32(binary.LittleEndian.Uint16(raw[n+2*(p*dim+i):]))
					if want := f(float64(float32(p) * freq)); math.Abs(float64(got)-want) > 1e-3 {
						t.Fatalf("%s %s: position %d element %d is %g, want %g", fn, kind, p, i, got, want)
					}
					if p == 17 && freq == 0 {
						still++
					}
				}
			}
			if want := map[models.Kind]int{models.Sliding: 0, models.Full: 24}[kind]; still != want {
				t.Errorf("%s %s: %d elements are not rotated, want %d", fn, kind, still, want)
			}
		}
	}
}

// TestAppConfig: all keys that the app may ask for.
func TestAppConfig(t *testing.T) {
	_, out, _ := app(t, "gemma4-e2b")
	data, err := os.ReadFile(filepath.Join(out, conversion.AppConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"architecture": "gemma4", "hidden_size": 80.0, "num_hidden_layers": 10.0, "num_layers": 10.0, "num_attention_heads": 4.0,
		"num_key_value_heads": 1.0, "head_dim": 16.0, "global_head_dim": 32.0, "vocab_size": 512.0, "context_length": 64.0,
		"sliding_window": 24.0, "per_layer_dim": 16.0, "num_kv_shared_layers": 5.0, "per_layer_embed_scale": 4.0,
		"rms_norm_eps": 1e-6, "bos_token_id": 2.0, "eos_token_id": 1.0, "final_logit_softcapping": 30.0,
		"quantization": "none", "compute_units": "CPU_AND_NE", "tokenizer_repo": "", "model_name": "gemma4",
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	for key, want := range map[string]float64{"embed_scale": math.Sqrt(80), "per_layer_model_projection_scale": 1 / math.Sqrt(80), "per_layer_input_scale": math.Sqrt(0.5)} {
		if v, _ := got[key].(float64); math.Abs(v-want) > 1e-6 {
			t.Errorf("%s is %v, want %g", key, got[key], want)
		}
	}
	types, _ := got["layer_types"].([]any)
	if len(types) != 10 || types[4] != "full_attention" || types[5] != "sliding_attention" {
		t.Errorf("layer_types %v", types)
	}
}

// TestManifest: what is missing, cut off or changed is an error.
func TestManifest(t *testing.T) {
	_, out, _ := app(t, "gemma4-e2b")
	m, err := chunking.ReadManifest(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Check(t.Context(), out, true); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(m.Files, func(f chunking.ManifestEntry) bool { return f.Path == "chunk1.mlpackage/Manifest.json" }) {
		t.Errorf("files %v", m.Files)
	}
	path := filepath.Join(out, "embed_tokens_q8.bin")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		edit func() error
		want string
		deep bool // only the contents tell
	}{
		{"one byte", func() error {
			other := slices.Clone(data)
			other[100]++
			return os.WriteFile(path, other, 0o644)
		}, "embed_tokens_q8.bin has SHA-256 ", true},
		{"cut off", func() error { return os.WriteFile(path, data[:1000], 0o644) }, "embed_tokens_q8.bin has 1000 bytes, manifest.json says 40960", false},
		{"missing", func() error { return os.Remove(path) }, "embed_tokens_q8.bin is missing, which manifest.json lists", false},
	} {
		if err := tt.edit(); err != nil {
			t.Fatal(err)
		}
		if err := m.Check(t.Context(), out, true); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		e, err := engine.Open(out, engine.Options{})
		if err == nil {
			e.Close()
		}
		if tt.deep != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: open: %v", tt.name, err)
		}
	}
}

func TestAppErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    conversion.Options
		want string
	}{
		{"gemma3", conversion.Options{Bundle: conversion.BundleCoreMLLLM}, "bundle coreml-llm is for models with per-layer embeddings, and gemma3 has none"},
		{"gemma4-e2b", conversion.Options{Bundle: "ipa"}, `bundle "ipa" is not known (want coreml-llm)`},
		{"gemma4-e2b", conversion.Options{Bundle: conversion.BundleCoreMLLLM, KV: chunking.KVState}, "bundle coreml-llm needs kv coreml-llm, not state"},
	} {
		_, err := conversion.Convert(t.Context(), fixture(t, tt.name), filepath.Join(t.TempDir(), "b"), tt.o)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}
