package mlx_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/mlx"
	"github.com/smelt-go/smelt/quant"
)

// Quantize a checkpoint to 4 bits and look at what was written.
func Example() {
	src, err := fixtures.Dir("tiny-gemma3-target")
	if err != nil {
		log.Fatal(err)
	}
	parent, err := os.MkdirTemp("", "mlx")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(parent)
	out := filepath.Join(parent, "tiny-4bit")
	rep, err := mlx.Quantize(context.Background(), src, out, mlx.Options{Recipe: quant.Uniform(4, 64)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d parameters, %d bytes, %.3f bits per weight\n", rep.Parameters, rep.Bytes, rep.BPW)

	d, err := mlx.Open(out)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	m := d.Modules[0]
	fmt.Println(m.Path, m.Codec, m.Shape, m.Bytes)
	// Output:
	// 1445376 parameters, 818176 bytes, 4.529 bits per weight
	// model.embed_tokens affine 4-bit g64 [2048 128] 147456
}
