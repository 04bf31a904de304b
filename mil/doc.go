// Package mil is the intermediate representation of Core ML's ML Programs:
// types, values, operators, multi-function programs and states.
//
// One op table (OpSpec, looked up by Spec and listed by Kinds) says for every
// operator which parameters it has, which element types they take in which
// opset, which must be known at compile time, what absence means and how the
// result's type follows. The Builder, the verifier (Verify), type inference
// (InferTypes) and the interpreter all read it; there is no second source.
//
// # Form
//
// A Program maps names to Functions. A Function has inputs (tensors, and
// states as StateType) and a Block of Ops in order of execution; an Op binds
// Values to parameters and defines new Values. Pointers are identity: a Value
// is defined once, by its producer or as an input, and read by pointing to it.
//
// A const op has no arguments: the Const of its only output is the content.
// A literal may also be bound directly (Inline), which is how the parameters
// of constexpr ops are given. write_state has no outputs; read_state gives a
// copy of the state.
//
// Contents are lazy. A Const is a type and a WriteTo: weights stay in their
// checkpoint until they stream into their file, and passes wrap them instead
// of computing them. WriteTo is where an unusable weight (a NaN, a value out
// of range) is reported.
//
// # Rules
//
// Names are legal ([A-Za-z_][A-Za-z0-9_]*, no reserved word) and unique in a
// function. Optional parameters that have a default are always bound. Ranks
// are at most 5, except of constants that only feed constexpr ops. All
// functions share one opset. Outputs never alias inputs, constants or states.
// Verify enforces all of it, VerifyLoose what is needed to run programs of
// other tools.
//
// Nothing in this package depends on time, map order or the processor.
package mil
