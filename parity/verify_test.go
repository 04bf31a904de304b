package parity_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity"
)

// convert writes a bundle of a fixture.
func convert(t testing.TB, name string, o conversion.Options) (src, bundle string) {
	t.Helper()
	src, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	bundle = filepath.Join(t.TempDir(), "bundle")
	if _, err := conversion.Convert(context.Background(), src, bundle, o); err != nil {
		t.Fatal(err)
	}
	return src, bundle
}

func functions(t testing.TB, s string) []chunking.FunctionSpec {
	t.Helper()
	f, err := chunking.ParseFunctions(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestGoodConversions holds every fixture in several forms against its
// PyTorch recording: any failure is a false alarm, or a bug.
func TestGoodConversions(t *testing.T) {
	for _, name := range fixtures.Names() {
		for i, o := range []conversion.Options{
			{Compute: "fp32", Chunks: 1, Functions: functions(t, "decode,prefill:16,verify:4")},
			{Compute: "fp16", Chunks: 2, Functions: functions(t, "decode,prefill:16,verify:4")},
			{Compute: "fp16", Chunks: 3, KV: chunking.KVState, Embed: chunking.EmbedGraph, Functions: functions(t, "decode,prefill:10,verify:3")},
		} {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				src, bundle := convert(t, name, o)
				start := time.Now()
				rep, err := parity.Verify(context.Background(), bundle, parity.Options{
					Golden: filepath.Join(src, "golden.safetensors"), Checkpoint: src})
				if err != nil {
					t.Fatal(err)
				}
				var b strings.Builder
				if err := rep.WriteText(&b); err != nil {
					t.Fatal(err)
				}
				for _, g := range rep.Gates {
					fmt.Fprintf(&b, "%s %.2fs; ", g.ID, g.Seconds)
				}
				t.Logf("%.2fs\n%s", time.Since(start).Seconds(), b.String())
				if !rep.Pass {
					t.Errorf("failed: %v", rep.Failed())
				}
			})
		}
	}
}
