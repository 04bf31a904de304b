package faults_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity/faults"
)

// TestCatalog injects every fault into the checkpoints that can have it:
// every fault must be caught, by the gate that should catch it, and no gate
// may fail on a good bundle.
func TestCatalog(t *testing.T) {
	injected := map[string]bool{}
	var only []string // nil: all; later what the fixtures before could not have
	for _, name := range []string{"gemma3", "llama-tied", "qwen2"} {
		src, err := fixtures.Dir(name)
		if err != nil {
			t.Fatal(err)
		}
		table, err := faults.SelfTest(context.Background(), src, filepath.Join(src, "golden.safetensors"), faults.Options{Only: only})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := table.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s\n%s", name, b.String())
		for _, a := range table.FalseAlarms {
			t.Errorf("%s: false alarm: %s", name, a)
		}
		only = nil
		for _, r := range table.Rows {
			if r.Skipped {
				only = append(only, r.Fault)
				continue
			}
			injected[r.Fault] = true
			if !r.Caught {
				t.Errorf("%s: %s: caught by %q: %s", name, r.Fault, r.Gate, r.Reason)
			}
		}
		if _, _, localizable, localized := table.Counts(); 10*localized < 9*localizable {
			t.Errorf("%s: %d of %d faults localized, want nine in ten", name, localized, localizable)
		}
	}
	for _, f := range faults.Catalog() {
		if !injected[f.Name] {
			t.Errorf("no fixture can have fault %s", f.Name)
		}
	}
	if !slices.IsSortedFunc(faults.Catalog(), func(a, b faults.Fault) int { return order(a.Family) - order(b.Family) }) {
		t.Error("the catalog is not grouped by family")
	}
}

func order(f faults.Family) int {
	return slices.Index([]faults.Family{faults.Graph, faults.Contract, faults.HostSide, faults.Artifact}, f)
}
