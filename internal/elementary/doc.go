// Package elementary holds elementary functions of float64 whose results have
// the same bits on every processor.
//
// The functions of package math are assembly on some processors and Go code on
// others, where the compiler may fuse a product and a sum into one rounding.
// Their last bit differs, and so would everything that is decided by it: the
// RoPE frequencies of a contract, the residual scale that a range probe picks.
// Here every product is rounded by itself.
//
// Results are within 2 units in the last place of the exact ones, those of Tanh
// and Erf within 64. They are meant to be rounded to float32 afterwards.
package elementary
