// Package quant stores weight matrices in fewer bits.
//
// A Codec is one storage format. It says which tensors it stores for a matrix
// (Parts: every byte it needs, scales and biases included), encodes rows and
// decodes them again. Codecs know nothing of models or files.
//
//   - Affine is MLX's format of integer codes with a scale and a bias a group;
//     with method RTN its bytes are those of mx.quantize on the CPU.
//   - Float holds the formats mxfp4, mxfp8 and nvfp4, byte for byte as MLX.
//   - Turbo rotates rows and codes them with the table that is best for normal
//     numbers.
//   - Linear and Palette are Core ML's integer and lookup-table forms.
//
// How the codes are found is a Method: RTN is the peers' rule, Refit searches
// the same format for less error, from the weights alone. ErrorFeedback and Best
// want a Feedback, what a calibration text says about the inputs: NewFeedback, or
// NewTurnedFeedback for Turbo.
//
// Encode runs a codec over a lazy tensor in blocks of rows, on all cores,
// without holding the tensor: it returns tensors that are coded when they are
// written. Weights that are not finite are refused.
//
// A Recipe says which codec each tensor of a model gets.
//
// Output bytes depend on the weights, the codec and the method alone: not on
// the processor, the number of cores or the size of blocks.
package quant
