package drafter_test

import (
	"fmt"

	"github.com/smelt-go/smelt/drafter"
)

// Needs are held against a target before anything runs.
func Example() {
	needs := drafter.Needs{Hidden: 64, Vocab: 512, Taps: []int{1, 3, 9}}
	fmt.Println(needs.Fits(drafter.Target{Name: "tiny", Hidden: 64, Vocab: 512, Layers: 12}))
	fmt.Println(needs.Fits(drafter.Target{Name: "tiny", Hidden: 64, Vocab: 512, Layers: 8}))
	// Output:
	// <nil>
	// drafter: it taps layer 9 of taps [1 3 9]; the target tiny has layers 0 to 7, of which the last cannot be tapped (wrong tap layers?)
}
