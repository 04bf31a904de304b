package conversion_test

import (
	"fmt"
	"testing"

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
		{"llama-tied", conversion.Options{Compute: "fp32", Chunks: 2}},
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
