// Package faults is a catalog of single mistakes that conversions and hosts
// make, each as data: what goes wrong, how to inject it into a good bundle,
// and which gate must catch it.
//
// SelfTest converts a checkpoint, checks that the gates of package parity
// pass, then injects one fault after the other into a copy of the bundle and
// records which gate failed first and what bisection named. A gate that has
// never been seen to fail proves nothing; the catalog is how the gates are
// tested.
//
// Families:
//
//   - graph: the ML Program of a chunk is rewritten, as if the model had been
//     built wrongly
//   - contract: the contract says something that the model does not mean
//   - host: the bundle is right, the code that feeds it is not
//   - artifact: files were damaged, mixed up or come from elsewhere
package faults
