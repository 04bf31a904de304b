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
// Qwen3ForCausalLM, Gemma3ForCausalLM, Gemma4ForCausalLM and the text parts of
// Gemma3ForConditionalGeneration and Gemma4ForConditionalGeneration, in the
// older (rope_theta, rope_scaling) and the newer (rope_parameters) spelling of
// transformers. Gemma 4's full layers may be described as published
// (global_head_dim) or as transformers writes them (per_layer_config); keys and
// values that a checkpoint stores for layers which read another layer's are
// checked for their shape and left alone. Mixtures of experts and layers whose
// values are their keys are refused.
//
// A Drafter is Gemma4AssistantForCausalLM, the multi-token-prediction head of
// such a model: it takes a target's keys, values and final hidden state, all of
// which Forward delivers, and guesses the tokens that follow. A DraftSource is
// any drafter (that one, EAGLE-3 heads, MTP modules, DSpark block drafters)
// behind the session that converted drafters have too.
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
// vocabulary, and of the table of per-layer embeddings only the rows of the
// given tokens are read.
//
// # Names
//
// The intermediates of layer N, as a Tap receives them; every matrix has one
// row a token:
//
//	embed                    [T, hidden]         embedding rows, scaled where the architecture scales them
//	per_layer_token          [T, layers·P]       Gemma 4: scaled rows of the per-layer table; P is the width of a layer's part
//	per_layer_projected      [T, layers·P]       Gemma 4: projected embedding, scaled and normed
//	per_layer_inputs         [T, layers·P]       Gemma 4: both combined; layer N receives columns N·P to (N+1)·P
//	layers.N.attn_norm       [T, hidden]         input of the q, k and v projections
//	layers.N.q_proj          [T, heads·head_dim] after bias, before norm and rope
//	layers.N.k_proj          [T, kv_heads·head_dim]
//	layers.N.v_proj          [T, kv_heads·head_dim] Gemma 4: before the norm
//	layers.N.q               [T, heads·head_dim] after bias, q norm and rope
//	layers.N.k               [T, kv_heads·head_dim] after bias, k norm and rope
//	layers.N.v               [T, kv_heads·head_dim] after bias, and v norm in Gemma 4
//	layers.N.attn_ctx        [T, heads·head_dim] weighted values, before o_proj
//	layers.N.attn_out        [T, hidden]         after o_proj
//	layers.N.post_attn_norm  [T, hidden]         Gemmas: what joins the residual stream
//	layers.N.resid_mid       [T, hidden]         residual stream after attention
//	layers.N.mlp_norm        [T, hidden]         input of the gate and up projections
//	layers.N.mlp_gate        [T, intermediate]   before the activation
//	layers.N.mlp_up          [T, intermediate]
//	layers.N.mlp_act         [T, intermediate]   act(gate)·up
//	layers.N.mlp_out         [T, hidden]         after down_proj
//	layers.N.post_mlp_norm   [T, hidden]         Gemmas: what joins the residual stream
//	layers.N.resid_mlp       [T, hidden]         Gemma 4: residual stream after the MLP
//	layers.N.ple_gate        [T, P]              Gemma 4: after per_layer_input_gate, before the activation
//	layers.N.ple_act         [T, P]              Gemma 4: act(gate)·(the layer's part of per_layer_inputs)
//	layers.N.ple_out         [T, hidden]         Gemma 4: after per_layer_projection
//	layers.N.post_ple_norm   [T, hidden]         Gemma 4: what joins the residual stream
//	layers.N.resid_ple       [T, hidden]         Gemma 4: residual stream before layer_scalar multiplies it
//	layers.N.out             [T, hidden]         residual stream after the layer
//	final_norm               [T, hidden]
//	logits                   [rows, vocab]       after the final softcap
//
// A Gemma 4 layer that reads another layer's keys and values has no k_proj,
// v_proj, k and v. Without per-layer embeddings there is nothing named
// per_layer, ple or resid_ple.
//
// A Drafter's step has one row, and around the same layers:
//
//	inputs_embeds    [1, 2·target hidden]  scaled target embedding, then hidden state
//	pre_projection   [1, hidden]           what enters the first layer
//	centroid_scores  [1, centroids]        with token clusters only
//	logits           [1, vocab]
//	projected        [1, target hidden]    hidden state of the next step's input
package reference
