// Package kernel holds the inner loops of the runtime.
//
// The Go form of a kernel (generic.go) is its specification. On amd64, an
// assembly form for AVX2+FMA+F16C or AVX-512 is chosen once at start by the
// processor's features; setting GODEBUG=cpu.avx512f=off or cpu.avx2=off
// chooses a lower level. On arm64 the assembly is NEON of the base
// architecture, written by hand; GODEBUG=cpu.asimd=off chooses Go. It was run
// in an emulator only: its results are known, its speed is not, and tile
// shapes are those that fit the registers rather than measured ones. Packed
// matrices have NEON forms for integers and tables of 4 bits and for integers
// of 8; the rest is decoded in Go. Other architectures run the Go form.
//
// # Order of operations
//
// Sums run in 16 lanes: lane j adds the terms with index j mod 16 in ascending
// order, and at the end lanes are added pairwise at distances 8, 4, 2, 1.
// Products with the operand in rows along the result (MulNN) add in ascending
// order. An element of a result therefore never depends on how many others
// are computed with it, on tile sizes or on threads: a matrix product gives a
// row the same bits as a product with that row alone.
// Products of many long rows run on packed panels, lane after lane, and keep
// this order too (panel.go); so does what SyrkF32 adds in a block.
//
// AVX2, AVX-512 and NEON give the same bits, those of NaN aside. They use
// fused multiply-add where the Go form rounds the product, so a sum of k
// products differs between Go and assembly by at most k·2⁻²⁴ times the sum of
// their magnitudes. Exponentials are within 2 ulp of each other; those of the
// Go form depend on the architecture, through package math. Conversions,
// RoundF16, Add, Sub, Mul and their scalar forms are the same bits everywhere,
// and so is MulExact, which never fuses.
package kernel

//go:generate sh generate.sh
