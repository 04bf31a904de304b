package inspect_test

import (
	"fmt"
	"log"

	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/inspect"
)

func ExamplePath() {
	dir, err := fixtures.Dir("llama-tied")
	if err != nil {
		log.Fatal(err)
	}
	r, err := inspect.Path(dir, inspect.Options{})
	if err != nil {
		log.Fatal(err)
	}
	c := r.Checkpoint
	fmt.Println(r.Kind, c.Config.Architecture, c.Config.Layers, "layers")
	fmt.Println(len(c.Tensors), "tensors,", c.Parameters, "parameters")
	for _, d := range c.DTypes {
		fmt.Println(d.Tensors, d.DType)
	}
	// Output:
	// checkpoint llama 5 layers
	// 47 tensors, 495648 parameters
	// 47 BF16
}
