package report_test

import (
	"fmt"

	"github.com/smelt-go/smelt/report"
)

// A front as CSV.
func ExampleCSV() {
	fmt.Print(string(report.CSV([]report.Front{{Budget: 4.5, BPW: 4.4998, Bytes: 150863000, Damage: 0.3, LowerBound: 0.3, PricePerMB: 0.02, Widths: "4×120 5×7"}})))
	// Output:
	// budget_bpw,bpw,bytes,damage,lower_bound,gap,price_per_mb,widths
	// 4.5,4.499800,150863000,0.3,0.3,0,0.02,4×120 5×7
}
