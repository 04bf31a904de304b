package faults_test

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity/faults"
)

// Break a good conversion in two ways and see which gate notices.
func ExampleSelfTest() {
	src, err := fixtures.Dir("llama-tied")
	if err != nil {
		fmt.Println(err)
		return
	}
	table, err := faults.SelfTest(context.Background(),
		[]faults.Source{{Name: "llama-tied", Dir: src, Golden: filepath.Join(src, "golden.safetensors")}},
		faults.Options{Only: []string{"attention-scale", "commit-all-drafts"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range table.Rows {
		fmt.Printf("%s (%s): caught by %s, names %q\n", r.Fault, r.What, r.Gate, r.Named)
	}
	fmt.Println("ok:", table.OK())
	// Output:
	// attention-scale (scores are scaled by √2 too much, as if head_dim were half): caught by logits.fp32.decode, names "chunk_01 decode layers.0.attn_ctx"
	// commit-all-drafts (all tokens of a verify block are committed, not the accepted ones): caught by kv, names "\"with 2 accepted leaves the sequence at\""
	// ok: true
}
