#!/usr/bin/env python3
"""Record what PyTorch computes from a Hugging Face model directory.

    python record_pt.py MODEL_DIR [-o golden.safetensors] [--text FILE | --ids 1,2,3]
                        [--tokens 128] [--compact] [--no-noise]

Needs torch, transformers, safetensors and numpy. The model is loaded from
MODEL_DIR alone (nothing is downloaded), its stored weights are widened to
float32, and one causal forward pass without a cache runs over T tokens with
eager attention, batch 1, positions 0 … T-1. Two files are written:

golden.safetensors
    input_ids    int64 [T]
    logits       float32 [T, vocab], after the final softcap
    hidden.0     float32 [T, hidden], the embedding output, scaled where the
                 model scales it
    hidden.i     float32 [T, hidden], the residual stream after layer i-1,
                 before the final norm
    hidden.norm  float32 [T, hidden], after the final norm

    With --compact, for large vocabularies: input_ids, argmax [T], top5_ids and
    top5_logits [T,5], lse [T] (log-sum-exp of a row), positions [n] and logits
    float16 [n, vocab] at these positions; no hidden states.

golden.json
    noise.fp16_compute_vs_fp32: how far logits move when the same weights are
    computed in float16 (bfloat16 likewise). smelt parity counts a different
    most likely token only where the reference prefers its own by more than
    twice max_abs_dlogit. Left out with --no-noise, or where this build of
    PyTorch cannot compute in that type on this machine.

Use it as:

    python interop/record_pt.py ./my-model -o ./my-model/golden.safetensors
    smelt convert ./my-model -o my.bundle
    smelt parity my.bundle --golden ./my-model/golden.safetensors --checkpoint ./my-model
"""

import argparse
import json
import os
import sys

TEXT = (
    "A journal is written before the file it protects. If the machine stops in between, the journal is played "
    "back and the file is whole again; if it stops before, nothing has happened yet.\n\n"
    "for (i = 0; i < n; i++) { total += price[i] * count[i]; }\n"
    "| year | pages | ratio |\n| 1998 | 12,500 | 3.5 % |\n"
    "Wer liest, hält die Sperre kurz. Qui écrit attend son tour. 先に記録し、後で書く。\n"
)


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="Hugging Face model directory")
    p.add_argument("-o", "--output", default="golden.safetensors")
    p.add_argument("--text", help="file whose text is tokenised with the model's tokenizer")
    p.add_argument("--ids", help="comma-separated token ids instead of text")
    p.add_argument("--tokens", type=int, default=128, help="number of tokens (default 128)")
    p.add_argument("--compact", action="store_true", help="best tokens everywhere, full rows at 24 positions")
    p.add_argument("--no-noise", action="store_true", help="do not measure the noise of fp16 and bf16 compute")
    return p.parse_args()


def token_ids(args, config):
    """Ids from --ids, from text, or, without a tokenizer, spread over the vocabulary."""
    vocab = config.get_text_config().vocab_size
    if args.ids:
        ids = [int(x) for x in args.ids.split(",")]
    elif args.text or os.path.exists(os.path.join(args.model, "tokenizer.json")):
        from transformers import AutoTokenizer

        text = TEXT
        if args.text:
            with open(args.text, encoding="utf-8") as f:
                text = f.read()
        tokenizer = AutoTokenizer.from_pretrained(args.model, local_files_only=True)
        ids = tokenizer(text)["input_ids"][: args.tokens]
    else:
        ids, x = [], 12345
        while len(ids) < args.tokens:
            x = (x * 1664525 + 1013904223) % 2**32
            ids.append(x * vocab >> 32)
    bad = [i for i in ids if not 0 <= i < vocab]
    if not ids or bad:
        sys.exit(f"record_pt: token ids {bad[:3]} are outside the vocabulary of {vocab}" if bad else "record_pt: no tokens")
    return ids


def refuse_old(path):
    """transformers 4 ignores the spelling of RoPE that version 5 writes, without a word."""
    import transformers

    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    newer = any(isinstance(c, dict) and c.get("rope_parameters") for c in (config, config.get("text_config")))
    if newer and int(transformers.__version__.split(".")[0]) < 5:
        sys.exit(f"record_pt: config.json has rope_parameters, which transformers {transformers.__version__} ignores (install 5 or later)")


def load(path, dtype):
    from transformers import AutoModelForCausalLM

    kwargs = {"attn_implementation": "eager", "local_files_only": True}
    try:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, **kwargs)
    except TypeError:  # before transformers 4.56
        model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=dtype, **kwargs)
    return model.eval()


