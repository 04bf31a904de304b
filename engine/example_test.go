package engine_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/conversion"
	"github.com/smelt-go/smelt/engine"
	"github.com/smelt-go/smelt/fixtures"
)

// Draft tokens are verified in one call; only those that the model would have
// chosen itself become part of the sequence.
func Example() {
	src, err := fixtures.Dir(fixtures.DemoName)
	if err != nil {
		log.Fatal(err)
	}
	tmp, err := os.MkdirTemp("", "engine")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	bundle := filepath.Join(tmp, "bundle")
	if _, err := conversion.Convert(context.Background(), src, bundle, conversion.Options{}); err != nil {
		log.Fatal(err)
	}
	e, err := engine.Open(bundle, engine.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()

	s := e.NewSession()
	row, err := s.Prefill([]int32{2, 300, 301, 302}, nil)
	if err != nil {
		log.Fatal(err)
	}
	drafts := []int32{row.Token, 7, 8, 9}
	p, err := s.Verify(drafts)
	if err != nil {
		log.Fatal(err)
	}
	accepted := 1 // the first draft is the model's own choice
	for i, r := range p.Rows()[:3] {
		if r.Token != drafts[i+1] {
			break
		}
		accepted++
	}
	if err := p.Commit(accepted); err != nil {
		log.Fatal(err)
	}
	fmt.Println("accepted", accepted, "of", len(drafts), "drafts, now at position", s.Pos())
	// Output: accepted 1 of 4 drafts, now at position 5
}
