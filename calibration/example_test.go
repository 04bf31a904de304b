package calibration_test

import (
	"context"
	"fmt"
	"log"

	"github.com/smelt-go/smelt/calibration"
	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/decoder"
	"github.com/smelt-go/smelt/fixtures"
)

// The modules of a small model with what is known of them; none is quantized.
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
	windows := [][]int32{{1, 2, 3, 4}, {5, 6, 7, 8}}
	err = calibration.Run(context.Background(), d, windows, calibration.Options{
		Wants: func(string) calibration.Want { return calibration.Want{What: calibration.Full} },
		Quantize: func(_ context.Context, m *calibration.Module) (checkpoint.Tensor, error) {
			if m.Layer == 0 {
				fmt.Printf("%s: %v, %d tokens\n", m.Path, m.Weight.Shape(), m.Hessian.Tokens)
			}
			return nil, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// model.layers.0.self_attn.q_proj: [128 96], 8 tokens
	// model.layers.0.self_attn.k_proj: [64 96], 8 tokens
	// model.layers.0.self_attn.v_proj: [64 96], 8 tokens
	// model.layers.0.self_attn.o_proj: [96 128], 8 tokens
	// model.layers.0.mlp.gate_proj: [200 96], 8 tokens
	// model.layers.0.mlp.up_proj: [200 96], 8 tokens
	// model.layers.0.mlp.down_proj: [96 200], 8 tokens
}
