// Package decompress decodes compile-time tensors: constants and the
// constexpr ops that compress them.
//
// Of takes a value of a program and returns a Tensor, which decodes any run
// of its elements to float32, straight from the packed bytes: nothing is
// materialised, so a consumer can work tile by tile. A constexpr may take
// another one's result (a quantized lookup table, sparse palettized weights);
// the decoders nest likewise.
//
// Results are those of the result's type: scale·(data − offset) is evaluated
// in the type of scale, with one rounding for each of the two operations. The
// Exact option leaves fp16 rounding out, for an interpreter that shows what a
// program means apart from it.
//
// Sparse forms yield 0 at every position that the mask leaves out, whatever
// the offset is.
package decompress
