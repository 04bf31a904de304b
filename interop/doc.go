// Package interop holds tests against the tools of others: coremltools loads
// every package that smelt writes and an independent evaluator runs it to the
// same numbers; smelt reads and runs packages that coremltools wrote.
//
// The tests need a Python with the packages of oracles/requirements.txt, named
// by SMELT_PYTHON, and are skipped without it.
//
// same_bytes.sh holds conversions on different processors against each other,
// byte for byte.
package interop
