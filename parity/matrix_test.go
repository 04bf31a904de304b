package parity_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity"
)

// TestGemma4Matrix asks every gate about Gemma 4 in all topologies and forms of
// caches: any failure is a false alarm, or a bug. SMELT_GOLDENS adds a corpus
// and the rest of the matrix.
func TestGemma4Matrix(t *testing.T) {
	topologies := []chunking.Topology{chunking.Topology1, chunking.Topology2, chunking.Topology3, chunking.Topology4}
	kvs := []string{chunking.KVTensor, chunking.KVState, chunking.KVCoreMLLLM}
	var dirs []string
	for _, name := range fixtures.Gemma4() {
		dir, err := fixtures.Dir(name)
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	root := os.Getenv("SMELT_GOLDENS")
	if root != "" {
		more, err := filepath.Glob(filepath.Join(root, "tiny-gemma4*"))
		if err != nil || len(more) == 0 {
			t.Fatalf("no tiny-gemma4 in %s", root)
		}
		dirs = append(dirs, more...)
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%-12s %-13s %-11s %-5s %9s %9s %9s  %s\n", "checkpoint", "topology", "kv", "", "decode", "prefill", "verify", "verdict")
	for d, dir := range dirs {
		for i, topology := range topologies {
			for j, kv := range kvs {
				if root == "" && (d > 1 || (i+j+d)%3 != 0) {
					continue // a third of it, every topology and form at least once
				}
				o := conversion.Options{Topology: topology, KV: kv, Context: 160, Functions: functions(t, "decode,prefill:16,verify:4"), NoSync: true}
				if kv == chunking.KVCoreMLLLM && i%2 == 1 {
					o.Topology, o.Bundle = topology, conversion.BundleCoreMLLLM
				}
				t.Run(fmt.Sprintf("%s/%s/%s", filepath.Base(dir), topology, kv), func(t *testing.T) {
					rep := verdict(t, dir, o)
					for _, mode := range []string{"fp32", "typed"} {
						fmt.Fprintf(&table, "%-12s %-13s %-11s %-5s", filepath.Base(dir), topology, kv, mode)
						for _, via := range []string{"decode", "prefill", "verify"} {
							for _, n := range rep.Gate("logits." + mode + "." + via).Numbers {
								if n.Name == "max_abs_dlogit" {
									fmt.Fprintf(&table, " %9.2g", float64(n.Value))
								}
							}
						}
						fmt.Fprintf(&table, "  %v\n", rep.Pass)
					}
				})
			}
		}
	}
	t.Logf("largest |Δlogit|:\n%s", table.String())
}

// verdict converts and asks every gate.
func verdict(t *testing.T, src string, o conversion.Options) *parity.Report {
	t.Helper()
	bundle := filepath.Join(t.TempDir(), "bundle")
	if _, err := conversion.Convert(context.Background(), src, bundle, o); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	rep, err := parity.Verify(context.Background(), bundle, parity.Options{Golden: filepath.Join(src, "golden.safetensors"), Checkpoint: src, Tokens: 150})
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
	if rep.Pass {
		t.Logf("%.2f s", time.Since(start).Seconds())
	} else {
		t.Errorf("failed: %v\n%s", rep.Failed(), b.String())
	}
	return rep
}
