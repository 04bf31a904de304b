// Package mlpackage reads and writes .mlpackage directories: a manifest, a model
// file and a weight file on one side, a mil.Program on the other.
//
// Reading is strict and lazy. Every function, block, operation, type and
// immediate is decoded and checked; large constants stay in the memory-mapped
// weight file and are handed out as mil.RawConst slices, which are valid until
// Package.Close. The interface that the model describes must agree with the
// program. Operations the op table does not know are read as they stand and are
// reported by mil.Verify.
//
// Writing follows the form that Core ML's own tools produce: every optional
// input with a default is emitted; constants of ten or more elements of a
// storable type go to the weight file, each content once; constexpr parameters
// are inputs from CoreML8 on and attributes before; features are derived from the
// program. The directory appears whole or not at all. Bytes depend only on the
// program and the options: map entries are sorted, identifiers are fixed.
//
// Errors name the file, the function and the operation.
package mlpackage
