package reference_test

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/parity/reference"
)

func Example() {
	dir, err := fixtures.Dir("tiny-gemma3-target")
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := reference.Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	c := m.Config()
	fmt.Printf("%s: %d layers, window %d, last layer %v\n", c.Architecture, c.Layers, c.Window, c.Kinds[c.Layers-1])

	// Logits of the last position only.
	ids := []int32{2, 100, 200, 300}
	r, err := m.Forward(context.Background(), ids, reference.Options{Head: true, Positions: []int{3}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("logits [%d %d], %d hidden states of [%d %d]\n",
		r.Logits.Rows, r.Logits.Cols, len(r.Hidden), r.Hidden[0].Rows, r.Hidden[0].Cols)
	// Output:
	// Gemma3ForCausalLM: 6 layers, window 64, last layer full_attention
	// logits [1 2048], 7 hidden states of [4 128]
}

func ExampleModel_RangeProbe() {
	dir, err := fixtures.Dir("llama-tied")
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := reference.Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	r, err := m.RangeProbe(context.Background(), []int32{1, 17, 33, 250})
	if err != nil {
		fmt.Println(err)
		return
	}
	const half = 65504 // the largest fp16 value
	for layer, peak := range r.Residual() {
		if peak > half {
			fmt.Printf("the residual stream leaves fp16 in layer %d\n", layer-1)
			return
		}
	}
	fmt.Printf("the residual stream of %d layers stays within fp16\n", len(r.Residual())-1)
	// Output: the residual stream of 5 layers stays within fp16
}

func ExampleDrafter_Draft() {
	dir, err := fixtures.Dir("gemma4-mtp")
	if err != nil {
		fmt.Println(err)
		return
	}
	target, err := reference.Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer target.Close()
	drafter, err := reference.OpenDrafter(filepath.Join(dir, "assistant"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer drafter.Close()

	// The target has processed n tokens, and the next one is known.
	ids, next := []int32{2, 100, 200, 300, 400}, int32(17)
	n := len(ids)
	ctx := context.Background()
	r, err := target.Forward(ctx, ids, reference.Options{KV: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	round := reference.DraftRound{N: n, KV: r.KV}
	steps, err := drafter.Draft(ctx, target, round, next, r.Norm.Row(n-1), 3, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	c := drafter.Config()
	for i, s := range steps {
		fmt.Printf("draft %d: %d of %d clusters, %d logits\n", i, len(s.Clusters), c.Centroids, len(s.Logits))
	}
	// Output:
	// draft 0: 6 of 32 clusters, 512 logits
	// draft 1: 6 of 32 clusters, 512 logits
	// draft 2: 6 of 32 clusters, 512 logits
}
