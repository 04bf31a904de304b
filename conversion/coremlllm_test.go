package conversion_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/runtime"
)

// TestCoreMLLLMGoldens compares every topology of the CoreML-LLM form with
// PyTorch at all positions, through all kinds of functions.
func TestCoreMLLLMGoldens(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    conversion.Options
	}{
		{"gemma4-e2b", conversion.Options{Topology: chunking.Topology4}},
		{"gemma4-e2b", conversion.Options{Topology: chunking.Topology3, Compute: "fp32"}},
		{"gemma4-e2b", conversion.Options{Topology: chunking.Topology1, Compute: "fp32", Functions: functions(t, "decode,prefill:40,verify:4")}},
		{"gemma4-e4b", conversion.Options{Topology: chunking.Topology4, Compute: "fp32"}},
		{"gemma4-e4b", conversion.Options{Topology: chunking.Topology2}},
		{"gemma3", conversion.Options{Chunks: 2}},
		{"gemma4-e2b", conversion.Options{Topology: chunking.Topology2, Functions: functions(t, "decode,prefill:1,verify:1")}},
		{"gemma4-e2b", conversion.Options{Topology: chunking.Topology3, Embed: chunking.EmbedHead}},
		{"llama-tied", conversion.Options{Compute: "fp32", Chunks: 2, Embed: chunking.EmbedHead}},
	} {
		t.Run(fmt.Sprintf("%s/%s%s", tt.name, tt.o.Topology, tt.o.Compute), func(t *testing.T) {
			dir := fixture(t, tt.name)
			g := readGolden(t, dir)
			tt.o.KV = chunking.KVCoreMLLLM
			out, _ := convert(t, dir, tt.o)
			e, err := engine.Open(out, engine.Options{Mode: runtime.Typed})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			for _, via := range []string{"decode", "prefill", "verify"} {
				if via == "verify" && tt.o.Topology == chunking.Topology2 && tt.o.Functions != nil {
					via = "verify one by one"
				}
				worst, flips := compare(run(t, e, g.ids, via), g.logits)
				t.Logf("%-8s max |Δlogit| %.3g of %.3g, %d argmax flips", via, worst, g.max, flips)
				limit, most := 0.3, 2
				if tt.o.Compute == "fp32" {
					limit, most = 1e-3*max(1, g.max), 0
				}
				if worst > limit || flips > most {
					t.Errorf("%s: max |Δlogit| %g, %d flips", via, worst, flips)
				}
			}
		})
	}
}

// TestForeignChunk: a package of another checkpoint, or of another conversion,
// with the very same ports is refused.
func TestForeignChunk(t *testing.T) {
	o := conversion.Options{Topology: chunking.Topology2, Context: 64, Functions: functions(t, "decode")}
	tune := func(delta float32) string {
		return variant(t, "gemma4-e2b", func(all map[string]checkpoint.Tensor) {
			name := "model.layers.6.mlp.up_proj.weight"
			v, err := checkpoint.ReadAll(all[name])
			if err != nil {
				t.Fatal(err)
			}
			v[7] += delta
			all[name] = checkpoint.NewFloat32(name, all[name].Shape(), v)
		}, nil)
	}
	src, tuned := tune(0), tune(1)
	scaled := o
	scaled.ResidualScale = 0.5
	plain, _ := convert(t, src, o)
	for name, tt := range map[string]struct {
		src  string
		o    conversion.Options
		want string
	}{
		"itself":             {src, o, ""},
		"another checkpoint": {tuned, o, "chunk_02.mlpackage: the package was converted from another checkpoint: its metadata say smelt.source "},
		"another conversion": {src, scaled, "the package was converted from another conversion of the same checkpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			other, _ := convert(t, tt.src, tt.o)
			mixed := t.TempDir()
			if err := os.CopyFS(mixed, os.DirFS(plain)); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(mixed, "chunk_02.mlpackage")); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(filepath.Join(mixed, "chunk_02.mlpackage"), os.DirFS(filepath.Join(other, "chunk_02.mlpackage"))); err != nil {
				t.Fatal(err)
			}
			e, err := engine.Open(mixed, engine.Options{})
			if err == nil {
				e.Close()
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
