"""Writes what other tools' allocators make of random inputs, for the tests of
package allocate:

    allocators.py optiq  SEED CASES > allocate/testdata/optiq.json        (mlx-optiq 0.7.7)
    allocators.py mlx-lm SEED CASES > allocate/testdata/mlx_threshold.json (mlx-lm 0.32.2)
"""

import contextlib
import json
import random
import sys

ATTENTION, MLP = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]


def names(rng):
    blocks = rng.randint(1, 10)
    out = [f"model.layers.{b}.{part}.{m}" for b in range(blocks) for part, ms in (("self_attn", ATTENTION), ("mlp", MLP))
           for m in ms if rng.random() > 0.05]
    return out + [n for n in ("model.embed_tokens", "lm_head", "model.layers.0.mlp.gate") if rng.random() < 0.4]


def optiq(rng):
    from optiq.core.optimizer import optimize_mixed_precision
    from optiq.core.sensitivity import SensitivityResult
    bits = rng.choice([[4, 8], [3, 4, 5, 6, 8], [2, 4, 8], [4, 8, 16], [2, 3, 4], [4, 6]])
    gains = rng.random() < 0.3  # what a quantized reference gives
    layers = []
    for n in names(rng):
        size, scale = rng.choice([65536, 163840, 655360, 1310720]), rng.lognormvariate(-4, 2)
        v = {b: (scale * (1 - 4.0 ** (bits[0] - b)) if gains else scale * 4.0 ** (4 - b)) * rng.uniform(0.8, 1.2) for b in bits}
        if gains:
            v[bits[0]] = 0.0
        if rng.random() < 0.1:  # ties
            v = {b: 0.25 / b for b in bits}
        if rng.random() < 0.03:
            v[rng.choice(bits)] = float("nan")
        layers.append({"name": n, "sensitivities": v, "parameters": size})
    o = {"target_bpw": round(rng.uniform(bits[0], bits[-1]), 3), "candidate_bits": bits, "protect_first_last": rng.random() < 0.7,
         "n_protect": rng.randint(0, 2), "n_floor_per_block": rng.randint(0, 3), "max_low_bit_run": rng.randint(0, 4)}
    r = optimize_mixed_precision([SensitivityResult(x["name"], dict(x["sensitivities"]), x["parameters"]) for x in layers], **o)
    by = {c.layer_name: c.bits for c in r.configs}
    for x in layers:
        # JSON has no NaN.
        x["nan"] = [b for b, y in x["sensitivities"].items() if y != y]
        x["sensitivities"] = {b: y for b, y in x["sensitivities"].items() if y == y}
    return {"layers": layers, "options": o, "bits": [by[x["name"]] for x in layers], "achieved": r.achieved_bpw,
            "high": r.n_high_bits, "low": r.n_low_bits}


def mlx_lm(rng):
    import mlx.core as mx
    import mlx.nn as nn
    from mlx_lm.quant.dynamic_quant import estimate_threshold
    from mlx_lm.utils import compute_bits_per_weight, get_total_parameters
    from mlx.utils import tree_flatten

    class Model(nn.Module):
        def __init__(self, shapes):
            super().__init__()
            self.norm = nn.RMSNorm(640)
            self.parts = [nn.Linear(i, o, bias=False) for o, i in shapes]
    low, high = rng.choice([(4, 5), (4, 8), (3, 6), (2, 4)])
    groups = rng.choice([(64, 64), (64, 32), (32, 64)])
    shapes = [(64 * rng.randint(1, 8), 64 * rng.randint(1, 8)) for _ in range(rng.randint(2, 12))]
    if rng.random() < 0.4:
        shapes[0] = (4096, 256)  # most of the bytes
    model = Model(shapes)
    model.set_dtype(mx.bfloat16)
    sens = {f"parts.{k}": rng.lognormvariate(0, 1.5) * rng.choice([1, 1, 1, -1]) for k in range(len(shapes))}
    target = round(rng.uniform(low + 0.4, high + 1.2), 3)
    threshold = estimate_threshold(model, sens, target, low, groups[0], high, groups[1])

    def size(shape, bits, group):
        return shape[0] * shape[1] * bits // 8 + shape[0] * (shape[1] // group) * 4
    items = [{"name": f"parts.{k}", "sensitivity": sens[f"parts.{k}"], "low": size(s, low, groups[0]), "high": size(s, high, groups[1])}
             for k, s in enumerate(shapes)]
    chosen = [x["sensitivity"] > threshold for x in items]
    # The real model of this choice has the bytes that the items add up to.
    nn.quantize(model, group_size=groups[0], bits=low, class_predicate=lambda p, m: hasattr(m, "to_quantized") and (
        {"bits": high, "group_size": groups[1]} if sens[p] > threshold else True))
    fixed = model.norm.weight.nbytes
    weights = get_total_parameters(model)
    bpw = compute_bits_per_weight(model)
    mine = 8 * (fixed + sum(x["high"] if c else x["low"] for x, c in zip(items, chosen))) / weights
    assert abs(bpw - mine) < 1e-9, (bpw, mine)
    return {"items": items, "fixed": fixed, "weights": weights, "target": target, "threshold": threshold, "chosen": chosen}


def main():
    tool, seed, cases = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    make = {"optiq": optiq, "mlx-lm": mlx_lm}[tool]
    rng = random.Random(seed)
    with contextlib.redirect_stdout(sys.stderr):  # the tools print
        made = [make(rng) for _ in range(cases)]
    json.dump(made, sys.stdout, allow_nan=False)


main()
