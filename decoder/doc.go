// Package decoder runs a Hugging Face checkpoint layer by layer over many
// sequences at once, in float32: what measuring and calibrating need, where
// parity/reference is the judge and has to be simple.
//
// A [Decoder] holds no weights. [Decoder.Embed] turns sequences into a [State],
// the residual stream [tokens, hidden] of all of them; [Decoder.Layer] takes it
// through one layer, in place; [Decoder.Logits] and [Decoder.Compare] read it
// at the end, in tiles of the vocabulary. Every weight is read once for all
// tokens, in tiles that are multiplied while they are in the cache: codes of whatever
// format never become a dense matrix, and memory grows with the tokens, not with
// the model.
//
// Between the stages of a layer, [Options] lets one look at the input of every
// linear module and put another matrix in its place: a quantized one, which the
// following stages then see. [Decoder.Begin] takes a layer apart into these
// stages, to run two models side by side.
//
// A State belongs to whoever holds it: [State.Clone] keeps a prefix, from which
// many variants of later layers can run.
//
// # Accuracy
//
// Matrix products are those of internal/kernel: float32 sums in a fixed order
// that depends on the kernel level (see kernel.Level) and on nothing else, so
// that results are the same bits on every number of cores. They differ from
// parity/reference, which sums in float64, by float32 rounding.
//
// Architectures and their configuration are those of parity/reference: Llama,
// Qwen 2 and 3, Gemma 3 and 4 (text).
package decoder
