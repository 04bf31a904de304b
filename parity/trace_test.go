package parity

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/runtime"
)

func attn(layout string, slots int) chunking.Attn { return chunking.Attn{Layout: layout, Slots: slots} }

// TestBisectionSeesEverySite: whatever the reference taps, the graph has, at
// every position, of the same width, however layers fall into chunks.
// Otherwise bisection would step over a culprit.
func TestBisectionSeesEverySite(t *testing.T) {
	for _, c := range []struct {
		fixture string
		o       conversion.Options
	}{
		{"gemma3", conversion.Options{Compute: "fp32", Layers: "0-1,1-2,2-8"}},
		{"gemma3", conversion.Options{Compute: "fp16", ResidualScale: 0.25, KV: chunking.KVState, Chunks: 2}},
		{"qwen3", conversion.Options{Compute: "fp16", ResidualScale: 0.125, Embed: chunking.EmbedGraph, Chunks: 1}},
		{"llama-tied", conversion.Options{Compute: "fp32", Chunks: 5, Head: chunking.Head{Logits: true, Hidden: "post"}}},
		{"llama-tied", conversion.Options{Compute: "fp32", Chunks: 5, Head: chunking.Head{Logits: true, Hidden: "pre"}}},
		{"gemma4-e2b", conversion.Options{Compute: "fp32", Chunks: 1}},
		{"gemma4-e4b", conversion.Options{Compute: "fp16", ResidualScale: 0.25, Topology: chunking.Topology4, Head: chunking.Head{Logits: true, Hidden: "post"}}},
	} {
		src, err := fixtures.Dir(c.fixture)
		if err != nil {
			t.Fatal(err)
		}
		ctx, dir := context.Background(), filepath.Join(t.TempDir(), "bundle")
		if _, err := conversion.Convert(ctx, src, dir, c.o); err != nil {
			t.Fatal(err)
		}
		s, err := openSubject(dir, Options{Golden: filepath.Join(src, "golden.safetensors"), Checkpoint: src})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.expect(ctx); err != nil {
			t.Fatal(err)
		}
		const T = 20
		want, err := s.referenceSites(ctx, s.longest(), 0, T)
		if err != nil {
			t.Fatal(err)
		}
		for _, via := range []Via{ViaDecode, ViaPrefill, ViaVerify} {
			got, where, err := s.graphSites(ctx, s.longest(), runtime.FP32, via, 0, T)
			if err != nil {
				t.Fatal(err)
			}
			worst := Deviation{}
			for name, rows := range want {
				if strings.HasPrefix(name, "hidden.") {
					continue
				}
				for p := range T {
					if len(got[name][p]) != len(rows[p]) {
						t.Fatalf("%s, %s: %s at position %d has %d values, want %d", c.fixture, via, name, p, len(got[name][p]), len(rows[p]))
					}
				}
				if d, ok := deviation(name, want[name], got[name]); !ok || float64(d.Relative) > s.siteLimit(runtime.FP32) {
					t.Errorf("%s, %s: %s deviates by %v of its size", c.fixture, via, name, d.Relative)
				}
				if d, _ := deviation(name, want[name], got[name]); d.Relative > worst.Relative {
					worst = d
				}
				if where[name].chunk == "" {
					t.Errorf("%s: no place for %s", c.fixture, name)
				}
			}
			t.Logf("%s %s, %s: worst site %s, relative %.2g", c.fixture, c.o.Compute, via, worst.Site, worst.Relative)
		}
	}
}
