package models_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/mil"
	"github.com/smelt-go/smelt/models"
)

func ExampleParseConfig() {
	c, err := models.ParseConfig(strings.NewReader(`{
		"architectures": ["LlamaForCausalLM"],
		"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 100,
		"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu", "rms_norm_eps": 1e-5,
		"max_position_embeddings": 512, "rope_theta": 10000.0,
		"rope_scaling": {"type": "linear", "factor": 2.0}
	}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Architecture, c.Kinds, "head_dim", c.HeadDim)
	fmt.Println(c.Rope[models.Full].InvFreq()[:2])

	_, err = models.ParseConfig(strings.NewReader(`{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2}`))
	fmt.Println(err)
	// Output:
	// llama [full full] head_dim 16
	// [0.5 0.15811388]
	// models: config.json: key "hidden_size" is missing
}

// A model is a checkpoint whose tensors are all accounted for. Build writes a
// part of it, here the decode function of the first layer, as MIL.
func ExampleModel_Build() {
	dir, err := fixtures.Dir("llama-tied")
	if err != nil {
		log.Fatal(err)
	}
	config, err := os.Open(filepath.Join(dir, "config.json"))
	if err != nil {
		log.Fatal(err)
	}
	defer config.Close()
	ckpt, err := checkpoint.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer ckpt.Close()
	m, err := models.New(config, ckpt.Text())
	if err != nil {
		log.Fatal(err)
	}
	contract, err := chunking.Design(m.Config(), chunking.Options{
		Context: 64, Ranges: []chunking.Range{{First: 0, Last: 1}, {First: 1, Last: 5}},
		Functions: []chunking.FunctionSpec{{Kind: chunking.Decode, T: 1}},
		KV:        chunking.KVTensor, Embed: chunking.EmbedSidecar, Compute: "fp32", Head: chunking.Head{Token: true},
	})
	if err != nil {
		log.Fatal(err)
	}
	first := &contract.Chunks[0]
	part, err := contract.Part(first, first.Function("decode"))
	if err != nil {
		log.Fatal(err)
	}
	b := mil.NewBuilder("main", mil.CoreML8)
	if err := m.Build(b, part); err != nil {
		log.Fatal(err)
	}
	f, err := b.Func()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(m.Weights()), "tensors used")
	for _, v := range f.Inputs {
		fmt.Println("in ", v.Name, v.Type)
	}
	for _, v := range f.Body.Outputs {
		fmt.Println("out", v.Name, v.Type)
	}
	// Output:
	// 47 tensors used
	// in  hidden_states tensor<fp32, [1, 1, 96]>
	// in  causal_mask_full tensor<fp32, [1, 1, 1, 65]>
	// in  cos_f tensor<fp32, [1, 1, 1, 16]>
	// in  sin_f tensor<fp32, [1, 1, 1, 16]>
	// in  K_full_in tensor<fp32, [1, 2, 64, 16]>
	// in  V_full_in tensor<fp32, [1, 2, 64, 16]>
	// out new_K_full tensor<fp32, [1, 2, 1, 16]>
	// out new_V_full tensor<fp32, [1, 2, 1, 16]>
	// out hidden_states_out tensor<fp32, [1, 1, 96]>
}
