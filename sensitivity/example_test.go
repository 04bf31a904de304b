package sensitivity_test

import (
	"context"
	"fmt"
	"log"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/fixtures"
	"github.com/smelt-go/smelt/quant"
	"github.com/smelt-go/smelt/sensitivity"
)

// From a checkpoint to a recipe of 5.5 bits a weight.
func Example() {
	dir, err := fixtures.Dir("tiny-gemma3-target")
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	m, err := sensitivity.Open(ctx, dir)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	var formats []quant.Format
	for _, bits := range []int{3, 4, 5, 6, 8} {
		formats = append(formats, quant.Format{Codec: "affine", Bits: bits, GroupSize: 32})
	}
	measured, err := sensitivity.Measure(ctx, m, sensitivity.Options{
		Sequences: [][]int32{{2, 30, 41, 17, 9, 66, 12}, {2, 14, 15, 92, 65, 35, 89}}, Formats: formats})
	if err != nil {
		log.Fatal(err)
	}
	p, err := measured.Problem(sensitivity.ProblemOptions{Denoise: true})
	if err != nil {
		log.Fatal(err)
	}
	p.Cap = measured.Cap(5.5)
	s, err := allocate.Solve(p.Problem)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("within the budget:", measured.BPW(p.Bytes(s)) <= 5.5)
	fmt.Println("gap below 0.1 %:", s.Gap() < 1e-3)
	fmt.Println("target:", p.Recipe(s).Target)
	// Output:
	// within the budget: true
	// gap below 0.1 %: true
	// target: mlx
}
