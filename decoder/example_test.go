package decoder_test

import (
	"context"
	"fmt"
	"log"

	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/fixtures"
)

// What goes into every linear module of the first layer.
func Example() {
	dir, err := fixtures.Dir("qwen3")
	if err != nil {
		log.Fatal(err)
	}
	d, err := decoder.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	ctx := context.Background()
	s, err := d.Embed(ctx, [][]int32{{1, 2, 3}, {4, 5}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = d.Layer(ctx, s, decoder.Options{Tap: func(in decoder.Input) error {
		fmt.Println(in.Modules, in.X.Rows, "tokens")
		return nil
	}})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// [model.layers.0.self_attn.q_proj model.layers.0.self_attn.k_proj model.layers.0.self_attn.v_proj] 5 tokens
	// [model.layers.0.self_attn.o_proj] 5 tokens
	// [model.layers.0.mlp.gate_proj model.layers.0.mlp.up_proj] 5 tokens
	// [model.layers.0.mlp.down_proj] 5 tokens
}
