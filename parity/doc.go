// Package parity decides whether a bundle computes what its checkpoint means.
//
// Reference results come as a Recording: what PyTorch computed (ReadGolden
// reads the file that interop/record_pt.py writes) or what parity/reference,
// an independent eager decoder, computes from the checkpoint (Record). Verify
// reads the bundle back from disk, runs it through its host and asks every
// gate that applies. A Gate is a value: an ID, one line that says what it
// proves, and a function that measures. Gates lists them; a Report collects
// verdicts and numbers, as a table for people and as JSON for machines.
//
// # Verdicts
//
// Arithmetic in fp16 moves logits, so a different argmax alone is no error. A
// flip counts only where the reference prefers its first choice by more than
// twice the noise of fp16 compute (Tolerance). The noise comes with the
// recording; where it is unknown, DefaultNoise derives it from the type and
// the size of the logits. A NaN or an infinity anywhere fails.
//
// The precision ladder runs the same bundle twice: in fp32 mode, where only
// the fp16 rounding of stored constants is left, so that structural mistakes
// stand out, and in typed mode, which rounds as the declared types say.
//
// Compressed weights and tables change the model. Gate codes holds what they
// decode to against the checkpoint; everything else is compared with the
// reference decoder on the decoded weights, so that it stays as sharp.
//
// # Bisection
//
// When a gate that compares with the reference fails, the bundle runs again
// under a tap and every named intermediate is compared with the reference's,
// in order of computation. The Finding names chunk, function, layer, position
// and the first intermediate that differs, and how its values differ where that
// has a name: scaled by √P, turned backwards, the row of the token before.
//
// # Causes
//
// Together with the gate these make a Signature. Package parity/faults injects
// known mistakes and writes down the signature of each (signatures.json);
// Diagnose finds the one that a failure looks like.
//
// # Sites
//
// Intermediates are compared under the names of parity/reference
// (layers.3.attn_out). Site translates the names of a graph, where dots are
// underscores and outputs carry the names of their ports, and undoes the
// scale of the residual stream.
package parity
