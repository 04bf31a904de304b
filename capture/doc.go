// Package capture writes what a model computes inside over a text: the hidden
// states that drafters are trained and judged on, without the model having to run
// again.
//
// # Format
//
// A directory holds capture.json and shards shard-00000.safetensors, …, each with
// up to Options.Sequences sequences of one length:
//
//	tokens           I32 [sequences, tokens]
//	tap.N            [sequences, tokens, hidden]  the residual stream after layer N,
//	                 raw; N = -1 is the scaled embedding
//	hidden.pre       [sequences, tokens, hidden]  the residual stream after the last layer
//	hidden.post      [sequences, tokens, hidden]  the same after the final norm
//	keys.KIND        [sequences, tokens, kv_heads·head_dim]  rotated keys of the last
//	                 full or sliding layer that has its own
//	values.KIND      likewise
//
// Values are BF16, F16 or F32. The metadata of a shard holds the key of the run,
// which hashes the checkpoint, the tokens and the options; capture.json names the
// checkpoint's hash, the taps, the norms and, of every shard, the SHA-256.
//
// pre and post have one shape, and a mix-up is only seen in a drafter's
// acceptance, so that every tensor says which it is. Rows are those that the
// deployed model's chunks return, before rounding.
//
// Open reads a directory back, after it has compared every shard with its hash, and
// hands out what a drafter needs, or says why it cannot.
//
// A run that was stopped goes on after the last whole shard, and its files have
// the bytes of an undisturbed run.
package capture
