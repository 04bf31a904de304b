package fidelity_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/fidelity"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/tokenizer"
)

// The perplexity of a small trained model on a text that it has not seen.
func Example() {
	dir, err := fixtures.Dir("tiny-gemma3-target")
	if err != nil {
		log.Fatal(err)
	}
	m, err := decoder.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	tok, err := tokenizer.Load(dir)
	if err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "heldout.txt"))
	if err != nil {
		log.Fatal(err)
	}
	ids, err := tok.Encode(string(text), tokenizer.EncodeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	model := fidelity.Decoder(m)
	r, err := fidelity.Evaluate(context.Background(), model, nil, ids, fidelity.Options{Window: 128, Limit: 2})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d positions, perplexity %.2f\n", r.Positions, r.Perplexity)
	// Output:
	// 254 positions, perplexity 17.87
}
