"""Writes an f16 GGUF of a Hugging Face directory (Llama or Gemma 3), weights
rounded to f16 as smelt rounds them, without a tokenizer: bench/compare feeds
token ids.

    python write_gguf.py DIR OUT.gguf
"""

import json
import os
import sys

import gguf
import numpy as np


def read_safetensors(path):
    """Yields name and float32 array of every BF16, F16 or F32 tensor."""
    data = np.memmap(path, np.uint8, "r")
    size = int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8:8 + size]))
    header.pop("__metadata__", None)
    for name, t in header.items():
        lo, hi = t["data_offsets"]
        raw = data[8 + size + lo:8 + size + hi]
        if t["dtype"] == "BF16":
            a = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            a = raw.view({"F16": "<f2", "F32": "<f4"}[t["dtype"]]).astype(np.float32)
        yield name, a.reshape(t["shape"])


NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
# The norm in front of the MLP has different names in the two families.
LLAMA = {"post_attention_layernorm": "ffn_norm"}
GEMMA = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
         "post_feedforward_layernorm": "post_ffw_norm"}


def interleave(w, heads):
    """Rotary pairs lie d/2 apart in the checkpoint and side by side in GGUF."""
    n, k = w.shape
    return w.reshape(heads, 2, n // heads // 2, k).swapaxes(1, 2).reshape(n, k)


def main(src, out):
    with open(os.path.join(src, "config.json")) as f:
        c = json.load(f)
    gemma = c["model_type"] == "gemma3_text"
    if not gemma and c["model_type"] != "llama":
        sys.exit(f"write_gguf.py: model_type {c['model_type']} is not known here")
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    dim = c.get("head_dim") or c["hidden_size"] // heads
    w = gguf.GGUFWriter(out + ".partial", "gemma3" if gemma else "llama")
    w.add_name(os.path.basename(src))
    w.add_file_type(1)
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(float(c.get("rope_theta", 10000.0)))
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("none")
    if gemma:
        w.add_sliding_window(c["sliding_window"])
    else:
        w.add_rope_dimension_count(dim)
    names = NAMES | (GEMMA if gemma else LLAMA)
    for name, a in read_safetensors(os.path.join(src, "model.safetensors")):
        parts = name.removeprefix("model.").removesuffix(".weight").split(".", 2)
        match parts:
            case ["embed_tokens"]:
                to = "token_embd"
            case ["norm"]:
                to = "output_norm"
            case ["lm_head"]:
                to = "output"
            case ["layers", n, what]:
                to = f"blk.{n}.{names[what]}"
            case _:
                sys.exit(f"write_gguf.py: tensor {name} is not known here")
        if gemma and "norm" in to:
            a = a + 1  # gains are stored less one in the checkpoint
        if not gemma and to.endswith("attn_q"):
            a = interleave(a, heads)
        if not gemma and to.endswith("attn_k"):
            a = interleave(a, kv)
        w.add_tensor(to + ".weight", a.astype(np.float16) if a.ndim == 2 else a)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.replace(out + ".partial", out)


main(*sys.argv[1:])
