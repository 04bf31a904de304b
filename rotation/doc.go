// Package rotation folds orthogonal rotations into the weights of a model, which
// computes the same afterwards and quantizes with smaller error where weights
// have outliers (QuaRot: Ashkboos et al. 2024). Nothing rotates at inference, so
// any runtime that loads the model loads the rotated one.
//
// Two rotations are folded. R1, of order hidden_size, turns the residual stream:
//
//	embeddings                    E·R1
//	what reads the stream         W·diag(g)·R1, g the gains of the norm before it
//	what adds to the stream       R1ᵀ·W
//	the head                      W·diag(g)·R1
//
// Gains of norms become 1: a root mean square is that of the turned stream only
// without gains. A head tied to the embeddings is stored of its own, because the
// final norm's gains belong to it alone. R2, of order head_dim, turns the values
// of a head and is undone by the output projection.
//
// R1 and R2 are block-diagonal Hadamard matrices (runs of the largest power of two
// that divides the order) behind random signs, as codec turboquant uses.
//
// Models whose norms stand between a projection and the residual stream (Gemma
// 2, 3 and 4) cannot be rotated: their gains do not commute with R1.
package rotation
