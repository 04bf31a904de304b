package conversion_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/fixtures"
)

func ExampleConvert() {
	src, err := fixtures.Dir("qwen3")
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "smelt")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r, err := conversion.Convert(context.Background(), src, filepath.Join(dir, "qwen3.bundle"), conversion.Options{Chunks: 2})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Architecture, r.Used, "tensors, residual scale", r.ResidualScale)
	for _, c := range r.Chunks {
		fmt.Println(c.Name, c.Layers, c.Functions)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "qwen3.bundle"))
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Println(e.Name())
	}
	// Output:
	// qwen3 69 tensors, residual scale 1
	// chunk_01 [0 3] [decode prefill_64 verify_4]
	// chunk_02 [3 6] [decode prefill_64 verify_4]
	// chunk_01.mlpackage
	// chunk_02.mlpackage
	// contract.json
	// embeddings.safetensors
	// hf
	// report.json
}
