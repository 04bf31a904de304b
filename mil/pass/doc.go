// Package pass rewrites ML Programs in place, one file a rewrite:
//
//   - DeadCode drops ops that nothing reads.
//   - DedupConsts makes equal constants one.
//   - ScaleResidual scales the residual stream by a power of two.
//   - LowerFP16 turns an fp32 program into fp16.
//   - Names makes names legal and unique.
//
// Pipeline runs several and verifies the program after each.
//
// Weights stay lazy: passes wrap a constant (Cast, Scale) instead of computing
// it. A wrapped constant streams through a fixed buffer, may be written more
// than once and always gives the same bytes. It reports what is wrong with a
// weight, NaN, infinity or a value beyond the target's range, by name when it
// is written.
package pass
