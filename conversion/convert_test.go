package conversion_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
)

func fixture(t testing.TB, name string) string {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func convert(t testing.TB, src string, o conversion.Options) (string, *conversion.Report) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "bundle")
	r, err := conversion.Convert(t.Context(), src, out, o)
	if err != nil {
		t.Fatal(err)
	}
	return out, r
}

// files reads everything below dir.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[filepath.ToSlash(rel)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// variant copies a fixture, with other tensors and keys of config.json.
func variant(t testing.TB, name string, tensors func(map[string]checkpoint.Tensor), keys map[string]any) string {
	t.Helper()
	src := fixture(t, name)
	c, err := checkpoint.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := map[string]checkpoint.Tensor{}
	for _, n := range c.Names() {
		all[n], _ = c.Tensor(n)
	}
	if tensors != nil {
		tensors(all)
	}
	var list []checkpoint.Tensor
	for _, n := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[n])
	}
	data, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{}
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	maps.Copy(config, keys)
	if data, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644),
		checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), list, nil))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// values reads a tensor and replaces it by f of every element.
func values(t testing.TB, all map[string]checkpoint.Tensor, name string, f func(i int, x float32) float32) {
	t.Helper()
	v, err := checkpoint.ReadAll(all[name])
	if err != nil {
		t.Fatal(err)
	}
	for i := range v {
		v[i] = f(i, v[i])
	}
	all[name] = checkpoint.NewFloat32(name, all[name].Shape(), v)
}

// TestDeterminism: neither the run nor the number of cores shows in a bundle.
func TestDeterminism(t *testing.T) {
	for name, o := range map[string]conversion.Options{
		"tensor": {Chunks: 3},
		"state":  {Chunks: 2, KV: chunking.KVState, Embed: chunking.EmbedGraph},
		"fp32":   {Compute: "fp32"},
	} {
		for _, model := range []string{"gemma3", "llama3-scaled"} {
			t.Run(name+"/"+model, func(t *testing.T) {
				var first map[string]string
				for _, cores := range []int{1, 2} {
					before := runtime.GOMAXPROCS(cores)
					out, _ := convert(t, fixture(t, model), o)
					runtime.GOMAXPROCS(before)
					got := files(t, out)
					if first == nil {
						first = got
						continue
					}
					if d := cmp.Diff(slices.Sorted(maps.Keys(first)), slices.Sorted(maps.Keys(got))); d != "" {
						t.Fatalf("files differ\n%s", d)
					}
					for f := range first {
						if first[f] != got[f] {
							t.Errorf("%s differs on %d cores", f, cores)
						}
					}
				}
			})
		}
	}
}

// TestReplace: what exists is replaced only on demand, and only if it is a
// bundle.
func TestReplace(t *testing.T) {
	src := fixture(t, "qwen2")
	out, _ := convert(t, src, conversion.Options{})
	before := files(t, out)
	again := func(path string, force bool) error {
		_, err := conversion.Convert(t.Context(), src, path, conversion.Options{Chunks: 2, Force: force})
		return err
	}
	if err := again(out, false); err == nil || !strings.Contains(err.Error(), "exists already (use --force to replace it)") {
		t.Errorf("over a bundle: %v", err)
	}
	if d := cmp.Diff(before, files(t, out)); d != "" {
		t.Error("a refused conversion changed the bundle")
	}
	if err := again(out, true); err != nil {
		t.Errorf("over a bundle, forced: %v", err)
	}
	if got := files(t, out); got["chunk_02.mlpackage/Manifest.json"] == "" {
		t.Error("the forced conversion did not replace the bundle")
	}
	entries, err := os.ReadDir(filepath.Dir(out))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the bundle: %v (%v)", entries, err)
	}

	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "thesis.txt"), []byte("years of work"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := again(other, true); err == nil || !strings.Contains(err.Error(), "is not a bundle") {
		t.Errorf("over another directory, forced: %v", err)
	}
	if _, err := os.Stat(filepath.Join(other, "thesis.txt")); err != nil {
		t.Error(err)
	}
	file := filepath.Join(other, "thesis.txt")
	if err := again(file, true); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("over a file, forced: %v", err)
	}
	if err := again(t.TempDir(), true); err != nil {
		t.Errorf("over an empty directory, forced: %v", err)
	}
}