def decoder(model):
    """The stack of layers: the module that owns `layers` and `norm`."""
    for module in model.modules():
        if hasattr(module, "layers") and hasattr(module, "norm") and hasattr(module, "embed_tokens"):
            return module
    sys.exit("record_pt: no decoder with embed_tokens, layers and norm found (an architecture of another kind?)")


def forward(model, ids, hidden):
    """Logits [T, vocab] and, if asked for, the residual stream by name."""
    import torch

    states, hooks = {}, []
    if hidden:
        stack = decoder(model)
        first = lambda out: out[0] if isinstance(out, tuple) else out

        def before(_, args, kwargs):
            states["hidden.0"] = args[0] if args else kwargs["hidden_states"]

        def after(i):
            def hook(_, __, out):
                states[f"hidden.{i + 1}"] = first(out)

            return hook

        # What enters the first layer is the embedding with its scale.
        hooks.append(stack.layers[0].register_forward_pre_hook(before, with_kwargs=True))
        for i, layer in enumerate(stack.layers):
            hooks.append(layer.register_forward_hook(after(i)))
        hooks.append(stack.norm.register_forward_hook(lambda _, __, out: states.__setitem__("hidden.norm", out)))
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
    for h in hooks:
        h.remove()
    return logits, {k: v[0].float().contiguous().clone() for k, v in states.items()}


def noise(path, ids, logits):
    """How far fp16 and bf16 compute move the logits."""
    import torch

    out = {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        try:
            model = load(path, dtype)
            got, _ = forward(model, ids, False)
        except (RuntimeError, NotImplementedError) as e:
            print(f"record_pt: no {name} noise: {e}", file=sys.stderr)
            continue
        d = (got - logits).abs()
        if not torch.isfinite(d).all():
            print(f"record_pt: {name} compute overflows in this model: its noise is left out", file=sys.stderr)
            continue
        out[f"{name}_compute_vs_fp32"] = {
            "max_abs_dlogit": float(d.max()),
            "mean_abs_dlogit": float(d.mean()),
            "argmax_agreement": float((got.argmax(-1) == logits.argmax(-1)).double().mean()),
        }
        del model
    return out


def spread(n, count=24):
    """Positions dense at the start, then even, both ends included."""
    chosen, a, b = set(), 0, 1
    while a < n:
        chosen.add(a)
        a, b = b, a + b
    while len(chosen) < min(count, n):
        gaps = sorted(chosen)
        width, at = max((y - x, x) for x, y in zip(gaps, gaps[1:] + [n]))
        chosen.add(at + width // 2)
    return sorted(chosen | {n - 1})


def main():
    args = parse()
    import torch
    import transformers
    from safetensors.torch import save_file

    refuse_old(args.model)
    config = transformers.AutoConfig.from_pretrained(args.model, local_files_only=True)
    ids = token_ids(args, config)
    model = load(args.model, torch.float32)
    logits, hidden = forward(model, ids, not args.compact)
    if not torch.isfinite(logits).all():
        sys.exit("record_pt: the logits are not finite")
    del model

    tensors = {"input_ids": torch.tensor(ids, dtype=torch.int64)}
    if args.compact:
        top = logits.topk(min(5, logits.shape[1]), dim=-1)
        positions = spread(len(ids))
        tensors.update(
            argmax=logits.argmax(-1).int(),
            top5_ids=top.indices.int(),
            top5_logits=top.values.contiguous(),
            lse=logits.double().logsumexp(-1).float(),
            positions=torch.tensor(positions, dtype=torch.int32),
            logits=logits[positions].half().contiguous(),
        )
    else:
        tensors.update(hidden, logits=logits.contiguous())
    save_file(tensors, args.output, metadata={"compute": "fp32 eager", "transformers": transformers.__version__, "torch": torch.__version__})

    margins = logits.topk(2, dim=-1).values
    notes = {
        "architecture": (config.architectures or [type(config).__name__])[0],
        "generator": {"transformers": transformers.__version__, "torch": torch.__version__},
        "reference_run": "stored weights widened to fp32, fp32 compute, eager attention, no KV cache, one causal forward, batch 1",
        "T": len(ids),
        "V": logits.shape[1],
        "noise": {} if args.no_noise else noise(args.model, ids, logits),
    }
    notes["noise"]["smallest_top1_top2_margin"] = float((margins[:, 0] - margins[:, 1]).min())
    with open(os.path.splitext(args.output)[0] + ".json", "w", encoding="utf-8") as f:
        json.dump(notes, f, indent=1)
        f.write("\n")
    print(f"{args.output}: {len(ids)} tokens, vocabulary {logits.shape[1]}")


if __name__ == "__main__":
    main()
