package conversion_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/internal/half"
	"github.com/smelt-go/smelt/runtime"
)

// TestInt8Embeddings: the engine reads the tables that the app reads, and what
// it computes differs from the exact tables by their rounding alone.
func TestInt8Embeddings(t *testing.T) {
	src := fixture(t, "gemma4-e2b")
	o := conversion.Options{Bundle: conversion.BundleCoreMLLLM, Context: 64, Compute: "fp32", Functions: functions(t, "decode")}
	rounded, r := convert(t, src, o)
	if e := r.Contract().Embedding; e.Mode != chunking.EmbedInt8 || e.File != "embed_tokens_q8.bin" || e.Scales != "embed_tokens_scales.bin" || e.Tensor != "" {
		t.Errorf("embedding %+v", e)
	}
	for _, name := range []string{chunking.EmbeddingFile, chunking.PerLayerFile} {
		if _, err := os.Stat(filepath.Join(rounded, name)); !os.IsNotExist(err) {
			t.Errorf("%s is there too (%v)", name, err)
		}
	}
	o.Embed = chunking.EmbedSidecar
	exact, _ := convert(t, src, o)
	for _, name := range []string{chunking.EmbeddingFile, chunking.PerLayerFile, "embed_tokens_q8.bin", "embed_tokens_per_layer_scales.bin"} {
		if _, err := os.Stat(filepath.Join(exact, name)); err != nil {
			t.Error(err)
		}
	}
	open := func(dir string) *engine.Engine {
		e, err := engine.Open(dir, engine.Options{Mode: runtime.FP32})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	a, b := open(rounded), open(exact)
	codes, err1 := os.ReadFile(filepath.Join(rounded, "embed_tokens_q8.bin"))
	scales, err2 := os.ReadFile(filepath.Join(rounded, "embed_tokens_scales.bin"))
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	const width = 80
	row, same := make([]float32, width), make([]float32, width)
	for _, id := range []int32{0, 3, 511} {
		if err := a.Embed(row, id); err != nil {
			t.Fatal(err)
		}
		if err := b.Embed(same, id); err != nil {
			t.Fatal(err)
		}
		scale := half.ToF32(binary.LittleEndian.Uint16(scales[2*id:]))
		for i, got := range row {
			want := float32(int8(codes[int(id)*width+i])) * scale / 127 * float32(math.Sqrt(width))
			if math.Abs(float64(got-want)) > 1e-6*float64(scale) {
				t.Fatalf("token %d element %d is %g, want %g", id, i, got, want)
			}
			if math.Abs(float64(got-same[i])) > float64(scale)*math.Sqrt(width)*(0.5/127+1.0/2048) {
				t.Fatalf("token %d element %d is %g, exactly %g", id, i, got, same[i])
			}
		}
	}
	sa, sb := a.NewSession(), b.NewSession()
	var worst, peak float64
	for _, id := range []int32{2, 77, 300, 5} {
		x, err := sa.Decode(id)
		if err != nil {
			t.Fatal(err)
		}
		y, err := sb.Decode(id)
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.Logits {
			worst, peak = max(worst, math.Abs(float64(x.Logits[i]-y.Logits[i]))), max(peak, math.Abs(float64(y.Logits[i])))
		}
	}
	if worst == 0 || worst > 0.05*peak {
		t.Errorf("logits move by %g of %g, want a little", worst, peak)
	}
	for _, name := range []string{"embed_tokens_q8.bin", "embed_tokens_per_layer_scales.bin"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(rounded)); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, chunking.ManifestFile)); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(filepath.Join(dir, name), 1000); err != nil {
				t.Fatal(err)
			}
			if _, err := engine.Open(dir, engine.Options{}); err == nil || !strings.Contains(err.Error(), name+" has 1000 bytes") {
				t.Errorf("a short file: %v", err)
			}
		})
	}
}