// TestNothingLeft: a conversion that fails leaves the place as it was.
func TestNothingLeft(t *testing.T) {
	const norm, weight = "model.layers.5.post_attention_layernorm.weight", "model.layers.5.mlp.down_proj.weight"
	spoil := func(tensor string, x float32) string {
		return variant(t, "qwen2", func(all map[string]checkpoint.Tensor) {
			values(t, all, tensor, func(i int, v float32) float32 {
				if i == 11 {
					return x
				}
				return v
			})
		}, nil)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		src  string
		o    conversion.Options
		stop string // cancel when this stage is reported
		want string
	}{
		{name: "NaN weight", src: spoil(weight, nan), o: conversion.Options{Chunks: 3, ResidualScale: 1}, want: `"` + weight + `": element 11 is NaN`},
		{name: "NaN weight met by the probe", src: spoil(weight, nan), want: `"` + weight + `": element 11 is NaN`},
		{name: "infinite norm", src: spoil(norm, inf), o: conversion.Options{ResidualScale: 1}, want: `"` + norm + `": element 11 is -Inf`},
		{name: "weight beyond fp16", src: spoil(weight, 1e9), o: conversion.Options{ResidualScale: 1}, want: "65504"},
		{name: "cancelled before", ctx: cancelled, src: fixture(t, "qwen2"), want: context.Canceled.Error()},
		{name: "cancelled while probing", src: fixture(t, "qwen2"), stop: "probing ranges", want: context.Canceled.Error()},
		{name: "cancelled while writing", src: fixture(t, "qwen2"), o: conversion.Options{Chunks: 2}, stop: "writing chunk_02", want: context.Canceled.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			out := filepath.Join(dir, "bundle")
			for _, existing := range []bool{false, true} {
				var before map[string]string
				if existing {
					if _, err := conversion.Convert(t.Context(), fixture(t, "llama-tied"), out, conversion.Options{}); err != nil {
						t.Fatal(err)
					}
					before = files(t, dir)
				}
				ctx := tt.ctx
				if ctx == nil {
					ctx = t.Context()
				}
				ctx, stop := context.WithCancel(ctx)
				defer stop()
				o := tt.o
				o.Force = existing
				o.Progress = func(stage string, _, _ int64) {
					if stage == tt.stop {
						stop()
					}
				}
				_, err := conversion.Convert(ctx, tt.src, out, o)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				if d := cmp.Diff(before, files(t, dir), cmp.Transformer("names", func(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) })); d != "" {
					t.Errorf("existing %v: left behind (-before +after)\n%s", existing, d)
				}
				entries, err := os.ReadDir(dir)
				if err != nil || len(entries) != len(before)/max(len(before), 1) {
					t.Errorf("existing %v: %v (%v)", existing, entries, err)
				}
			}
		})
	}
}

// TestGenerationConfig: a damaged one is not a missing one.
func TestGenerationConfig(t *testing.T) {
	for text, want := range map[string]string{
		`{"eos_token_id": 1`:       "unexpected end of JSON input",
		`{"eos_token_id": "</s>"}`: "eos_token_id is neither a number nor a list of numbers",
		`{"eos_token_id": null}`:   "",
		`{}`:                       "",
	} {
		src := variant(t, "qwen2", nil, nil)
		if err := os.WriteFile(filepath.Join(src, "generation_config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := conversion.Convert(t.Context(), src, filepath.Join(t.TempDir(), "b"), conversion.Options{ResidualScale: 1})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	src := fixture(t, "gemma3")
	for name, tt := range map[string]struct {
		src  string
		o    conversion.Options
		want string
	}{
		"no directory":     {src: filepath.Join(t.TempDir(), "gone"), want: "is not a Hugging Face model directory"},
		"two cuts":         {o: conversion.Options{Chunks: 2, Layers: "0-8"}, want: "give only one of chunks, layers and topology"},
		"negative bytes":   {o: conversion.Options{MaxChunkBytes: -1}, want: "max-chunk-bytes is -1"},
		"too small chunks": {o: conversion.Options{MaxChunkBytes: 1000}, want: "no cut has chunks of at most 1000 bytes"},
		"too many chunks":  {o: conversion.Options{Chunks: 9}, want: "the model has 8 layers"},
		"topology, layers": {o: conversion.Options{Topology: "2", Layers: "0-8"}, want: "give only one of chunks, layers and topology"},
		"topology, limit":  {o: conversion.Options{Topology: "2", MaxLayers: 4}, want: "give only one (or topology auto)"},
		"no sharing":       {o: conversion.Options{Topology: "coreml-llm-3"}, want: "needs a model whose last layers share keys and values"},
		"bad layers":       {o: conversion.Options{Layers: "0-3,4-8"}, want: "expected one that starts at 3"},
		"long context":     {o: conversion.Options{Context: 1024}, want: "context 1024 exceeds max_position_embeddings 512"},
		"unknown kv":       {o: conversion.Options{KV: "none"}, want: `kv "none" is not known`},
		"untied head":      {src: fixture(t, "llama3-scaled"), o: conversion.Options{Embed: chunking.EmbedHead}, want: "the head of this model is not its embedding table"},
		"fp32 states":      {o: conversion.Options{KV: chunking.KVState, Compute: "fp32"}, want: "states are fp16 only"},
		"odd scale":        {o: conversion.Options{ResidualScale: 0.3}, want: "residual_scale 0.3 is not a power of two"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.src == "" {
				tt.src = src
			}
			dir := t.TempDir()
			_, err := conversion.Convert(t.Context(), tt.src, filepath.Join(dir, "b"), tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if entries, _ := os.ReadDir(dir); len(entries) > 0 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}
