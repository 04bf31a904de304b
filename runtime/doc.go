// Package runtime executes ML Programs.
//
// Load lowers every function of a mil.Program once: constant parameters are
// read, values become numbered slots, patterns are fused. New makes an
// Instance with states and working memory of its own; instances of one
// Program share its weights and may run at the same time. Run executes one
// function:
//
//	prog, err := runtime.Load(p, runtime.Options{})
//	inst := prog.New()
//	out, err := inst.Run("decode", map[string]*runtime.Tensor{"input_ids": ids, …})
//
// # Arithmetic
//
// In Typed mode, the default, an operator on fp16 values computes in float32
// and rounds its result to fp16 once: the arithmetic of gates. Inputs and
// states are rounded on entry where they are not representable. FP32 mode
// leaves out all rounding, and so shows what a program means apart from fp16.
//
// Results depend on neither the number of threads nor on what else is computed
// in a batch: every element is one sum in a fixed order (see internal/kernel),
// so the rows of a linear layer, a norm or a softmax are the same bits whether
// they come alone or together. They do depend on the processor, within
// rounding: vector units fuse multiplication and addition.
//
// A product with probabilities (softmax, then matmul) skips the zeros at the
// ends of its rows.
//
// # Patterns
//
// Some patterns run as one operator. All but the first give the same bits as
// their ops one by one, with every rounding between them:
//
//   - RMSNorm, layer_norm([x, -x])[:n]: rounds once, as its layer_norm would;
//     the sum of squares is added in another order.
//   - Rotary embedding, x·cos + [-x₂, x₁]·sin, with a transposition before it
//     and a scale after it.
//   - Grouped-query attention over a cache and new tokens. Slots that the mask
//     closes with -1e4 or less are not read: as written, their probabilities
//     underflow to zero, as long as scores are within ±4900. A query with an
//     open score beyond that is computed over all slots.
//   - Linear layers with the same input; act(gate)·up.
//
// Options.NoFusion and runs with a tap execute a program op by op.
//
// Outputs leaves out what the wanted outputs do not need, Rounded the look at
// every element of inputs that are known to be fp16, and WithProfile measures
// each op.
//
// # Memory
//
// Constants are decoded when an operator needs them as a tensor. Weights of
// linear, of matmul with transposed constants and tables of gather stay as
// they are, memory-mapped fp16 or compressed, and are read row by row. Buffers
// of values are recycled as soon as nothing refers to them. read_state and
// write_state move references, not contents.
//
// # Errors
//
// Errors name function, operator and kind. Load refuses operators that the
// interpreter does not execute; Run refuses inputs of the wrong name, type or
// shape, and converts nothing. A Run that fails may have written states.
package runtime
