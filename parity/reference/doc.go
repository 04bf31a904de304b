// Package reference is a deliberately plain eager decoder: it computes what a
// Hugging Face checkpoint means, straight from config.json and the stored
// tensors, so that a converted model has an independent judge.
//
// It shares no code with the converter. It parses config.json by itself, and
// strictly: a missing key, an unknown architecture, rope type or activation,
// an unknown key that could change the maths, a tensor that is missing, extra,
// misshaped or not finite is an error that names the thing.
//
// Supported are the text decoders LlamaForCausalLM, Qwen2ForCausalLM,
// Qwen3ForCausalLM, Gemma3ForCausalLM and the text part of
// Gemma3ForConditionalGeneration, in the older (rope_theta, rope_scaling) and
// the newer (rope_parameters) spelling of transformers.
//
// # Numerics
//
// One causal forward pass over positions 0 to T−1, without a cache. Stored
// weights are widened to float32 and every named intermediate is a float32
// matrix. Sums are wider: dot products add float32 blocks of at most 256
// terms in float64; norms, softmax and the weighted sum over values use
// float64 throughout. Rotary frequencies and angles are float32, because that
// is what the checkpoints were trained and recorded with. The result does not
// depend on the number of cores.
//
// # Memory
//
// Layers run one after the other and each weight is widened into a buffer that
// the next one reuses, so the peak is the largest matrix of one layer plus the
// activations, whatever the size of the model. The head runs by tiles of the
// vocabulary.
//
// # Names
//
// The intermediates of layer N, as a Tap receives them; every matrix has one
// row a token:
//
//	embed                    [T, hidden]         embedding rows, scaled where the architecture scales them
//	layers.N.attn_norm       [T, hidden]         input of the q, k and v projections
//	layers.N.q               [T, heads·head_dim] after bias, q norm and rope
//	layers.N.k               [T, kv_heads·head_dim] after bias, k norm and rope
//	layers.N.v               [T, kv_heads·head_dim]
//	layers.N.attn_ctx        [T, heads·head_dim] weighted values, before o_proj
//	layers.N.attn_out        [T, hidden]         after o_proj
//	layers.N.post_attn_norm  [T, hidden]         Gemma 3 only: what joins the residual stream
//	layers.N.resid_mid       [T, hidden]         residual stream after attention
//	layers.N.mlp_norm        [T, hidden]         input of the gate and up projections
//	layers.N.mlp_act         [T, intermediate]   act(gate)·up
//	layers.N.mlp_out         [T, hidden]         after down_proj
//	layers.N.post_mlp_norm   [T, hidden]         Gemma 3 only
//	layers.N.out             [T, hidden]         residual stream after the layer
//	final_norm               [T, hidden]
//	logits                   [rows, vocab]       after the final softcap
package reference
