package checkpoint_test

import (
	"fmt"
	"log"
	"os"

	"github.com/smelt-go/smelt/checkpoint"
)

// Write a checkpoint in two shards, open it again and read from it.
func Example() {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	norm := checkpoint.NewFloat32("model.norm.weight", []int{4}, []float32{1, 2, 3, 4})
	head := checkpoint.NewFloat32("lm_head.weight", []int{2, 4}, []float32{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8})
	tensors := []checkpoint.Tensor{norm, checkpoint.AsType(head, checkpoint.BF16)}
	err = checkpoint.WriteSharded(dir, tensors, map[string]string{"format": "pt"}, 16)
	if err != nil {
		log.Fatal(err)
	}

	c, err := checkpoint.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, name := range c.Names() {
		t, _ := c.Tensor(name)
		fmt.Println(name, t.DType(), t.Shape())
	}
	t, _ := c.Tensor("lm_head.weight")
	row := make([]float32, 4)
	if err := t.ReadFloat32(row, 4); err != nil {
		log.Fatal(err)
	}
	fmt.Println(row)
	// Output:
	// lm_head.weight BF16 [2 4]
	// model.norm.weight F32 [4]
	// [0.5 0.6015625 0.69921875 0.80078125]
}

// A multimodal checkpoint shows its language model under the usual names.
func ExampleCheckpoint_Text() {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var tensors []checkpoint.Tensor
	for _, name := range []string{"language_model.model.norm.weight", "vision_tower.post_layernorm.bias"} {
		tensors = append(tensors, checkpoint.NewFloat32(name, []int{1}, []float32{1}))
	}
	if err := checkpoint.WriteSharded(dir, tensors, nil, 0); err != nil {
		log.Fatal(err)
	}

	c, err := checkpoint.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	text := c.Text()
	fmt.Println(text.Names())
	for _, w := range text.Waived() {
		fmt.Println("waived:", w.Name, w.Reason)
	}
	// Output:
	// [model.norm.weight]
	// waived: vision_tower.post_layernorm.bias vision encoder
}
