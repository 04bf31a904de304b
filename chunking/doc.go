// Package chunking decides how a model becomes a bundle: where the layers are
// cut (CutInto, CutUnder, ParseRanges, Topology.Cut) and what every chunk's functions take
// and return (Design). The result is a Contract, stored as contract.json in
// the bundle.
//
// The contract is the one source of names, shapes, roles, cache layouts, RoPE
// frequencies and mask values. The graph is built from it, the host fills
// inputs from it, gates compare files with it.
//
// # Positions and caches
//
// Position p of a sequence lives in slot p of a linear cache and in slot
// p mod Slots of a ring. A call with T rows at position P feeds tokens
// P … P+n-1, n ≤ T; the rest is padding that sees itself alone. Masks have one
// column a slot and then one a new token. Keys and values are returned
// rotated.
//
//   - kv "tensor": caches are inputs and stay as they are; new keys and values
//     are outputs. The host commits as many tokens as it accepts, by copying
//     their rows into the slots. Decode, prefill and verify work alike.
//   - kv "state": decode and prefill write their tokens into the state at the
//     end of the graph, at the slots that current_pos, ring_pos or a one-hot
//     update matrix say. Verify only reads the state and returns slices.
//   - kv "coreml-llm": the names and shapes of the CoreML-LLM app. Attention
//     reads caches into which the call's tokens have been written, so masks
//     have a column a row of them. The full cache is linear; the sliding one
//     is right-aligned (Shift), and rows of both are as wide as the larger
//     head. Decode returns whole caches, prefill and verify return slices for
//     the host to commit. Layers that lend their keys and values to later
//     chunks must lie in one chunk, which returns them as kv13 and kv14.
package chunking
