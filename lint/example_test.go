package lint_test

import (
	"fmt"
	"log"

	"github.com/smelt-go/smelt/lint"
)

func ExamplePackage() {
	r, err := lint.Package("../fixtures/packages/int4_block_offset/model.mlpackage")
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range r.Findings {
		fmt.Println(f.Severity, f.Rule)
		fmt.Println(f.Where())
		fmt.Println(f.Message)
		fmt.Println("says", f.Source)
	}
	main := r.Chunks[0].Functions[0]
	fmt.Println(main.Ops, "operation,", main.Constexprs, "constexpr")
	fmt.Println("no error:", r.OK())
	// Output:
	// warning block-int4
	// model main: constexpr_blockwise_shift_scale "constexpr_blockwise_shift_scale_0"
	// 4-bit weights have several scales along an output row, which the Neural Engine does not support (palettize for it; keep blocks for the GPU of a Mac)
	// says apple/coremltools#2510, apple/coremltools: docs-guides/source/opt-overview.md
	// 1 operation, 1 constexpr
	// no error: true
}
