package speculate_test

import (
	"fmt"

	"github.com/smelt-go/smelt/speculate"
)

// What followed the last tokens before is a guess at what follows now.
func Example() {
	history := []int32{11, 12, 13, 14, 15, 11, 12}
	fmt.Println(speculate.PromptLookup{MaxN: 3}.Draft(history, 3))

	a := speculate.NewAutomaton()
	for _, token := range history {
		a.Append(token)
	}
	d := speculate.DefaultSuffix.Draft(a, 3)
	fmt.Println(d.Tokens, d.Probs)
	// Output:
	// [13 14 15]
	// [13 14] [0.5 0.5]
}

// A drafted token that costs a tenth of a decoded one, in rounds of three and
// verified at one and a half times its cost, pays above τ = 1.8.
func ExampleCosts() {
	c := speculate.Costs{Decode: 20, Draft: 2, Verify: []float64{0, 20, 0, 0, 30}}
	fmt.Printf("%.2f %.3f %.2f\n", c.BreakEvenTau(3), c.BreakEven(3), c.Speedup(2.2, 3))
	// Output: 1.80 0.472 1.22
}
