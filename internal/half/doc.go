// Package half converts between float32 and the two 16-bit float formats:
// IEEE 754 binary16 (fp16) and bfloat16.
//
// Every narrowing conversion rounds to nearest, ties to even, with exact
// subnormals, overflow to infinity and quiet NaNs that keep the upper payload
// bits: the results the F16C and FCVT instructions give. Output bits never
// depend on the processor.
//
// The slice functions convert min(len(dst), len(src)) elements and return that
// count.
package half
