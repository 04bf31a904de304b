package allocate_test

import (
	"fmt"
	"log"

	"github.com/smelt-go/smelt/allocate"
)

// Two tensors share 13 kB. The certificate says that nothing better exists.
func Example() {
	p := allocate.Problem{Cap: 13_000, Items: []allocate.Item{
		{Name: "v_proj", Candidates: []allocate.Candidate{
			{Name: "4-bit", Bits: 4, Cost: 4000, Damage: 0.060}, {Name: "6-bit", Bits: 6, Cost: 6000, Damage: 0.004}}},
		{Name: "up_proj", Candidates: []allocate.Candidate{
			{Name: "3-bit", Bits: 3, Cost: 6000, Damage: 0.040}, {Name: "4-bit", Bits: 4, Cost: 8000, Damage: 0.010}}},
	}}
	s, err := allocate.Solve(p)
	if err != nil {
		log.Fatal(err)
	}
	for i, it := range p.Items {
		fmt.Println(it.Name, it.Candidates[s.Choice[i]].Name)
	}
	fmt.Printf("damage %.3f at %d bytes, at least %.3f\n", s.Damage, s.Cost, s.LowerBound)
	// Output:
	// v_proj 6-bit
	// up_proj 3-bit
	// damage 0.044 at 12000 bytes, at least 0.044
}
