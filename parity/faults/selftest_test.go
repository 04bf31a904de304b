package faults_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity"
	"github.com/smelt-go/smelt/parity/faults"
)

var update = flag.Bool("update", false, "write parity/signatures.json and docs/gates.md anew")

func source(t testing.TB, name string) faults.Source {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	return faults.Source{Name: name, Dir: dir, Golden: filepath.Join(dir, "golden.safetensors")}
}

func text(t testing.TB, table *faults.Table) string {
	t.Helper()
	var b strings.Builder
	if err := table.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestCatalog injects every fault into a checkpoint that can have it: every
// fault must be caught, by the gate that should catch it, nine in ten where they
// are, and no gate may fail on a good bundle.
func TestCatalog(t *testing.T) {
	start := time.Now()
	table, err := faults.SelfTest(context.Background(), []faults.Source{
		source(t, fixtures.DemoName), source(t, "gemma4-e2b"), source(t, "qwen2")}, faults.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f s\n%s", time.Since(start).Seconds(), text(t, table))
	for _, a := range table.FalseAlarms {
		t.Errorf("false alarm: %s", a)
	}
	for _, r := range table.Rows {
		switch {
		case r.Skipped:
			t.Errorf("no fixture can have fault %s", r.Fault)
		case !r.Caught:
			t.Errorf("%s: %s: caught by %q: %s", r.Checkpoint, r.Fault, r.Gate, r.Reason)
		case !r.Localized:
			t.Logf("not localized: %s: %s: named %q: %s", r.Fault, r.Gate, r.Named, r.Reason)
		case !r.Recognised:
			t.Logf("not called by its name: %s (%s): %q: %v", r.Fault, r.Checkpoint, r.LooksLike, r.Signature)
		}
	}
	document(t, table)
	c := table.Counts()
	if 10*c.Localized < 9*c.Localizable || c.Localizable != c.Injected {
		t.Errorf("%d of %d faults localized, want nine in ten", c.Localized, c.Injected)
	}
	if 10*c.Recognised < 8*c.Injected {
		t.Errorf("%d of %d faults called by their name, want eight in ten", c.Recognised, c.Injected)
	}
	if c.Injected < 48 {
		t.Errorf("%d faults, want 48 at least", c.Injected)
	}
}

// document compares the generated parts of docs/gates.md, or writes them.
func document(t *testing.T, table *faults.Table) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "gates.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var gates, rows strings.Builder
	gates.WriteString("| gate | proves |\n|---|---|\n")
	for _, g := range parity.Gates() {
		gates.WriteString("| `" + g.ID + "` | " + g.Proves + " |\n")
	}
	if err := table.WriteMarkdown(&rows); err != nil {
		t.Fatal(err)
	}
	now := string(data)
	for _, part := range []struct{ name, text string }{{"gates", gates.String()}, {"faults", rows.String()}} {
		begin, end := "<!-- "+part.name+" -->\n", "<!-- end of "+part.name+" -->\n"
		i, j := strings.Index(now, begin), strings.Index(now, end)
		if i < 0 || j < i {
			t.Fatalf("docs/gates.md has no part %s", part.name)
		}
		now = now[:i+len(begin)] + "\n" + part.text + "\n" + now[j:]
	}
	switch {
	case now == string(data):
	case *update:
		if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("docs/gates.md is not what the gates say (run the test with -update)")
	}
}

// TestOrder: the catalog is grouped by family, and has each name once.
func TestOrder(t *testing.T) {
	seen := map[string]bool{}
	var last int
	for _, f := range faults.Catalog() {
		if seen[f.Name] {
			t.Errorf("%s: listed twice", f.Name)
		}
		seen[f.Name] = true
		at := slices.Index(faults.Families, f.Family)
		if at < last {
			t.Errorf("%s: %s comes late", f.Name, f.Family)
		}
		last = max(last, at)
		if len(f.Gates) == 0 || f.What == "" || len(f.Sites) == 0 && f.Says == "" {
			t.Errorf("%s: nothing says what must catch it, or where", f.Name)
		}
		for _, g := range f.Gates {
			if !slices.ContainsFunc(parity.Gates(), func(x parity.Gate) bool { return x.ID == g }) {
				t.Errorf("%s: there is no gate %s", f.Name, g)
			}
		}
	}
}

// TestSignatures writes signatures.json with -update: what the catalog shows on
// five models, of which gemma4-e2b is not one. TestCatalog reads it.
func TestSignatures(t *testing.T) {
	if *update {
		table, err := faults.SelfTest(context.Background(), []faults.Source{
			source(t, "gemma3"), source(t, "llama-tied"), source(t, "qwen2"), source(t, "gemma4-e4b"), source(t, fixtures.DemoName)},
			faults.Options{Everywhere: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range table.Rows {
			if !r.Skipped && !r.Caught {
				t.Logf("%s: %s: caught by %q: %s", r.Checkpoint, r.Fault, r.Gate, r.Reason)
			}
		}
		data, err := json.MarshalIndent(table.Known(), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join("..", "signatures.json"), append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Skip("written; the next run reads them")
	}
	known, err := parity.KnownFaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults.Catalog() {
		i := slices.IndexFunc(known, func(k parity.KnownFault) bool { return k.Fault == f.Name })
		if i < 0 {
			t.Errorf("%s has no signature (run the test with -update)", f.Name)
			continue
		}
		for _, s := range known[i].Signatures {
			if c, err := parity.Diagnose(s); err != nil || c == nil || c.Text != known[i].Cause && !slices.Contains(c.Or, known[i].Cause) {
				t.Errorf("%s: %v is taken for %v, %v", f.Name, s, c, err)
			}
		}
	}
	if len(known) != len(faults.Catalog()) {
		t.Errorf("%d faults have signatures, the catalog has %d", len(known), len(faults.Catalog()))
	}
}
