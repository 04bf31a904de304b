package capture_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/smelt-go/smelt/capture"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/fixtures"
)

// The residual stream after layer 1, and the final hidden state before its norm.
func Example() {
	dir, err := fixtures.Dir("gemma3")
	if err != nil {
		log.Fatal(err)
	}
	d, err := decoder.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	out, err := os.MkdirTemp("", "capture")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(out)
	x, err := capture.Run(context.Background(), d, [][]int32{{1, 2, 3}, {4, 5, 6}}, out,
		capture.Options{Taps: []int{1}, Norms: []string{capture.Pre}, DType: checkpoint.BF16})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(x.Shards), "shard of", x.Sequences, "sequences:", x.Taps, x.Norms, x.DType)
	// Output:
	// 1 shard of 2 sequences: [1] [pre] BF16
}
