package parity_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity"
)

// Convert a checkpoint, then ask whether the files on disk compute what it
// means.
func ExampleVerify() {
	src, err := fixtures.Dir("llama-tied")
	if err != nil {
		fmt.Println(err)
		return
	}
	tmp, err := os.MkdirTemp("", "parity")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(tmp)
	ctx, bundle := context.Background(), filepath.Join(tmp, "bundle")
	if _, err := conversion.Convert(ctx, src, bundle, conversion.Options{}); err != nil {
		fmt.Println(err)
		return
	}
	report, err := parity.Verify(ctx, bundle, parity.Options{
		Golden: filepath.Join(src, "golden.safetensors"), // PyTorch's results
		Gates:  []string{"logits.typed.decode", "drafts", "kv"},
	})
	if err != nil { // no verdict
		fmt.Println(err)
		return
	}
	for _, g := range report.Gates {
		fmt.Printf("%s %s: %s\n", g.Status, g.ID, g.Proves)
	}
	fmt.Println("pass:", report.Pass)
	// Output:
	// pass logits.typed.decode: decode gives the reference's logits at every position, as the fp16 package rounds them
	// pass drafts: what verify says after a token does not depend on the drafts behind it, to the last bit
	// pass kv: after prefill, and after verify of which only some drafts are accepted, the cache is that of serial decode, and what follows is too
	// pass: true
}

// The gates are data: list them for documentation or completion.
func ExampleGates() {
	for _, g := range parity.Gates() {
		fmt.Println(g.ID)
	}
	// Output:
	// manifest
	// contract
	// source
	// app
	// tokenizer
	// recording
	// weights
	// codes
	// index
	// finite
	// logits.fp32.decode
	// logits.fp32.prefill
	// logits.fp32.verify
	// logits.typed.decode
	// logits.typed.prefill
	// logits.typed.verify
	// layers
	// hidden
	// token
	// positions
	// window
	// drafts
	// kv
	// functions
	// ladder
}
