// Command kernelgen writes the amd64 assembly of internal/kernel.
//
//	kernelgen -group dot -isa avx512 -out FILE.s -stubs FILE.go
//
// Every kernel is written once, over an instruction set: AVX2 handles the 16
// lanes that the specification speaks of as two registers of 8, AVX-512 as
// one. Both do the same operations in the same order, so their results are
// the same bits.
package main

import (
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
)

var groups = map[string]func(isa){
	"affine":      affineKernels,
	"cast":        castKernels,
	"exact":       exactKernels,
	"dot":         dotKernels,
	"outer":       outerKernels,
	"convert":     convertKernels,
	"elementwise": elementwiseKernels,
	"feedback":    feedbackKernels,
	"packed":      packedKernels,
	"panel":       panelKernels,
}

func main() {
	// avo's own flags (-out, -stubs, -pkg) are parsed by Generate; the two of
	// this command come from the environment of the go:generate line.
	group, name := os.Getenv("KERNEL_GROUP"), os.Getenv("KERNEL_ISA")
	body, ok := groups[group]
	i, known := isas[name]
	if !ok || !known {
		fmt.Fprintf(os.Stderr, "kernelgen: unknown KERNEL_GROUP %q or KERNEL_ISA %q\n", group, name)
		os.Exit(2)
	}
	body(i)
	Generate()
}
