// Package faults is a catalog of single mistakes that conversions and hosts
// make, each as data: what goes wrong, how to inject it into a good bundle,
// which gate must catch it and what the gate must name.
//
// SelfTest converts checkpoints in several forms, checks that the gates of
// package parity pass, then injects one fault after the other into a copy of a
// bundle that can have it and records which gate failed first, what it named
// and which cause it took for the likeliest. A gate that has never been seen to
// fail proves nothing; the catalog is how the gates are tested.
//
// Families, one or more files each:
//
//   - graph: the ML Program of a chunk is rewritten, as if the model had been
//     built wrongly
//   - host: the bundle is right, the code that feeds it is not: rows, masks,
//     caches
//   - artifact: files were damaged, mixed up, edited or come from elsewhere;
//     config.json was misread; compressed weights are laid out wrongly; the
//     tokenizer is another one
//   - drafter: what drafters are given is not what they were trained on
//
// A new fault is a value in one of the lists. After adding one, run
//
//	go test ./parity/faults -run 'TestSignatures|TestCatalog' -update
//
// which writes its signature and the tables of docs/gates.md.
package faults
