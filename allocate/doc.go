// Package allocate decides how many bits every tensor of a model gets.
//
// A Problem is a multiple-choice knapsack: of every Item (a tensor) exactly one
// Candidate (a format) is taken, so that the damages add up to as little as
// possible while the costs stay within a hard cap. What a cost counts is the
// caller's: bytes of a file, bytes that a step reads, nanoseconds. Damages are
// finite and not negative.
//
// Solve returns a Solution with a certificate: its value, a proven lower bound
// of any solution's value, and the price, which is the damage that a unit of
// the cap is worth.
//
// The method. Relaxing the cap with a multiplier λ ≥ 0 leaves one choice an
// item, min damage + λ·cost; the best λ gives a lower bound and the two
// neighbouring points of the lower convex hull of all solutions. The gap
// between both is closed by dynamic programming over the solutions that the
// bound does not exclude; where these are too many, those that differ by next to
// nothing are merged, and what that may have lost is taken off the bound. Items
// that hold a large part of the cost, an embedding for instance, defeat a single
// λ: their candidates are tried one by one.
//
// Constraints that tie neighbours (so many tensors of a block above the lowest
// width, so many blocks in a row below) are an automaton that the relaxation
// and the dynamic program both walk, so that certificates hold for them, too.
//
// Greedy, Threshold, Static and Uniform are what other tools do, for comparison.
//
// Results depend on the problem alone: not on the machine or on time.
package allocate
