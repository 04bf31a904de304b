package conversion_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
)

// TestPlanIsKept plans and converts: chunks, operators and sizes are those
// announced.
func TestPlanIsKept(t *testing.T) {
	for name, o := range map[string]conversion.Options{
		"gemma3":     {Chunks: 2},
		"gemma4-e2b": {Topology: chunking.Topology4, KV: chunking.KVState},
		"llama-tied": {Embed: chunking.EmbedGraph, Compute: "fp32"},
	} {
		t.Run(name, func(t *testing.T) {
			src := fixture(t, name)
			p, err := conversion.Plan(t.Context(), src, o, 0)
			if err != nil {
				t.Fatal(err)
			}
			out, r := convert(t, src, o)
			if len(p.Chunks) != len(r.Chunks) {
				t.Fatalf("%d chunks planned, %d written", len(p.Chunks), len(r.Chunks))
			}
			for i, c := range p.Chunks {
				got, ops := r.Chunks[i], 0
				for j, f := range c.Functions {
					ops += f.Ops
					if d := cmp.Diff(r.Contract().Chunks[i].Functions[j].Inputs, f.Inputs); d != "" {
						t.Errorf("%s %s: inputs %s", c.Name, f.Name, d)
					}
				}
				if ops != got.Ops || c.Layers != got.Layers {
					t.Errorf("%s: %d ops of layers %v planned, %d of %v written", c.Name, ops, c.Layers, got.Ops, got.Layers)
				}
				if d := c.Weights - got.Weights; d < -64 || d > 64 {
					t.Errorf("%s: %d bytes of weights planned, %d written", c.Name, c.Weights, got.Weights)
				}
			}
			for _, table := range p.Tables {
				info, err := os.Stat(filepath.Join(out, table.File))
				if err != nil {
					t.Fatal(err)
				}
				if n := info.Size() - table.Bytes; n < 0 || n > 1000 { // its header
					t.Errorf("%s: %d bytes planned, %d written", table.File, table.Bytes, info.Size())
				}
			}
		})
	}
}

// TestPlanOfConfig: config.json alone gives the plan that the checkpoint gives.
func TestPlanOfConfig(t *testing.T) {
	for _, name := range []string{"gemma4-e2b", "gemma4-e4b", "qwen2"} {
		src := fixture(t, name)
		dir := t.TempDir()
		data, err := os.ReadFile(filepath.Join(src, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644); err != nil {
			t.Fatal(err)
		}
		o := conversion.Options{Chunks: 2}
		want, err := conversion.Plan(t.Context(), src, o, 10)
		if err != nil {
			t.Fatal(err)
		}
		got, err := conversion.Plan(t.Context(), dir, o, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []*conversion.PlanReport{want, got} {
			p.Tables = nil // in the checkpoint's type, which config.json need not tell
			for i := range p.Chunks {
				// Tensors that happen to be equal, norms of ones, are stored once.
				p.Chunks[i].Weights = p.Chunks[i].Weights / 100_000
			}
			for i, c := range p.Roofline.Classes {
				if strings.HasSuffix(c.Class, " row") {
					p.Roofline.Total -= c.Bytes
					p.Roofline.Classes[i].Bytes = 0
				}
			}
			p.Roofline.Tokens = 0
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-checkpoint +config.json)\n%s", name, d)
		}
	}
}

// TestRoofline counts by hand what a token of the tiny E2B reads: 10 layers of
// hidden size 80, the last 5 sharing keys and values.
func TestRoofline(t *testing.T) {
	p, err := conversion.Plan(t.Context(), fixture(t, "gemma4-e2b"), conversion.Options{Context: 256}, 2)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	var total int64
	for _, c := range p.Roofline.Classes {
		got[c.Class] = c.Bytes
		total += c.Bytes
	}
	cfg := p.Roofline
	const H, V, L, P, window, context = 80, 512, 10, 16, 24, 256
	// q and o of every layer; k and v of five, one of which is full.
	const heads = 4
	attention := int64(2*H*(8*heads*16+2*heads*32)+2*H*(4*16+32)) * 2
	if want := int64(2 * 2 * (8*window*16 + 2*context*32)); got[conversion.ClassKV] != want {
		t.Errorf("kv cache: %d bytes, want %d", got[conversion.ClassKV], want)
	}
	for class, want := range map[string]int64{
		conversion.ClassHead:      V * H * 2,
		conversion.ClassAttention: attention,
		conversion.ClassMLP:       3 * H * (5*96 + 5*192) * 2,
		conversion.ClassPerLayer:  (L*P*H + L*2*P*H) * 2,
	} {
		if got[class] != want {
			t.Errorf("%s: %d bytes, want %d", class, got[class], want)
		}
	}
	if total != cfg.Total || fmt.Sprintf("%.6g", cfg.Tokens) != fmt.Sprintf("%.6g", 2e9/float64(total)) {
		t.Errorf("total %d of %d, %g tokens/s", cfg.Total, total, cfg.Tokens)
	}
}

func TestPlanErrors(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		src       string
		o         conversion.Options
		bandwidth float64
		want      string
	}{
		{dir, conversion.Options{}, 0, "is not a Hugging Face model directory"},
		{fixture(t, "qwen2"), conversion.Options{}, -1, "bandwidth is -1, want a positive number"},
		{fixture(t, "qwen2"), conversion.Options{Chunks: 50}, 0, "50 chunks: the model has 6 layers"},
	} {
		if _, err := conversion.Plan(t.Context(), tt.src, tt.o, tt.bandwidth); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}
