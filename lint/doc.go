// Package lint looks at Core ML packages for what is known to go wrong later:
// programs that Core ML will not load, and programs that load but leave the
// Neural Engine or compute something else on it.
//
// Every rule is one row of a table (Rules): an identifier, the worst that it
// reports, a statement, the public source that it comes from, and its check.
// Approaches that others have tried and measured are a second table
// (Precedents), found by the traits of a program.
//
// A finding of severity Error is a program that does not load or gives wrong
// results wherever it runs; a Warning is one that is likely to fail, to be
// slow or to be wrong on the Neural Engine; Info is worth knowing. Equal
// findings of one chunk are merged and counted, since a mistake in a decoder
// usually repeats in every layer.
//
// # What a finding is worth
//
// Nothing in this package ran on Apple hardware. Rules are documented limits
// of the format and reports of other people, each named in Finding.Source, on
// particular devices and versions. A clean report does not promise that a
// model runs on the Neural Engine; only a measurement on the device does.
//
// Counts keep operations that compute at every call apart from constants and
// from constexpr operations, which are evaluated when a model is loaded. Tools
// that count those as work off the Neural Engine report a residency that is
// too low.
package lint
