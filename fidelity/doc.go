// Package fidelity says how much of a model a changed copy of it has kept:
// perplexity on a text, and against a reference the divergence of the predicted
// distributions and how often both put the same token first.
//
// A text is cut into windows. Every window is fed to the model from scratch, so
// that models with any cache give comparable figures; position i predicts
// token i+1. What is averaged are positions, all alike:
//
//	perplexity   exp of the mean of −ln p(next token)
//	KL           Σ p·(ln p − ln q), p of the reference, q of the model, in nats
//	Δ ln ppl     mean of ln p − ln q at the next token, with its standard error,
//	             which is that of paired differences
//
// Sums are float64.
package fidelity
