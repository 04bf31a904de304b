package chunking_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/models"
)

func ExampleCutUnder() {
	sizes := chunking.Sizes{Layers: []int64{30, 30, 30, 30, 30, 30}, Last: 50}
	cut, err := chunking.CutUnder(chunking.Limits{Bytes: 120}, sizes)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cut, sizes.Bytes(cut))
	// Output:
	// [{0 4} {4 6}] [120 110]
}

// A contract says what every function of every chunk takes and returns.
func ExampleDesign() {
	cfg, err := models.ParseConfig(strings.NewReader(`{
		"architectures": ["Qwen3ForCausalLM"],
		"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 100,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu",
		"rms_norm_eps": 1e-6, "max_position_embeddings": 512, "rope_theta": 1000000.0
	}`))
	if err != nil {
		log.Fatal(err)
	}
	ranges, err := chunking.ParseRanges("0-2,2-4", cfg.Layers)
	if err != nil {
		log.Fatal(err)
	}
	functions, err := chunking.ParseFunctions("decode,verify:3")
	if err != nil {
		log.Fatal(err)
	}
	c, err := chunking.Design(cfg, chunking.Options{Context: 128, Ranges: ranges, Functions: functions,
		KV: chunking.KVTensor, Embed: chunking.EmbedSidecar, Compute: "fp16", Head: chunking.Head{Token: true}})
	if err != nil {
		log.Fatal(err)
	}
	verify := c.Chunks[1].Function("verify_3")
	for _, p := range verify.Inputs {
		fmt.Println("in ", p.Name, p.DType, p.Shape)
	}
	for _, p := range verify.Outputs {
		fmt.Println("out", p.Name, p.DType, p.Shape)
	}
	// Output:
	// in  hidden_states fp16 [1 3 64]
	// in  causal_mask_full fp16 [1 1 3 131]
	// in  cos_f fp16 [1 1 3 32]
	// in  sin_f fp16 [1 1 3 32]
	// in  K_full_in fp16 [2 2 128 32]
	// in  V_full_in fp16 [2 2 128 32]
	// out token_id int32 [1 3]
	// out token_logit fp16 [1 3]
	// out new_K_full fp16 [2 2 3 32]
	// out new_V_full fp16 [2 2 3 32]
}
