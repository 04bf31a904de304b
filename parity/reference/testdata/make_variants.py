"""Makes the directories beside this file: tiny random checkpoints for what the
shared fixtures do not cover, with logits computed by mlx-lm in float32.

    python make_variants.py

needs mlx, mlx-lm, numpy and safetensors. Where mlx-lm has no class for a
variant, one with the same mathematics stands in; each says which.
"""

import json
import pathlib

import mlx.core as mx
import numpy as np
from mlx_lm.models import gemma3_text, gemma4_text, llama
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
TOKENS, VOCAB = 40, 48


def draw(rng, shapes, dtype):
    """Random weights whose logits react to every part of the model."""
    out = {}
    for name, shape in shapes.items():
        w = rng.standard_normal(shape)
        if "norm" in name:
            w = 1 + 0.3 * w
        elif name.endswith(".bias"):
            w = 0.5 * w
        elif "embed" in name:
            w = 0.8 * w
        else:
            w = 1.6 * w / np.sqrt(shape[-1])
        out[name] = w.astype(dtype)
    return out


def shapes(cfg, bias_qkv, bias_o, bias_mlp, gemma=False):
    h, i = cfg["hidden_size"], cfg["intermediate_size"]
    d = cfg.get("head_dim") or h // cfg["num_attention_heads"]
    q, kv = cfg["num_attention_heads"] * d, cfg["num_key_value_heads"] * d
    s = {"model.embed_tokens.weight": (VOCAB, h), "model.norm.weight": (h,)}
    if not cfg["tie_word_embeddings"]:
        s["lm_head.weight"] = (VOCAB, h)
    for n in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{n}."
        for m, shape, bias in (
            ("self_attn.q_proj", (q, h), bias_qkv),
            ("self_attn.k_proj", (kv, h), bias_qkv),
            ("self_attn.v_proj", (kv, h), bias_qkv),
            ("self_attn.o_proj", (h, q), bias_o),
            ("mlp.gate_proj", (i, h), bias_mlp),
            ("mlp.up_proj", (i, h), bias_mlp),
            ("mlp.down_proj", (h, i), bias_mlp),
        ):
            s[p + m + ".weight"] = shape
            if bias:
                s[p + m + ".bias"] = (shape[0],)
        norms = ["input_layernorm", "post_attention_layernorm"]
        if gemma:
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
            s[p + "self_attn.q_norm.weight"] = s[p + "self_attn.k_norm.weight"] = (d,)
        for m in norms:
            s[p + m + ".weight"] = (h,)
    return s


def logits(module, cfg, weights, ids):
    model = module.Model(module.ModelArgs.from_dict(cfg))
    weights = {k: mx.array(v.astype(np.float32)) for k, v in weights.items()}
    if hasattr(model, "sanitize"):
        weights = model.sanitize(weights)
    model.load_weights(list(weights.items()), strict=True)
    return np.array(model(mx.array(ids[None].astype(np.int32)))[0]).astype(np.float32)


def write(name, cfg, weights, ids, out):
    d = HERE / name
    d.mkdir(exist_ok=True)
    (d / "config.json").write_text(json.dumps(cfg, indent=2) + "\n")
    save_file(weights, d / "model.safetensors", metadata={"format": "pt"})
    save_file({"input_ids": ids.astype(np.int32), "logits": out}, d / "expected.safetensors")
    print(name, "peak logit", abs(out).max())


def llama_biased():
    cfg = dict(
        architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=VOCAB, hidden_size=40,
        intermediate_size=56, num_hidden_layers=3, num_attention_heads=5, num_key_value_heads=5,
        hidden_act="silu", rms_norm_eps=1e-5, max_position_embeddings=128, attention_bias=True, mlp_bias=True,
        tie_word_embeddings=False, rope_theta=10000.0, rope_scaling={"type": "linear", "factor": 2.5},
    )
    rng = np.random.default_rng(1)
    w = draw(rng, shapes(cfg, True, True, True), np.float16)
    ids = rng.integers(0, VOCAB, TOKENS)
    write("llama-biased", cfg, w, ids, logits(llama, cfg, w, ids))


def qwen2_window():
    """mlx-lm's Qwen2 has no window: its Llama with layer_types and a zero o_proj bias stands in."""
    cfg = dict(
        architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=VOCAB, hidden_size=32,
        intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        hidden_act="silu", rms_norm_eps=1e-6, max_position_embeddings=128, tie_word_embeddings=True,
        rope_theta=1000000.0, use_sliding_window=True, sliding_window=7, max_window_layers=2,
    )
    rng = np.random.default_rng(2)
    w = draw(rng, shapes(cfg, True, False, False), np.float32)
    ids = rng.integers(0, VOCAB, TOKENS)
    stand_in = dict(cfg, attention_bias=True, layer_types=["full_attention"] * 2 + ["sliding_attention"] * 2)
    zero = {f"model.layers.{n}.self_attn.o_proj.bias": np.zeros(32, np.float32) for n in range(4)}
    write("qwen2-window", cfg, w, ids, logits(llama, stand_in, {**w, **zero}, ids))


