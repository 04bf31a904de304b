package lint_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/lint"
)

var update = flag.Bool("update", false, "rewrite the goldens")

// rules lists what a report found, worst first.
func rules(r *lint.Report) []string {
	out := []string{}
	for _, f := range r.Findings {
		if s := string(f.Severity) + " " + f.Rule; !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// TestPackages lints packages that coremltools wrote.
func TestPackages(t *testing.T) {
	for name, want := range map[string][]string{
		"affine_ios16":      {},
		"int4_block_offset": {"warning block-int4"},
		"linear":            {"warning fp32-ops"},
		"lut3_grouped":      {"warning tried-low-bit-palette"},
		"lut_int8_entries":  {"warning tried-int8-table"},
		"lut_ios16":         {},
		"multifunction":     {"warning state-align", "info state-functions", "info int-op"},
		"sparse_lut":        {"warning tried-sparse-palette"},
		"state":             {"warning state-align", "info int-op"},
		"topk":              {"warning fp32-ops", "info topk-and-argmax", "info cpu-op"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := lint.Package(filepath.Join("..", "fixtures", "packages", name, "model.mlpackage"))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, rules(r)); d != "" {
				t.Errorf("findings (-want +got):\n%s", d)
			}
			if len(r.Chunks) != 1 || len(r.Chunks[0].Functions) == 0 || r.Chunks[0].Functions[0].Ops == 0 {
				t.Errorf("counts are missing: %+v", r.Chunks)
			}
		})
	}
}

// TestCounts keeps constexprs apart from what computes.
func TestCounts(t *testing.T) {
	r, err := lint.Package("../fixtures/packages/sparse_lut/model.mlpackage")
	if err != nil {
		t.Fatal(err)
	}
	f := r.Chunks[0].Functions[0]
	want := lint.Function{Name: "main", Ops: 1, Constexprs: 2, Consts: f.Consts, Kinds: map[string]int{"linear": 1},
		Compressed: map[string]int{"constexpr_lut_to_sparse": 1, "constexpr_sparse_to_dense": 1}}
	if d := cmp.Diff(want, f); d != "" {
		t.Error(d)
	}
}

func convert(t *testing.T, name string, o conversion.Options) string {
	t.Helper()
	dir, err := fixtures.Dir(name)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "bundle")
	if _, err := conversion.Convert(context.Background(), dir, out, o); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestBundles lints what this project writes itself.
func TestBundles(t *testing.T) {
	for name, c := range map[string]struct {
		o    conversion.Options
		want []string
	}{
		"tensor": {conversion.Options{Chunks: 2}, []string{"info epsilon-subnormal", "info cpu-op"}},
		"state": {conversion.Options{Chunks: 1, KV: "state"}, []string{
			"info state-functions", "info state-write-rows", "info epsilon-subnormal", "info cpu-op", "info int-op"}},
		"fp32": {conversion.Options{Chunks: 1, Compute: "fp32"}, []string{"warning fp32-ops", "info cpu-op"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := lint.Bundle(convert(t, "gemma3", c.o))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, rules(r)); d != "" {
				t.Errorf("findings (-want +got):\n%s", d)
			}
			if !r.OK() {
				t.Error("OK is false without an error")
			}
		})
	}
}

func TestText(t *testing.T) {
	r, err := lint.Package("../fixtures/packages/multifunction/model.mlpackage")
	if err != nil {
		t.Fatal(err)
	}
	r.Path = "multifunction.mlpackage"
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "report.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("text (-want +got):\n%s", d)
	}
	if !strings.Contains(b.String(), lint.Caveat) {
		t.Error("the report does not say what it is worth")
	}
	// The JSON form has no surprises: it reads back as it was.
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back lint.Report
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(*r, back); d != "" {
		t.Error(d)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := lint.Package(filepath.Join(dir, "no.mlpackage")); err == nil || !strings.Contains(err.Error(), "no such package") {
		t.Errorf("missing package: %v", err)
	}
	if _, err := lint.Bundle(dir); err == nil || !strings.Contains(err.Error(), "is not a bundle") {
		t.Errorf("no contract: %v", err)
	}
	out := convert(t, "gemma3", conversion.Options{Chunks: 2})
	if err := os.RemoveAll(filepath.Join(out, "chunk_02.mlpackage")); err != nil {
		t.Fatal(err)
	}
	if _, err := lint.Bundle(out); err == nil || !strings.Contains(err.Error(), "chunk_02") {
		t.Errorf("missing chunk: %v", err)
	}
}
