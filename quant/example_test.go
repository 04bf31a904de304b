package quant_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/smelt-go/smelt/checkpoint"
	"github.com/smelt-go/smelt/quant"
)

// Code a matrix in 4 bits and decode it again.
func Example() {
	w := make([]float32, 2*64)
	for i := range w {
		w[i] = float32(i%13) - 6
	}
	t := checkpoint.NewFloat32("w", []int{2, 64}, w)
	codec, err := quant.NewAffine(4, 64, quant.RoundCPU)
	if err != nil {
		log.Fatal(err)
	}
	e, err := quant.Encode(codec, t, "w", quant.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var src [][]byte
	for _, p := range e.Parts {
		var b bytes.Buffer
		if _, err := p.WriteTo(&b); err != nil {
			log.Fatal(err)
		}
		fmt.Println(p.Name(), p.DType(), p.Shape(), b.Len(), "bytes")
		src = append(src, b.Bytes())
	}
	back := make([]float32, len(w))
	codec.Decode(back, src, 64, checkpoint.F32)
	fmt.Println(w[:4], "→", back[:4])
	// Output:
	// w.weight U32 [2 8] 64 bytes
	// w.scales F32 [2 1] 8 bytes
	// w.biases F32 [2 1] 8 bytes
	// [-6 -5 -4 -3] → [-5.25 -5.25 -3.75 -3]
}