def gemma3_nested():
    """The text part of a multimodal checkpoint, in the older spelling, with linear scaling on full layers."""
    text = dict(
        model_type="gemma3_text", vocab_size=VOCAB, hidden_size=36, intermediate_size=56, num_hidden_layers=4,
        num_attention_heads=3, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=11, sliding_window=6,
        sliding_window_pattern=2, rope_theta=1000000.0, rope_local_base_freq=10000.0,
        rope_scaling={"rope_type": "linear", "factor": 8.0}, rms_norm_eps=1e-6,
    )
    cfg = dict(
        architectures=["Gemma3ForConditionalGeneration"], model_type="gemma3", boi_token_index=40,
        eoi_token_index=41, image_token_index=42, mm_tokens_per_image=4, text_config=text,
        vision_config={"model_type": "siglip_vision_model", "hidden_size": 8},
    )
    rng = np.random.default_rng(3)
    w = draw(rng, shapes(dict(text, tie_word_embeddings=True), False, False, False, gemma=True), np.float32)
    for name in w:
        if "norm" in name:
            w[name] -= 1  # the model adds it again
    ids = rng.integers(0, VOCAB, TOKENS)
    out = logits(gemma3_text, text, w, ids)
    w = {"language_model." + k: v for k, v in w.items()}
    w["vision_tower.vision_model.post_layernorm.weight"] = np.ones(8, np.float32)
    w["multi_modal_projector.mm_soft_emb_norm.weight"] = np.ones(8, np.float32)
    write("gemma3-nested", cfg, w, ids, out)


def gemma4_nested():
    """The text part of a multimodal Gemma 4 without per-layer embeddings, in the published spelling: as many KV heads
    as query heads, four full layers of six, the last three sharing, divided rope frequencies, no softcap, null for what is off, and an
    embedding head of its own."""
    text = dict(
        model_type="gemma4_text", vocab_size=VOCAB, hidden_size=36, intermediate_size=40, num_hidden_layers=6,
        num_attention_heads=3, num_key_value_heads=3, head_dim=8, global_head_dim=16, num_global_key_value_heads=None,
        hidden_activation="gelu_pytorch_tanh", max_position_embeddings=128, rms_norm_eps=1e-6, sliding_window=6,
        layer_types=["full_attention", "sliding_attention"] + ["full_attention"] * 2 + ["sliding_attention", "full_attention"],
        hidden_size_per_layer_input=0, vocab_size_per_layer_input=0, num_kv_shared_layers=3, use_double_wide_mlp=True,
        final_logit_softcapping=None, use_bidirectional_attention="vision", attention_k_eq_v=False, tie_word_embeddings=False,
        rope_parameters={
            "full_attention": {"rope_type": "proportional", "rope_theta": 100000.0, "partial_rotary_factor": 0.625, "factor": 2.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        },
    )
    cfg = dict(
        architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4", boi_token_id=40, eoi_token_id=41,
        image_token_id=42, video_token_id=43, audio_token_id=44, boa_token_id=45, eoa_token_index=46,
        tie_word_embeddings=False, text_config=text, vision_config={"model_type": "gemma4_vision", "hidden_size": 8},
        audio_config=None,
    )
    rng = np.random.default_rng(4)
    h, i, d = 36, 40, {"full_attention": 16, "sliding_attention": 8}
    s = {"model.embed_tokens.weight": (VOCAB, h), "model.norm.weight": (h,), "lm_head.weight": (VOCAB, h)}
    for n, kind in enumerate(text["layer_types"]):
        p, a = f"model.layers.{n}.", 3 * d[kind]
        width = i * (2 if n >= 3 else 1)
        s |= {p + "self_attn.q_proj.weight": (a, h), p + "self_attn.o_proj.weight": (h, a), p + "self_attn.q_norm.weight": (d[kind],)}
        if n < 4:  # layer 3 has dead ones
            s |= {p + "self_attn.k_proj.weight": (a, h), p + "self_attn.v_proj.weight": (a, h), p + "self_attn.k_norm.weight": (d[kind],)}
        s |= {p + "mlp.gate_proj.weight": (width, h), p + "mlp.up_proj.weight": (width, h), p + "mlp.down_proj.weight": (h, width)}
        for m in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            s[p + m + "_layernorm.weight"] = (h,)
        s[p + "layer_scalar"] = (1,)
    w = draw(rng, s, np.float16)
    for n in range(6):
        w[f"model.layers.{n}.layer_scalar"] = np.array([1.5 - 0.2 * n], np.float16)
    ids = rng.integers(0, VOCAB, TOKENS)
    out = logits(gemma4_text, text, w, ids)
    w = {k if k.startswith("lm_head") else k.replace("model.", "model.language_model.", 1): v for k, v in w.items()}
    w["model.vision_tower.patch_embedder.input_proj.weight"] = np.ones((8, 8), np.float16)
    w["model.embed_vision.embedding_projection.weight"] = np.ones((36, 8), np.float16)
    write("gemma4-nested", cfg, w, ids, out)


if __name__ == "__main__":
    llama_biased()
    qwen2_window()
    gemma3_nested()
    gemma4_nested()
