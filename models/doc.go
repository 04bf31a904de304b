// Package models turns Hugging Face checkpoints into ML Program graphs: one
// file an architecture, which normalises config.json, and shared blocks
// (attention, MLP, norms) in files named after them.
//
// A Model is a configuration matched with its tensors: every tensor of the
// checkpoint is used, waived with a reason, or an error, and a config key
// that may change the mathematics is never ignored. Build adds one Part of
// the model, a range of layers for a fixed number of new tokens, to a
// mil.Builder. The part's inputs, states and outputs come from outside as
// plain data (Port); the model asks for them by role.
//
// Graphs are built in fp32. Lowering to fp16 and scaling the residual stream
// are passes over the finished program (mil/pass), which find what they need
// by tags.
//
// # Shape of the graph
//
// Attention reads the cache as it was before the call and the T new tokens
// beside it; one additive mask covers both. The cache itself is never changed
// inside attention, so decode (T=1), prefill (T=N) and verify (T=K) are the
// same graph with another T, and committing is a separate step: the host's
// for caches that are tensors, a write at the end of the graph for states.
//
// Values are named as in parity/reference: layers.3.attn_out is the op
// layers_3_attn_out.
package models
