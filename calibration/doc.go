// Package calibration learns from texts what the inputs of a model's linear
// modules are like, so that quantizing can spend its errors where they matter
// least.
//
//   - [ReadTexts] reads texts by domain; [Windows] makes token windows of them.
//   - [Hessian] sums x·xᵀ over the inputs of a module: float32 products over
//     blocks of tokens, summed in float64.
//   - [Run] takes a model layer by layer through the windows and asks for every
//     module's quantized matrix once its Hessian is known. One layer's Hessians
//     are in memory at a time.
//
// Run knows nothing of formats. In the simplest form all inputs are those of the
// unquantized model. With Options.Sequential, the inputs of a module are those
// behind the quantized modules before it, and its matrix W is first corrected
// towards the outputs of the unquantized model,
//
//	W + a·W·(X − X̂)·X̂ᵀ·(X̂·X̂ᵀ + λ)⁻¹,
//
// where X has the inputs in the unquantized model and X̂ in the quantized one. With
// a = 1 that is least squares on the calibration text, which overfits it; half of
// it is better on texts that were not seen (Options.Correction).
//
// Results depend on texts, model and kernel level, and not on the number of cores.
package calibration
