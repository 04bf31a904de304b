"""The group `sensitivity` of bench/compare: what a probe costs, which is one
tensor stored in one format and the divergence of the model's predictions,
measured on the same tokens by smelt, by mlx-optiq's own sweep and by the plain
loop in PyTorch."""

import json
import os
import subprocess
import tempfile

from harness import Missing
from peers import MODELS

BITS, GROUP, SEQUENCES, TOKENS = [3, 4, 5, 6, 8], 64, 4, 48
NAME = "gemma3-270m"
# Peers: worker, name, aim, what they are told, and the probes of a turn. A
# peer's probes all cost the same, so a few are enough.
PEERS = [
    ("torch", "plain loop in PyTorch", 8, {}, [3, 4, 8],
     ["model.layers.0.mlp.gate_proj", "model.layers.4.self_attn.v_proj", "model.layers.9.mlp.down_proj",
      "model.layers.13.self_attn.o_proj", "model.layers.17.mlp.up_proj"]),
    ("optiq", "mlx-optiq", 20, {"type": "bfloat16"}, [4], ["model.layers.3.self_attn.v_proj", "model.layers.12.mlp.down_proj"]),
    ("optiq", "mlx-optiq in float32", None, {"type": "float32"}, [4, 8],
     ["model.layers.3.self_attn.v_proj", "model.layers.12.mlp.down_proj"]),
]


def sweep(cache, model, out):
    """One whole map by smelt: candidates, processor seconds, the map."""
    argv = [cache.smelt(), "sensitivity", model, "-o", out, "--force", "--bits", ",".join(map(str, BITS)),
            "--group-size", str(GROUP), "--sequences", str(SEQUENCES), "--tokens", str(TOKENS)]
    p = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                         env=dict(os.environ) | {"GOMAXPROCS": str(cache.threads)})
    err = p.stderr.read()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        raise Missing((err.strip().splitlines() or ["no message"])[-1])
    with open(out) as f:
        m = json.load(f)
    return sum(len(t["candidates"]) for t in m["tensors"]), usage.ru_utime + usage.ru_stime, m


def tokens(cache, model, tmp):
    """The sequences that the map is measured on, as capture writes them."""
    cache.run([cache.smelt(), "capture", model, "-o", os.path.join(tmp, "hidden"), "--norm", "post",
               "--sequences", str(SEQUENCES), "--tokens", str(TOKENS)])
    with open(os.path.join(tmp, "hidden", "shard-00000.safetensors"), "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        start, end = header["tokens"]["data_offsets"]
        f.seek(start, 1)
        raw = f.read(end - start)
    ids = [int.from_bytes(raw[i:i + 4], "little", signed=True) for i in range(0, len(raw), 4)]
    return [ids[i:i + TOKENS] for i in range(0, len(ids), TOKENS)]


def deviation(found, m):
    """How far damages are from those of the map: the largest relative
    difference, and where."""
    by = {(t["path"], c["bits"]): c["damage"] for t in m["tensors"] for c in t["candidates"]}
    return max((abs(kl / by[path, bits] - 1), f"{path} at {bits} bits") for path, bits, kl in found)


def sensitivity(cache, table):
    """Processor seconds a probe of a sensitivity sweep."""
    table.section(f"Sensitivity of {MODELS[NAME]}: {len(BITS)} widths, {SEQUENCES} × {TOKENS} tokens")
    model = cache.model(NAME)
    with tempfile.TemporaryDirectory() as tmp:
        sequences = tokens(cache, model, tmp)
        smelt, theirs, found, workers = [], {}, {}, {}
        for kind, label, _, how, _, _ in PEERS:
            try:
                workers[label] = cache.worker(kind)
                workers[label].ask("open", dir=model, sequences=sequences, group=GROUP, **how)
            except Missing as e:
                workers.pop(label, None)
                table.missing("a probe", label, str(e))
        for _ in range(min(2, cache.rounds)):
            n, cpu, m = sweep(cache, model, os.path.join(tmp, "map.json"))
            smelt.append(cpu / n)
            for _, label, _, _, bits, layers in PEERS:
                if label in workers:
                    a = workers[label].ask("probe", layers=layers, bits=bits)
                    found[label] = a["found"]
                    theirs.setdefault(label, []).append(a["cpu_seconds"] / len(a["found"]))
        for _, label, aim, _, _, _ in PEERS:
            if label in workers:
                table.add("a probe", label, theirs[label], smelt, "CPU-s", lower=True, aim=aim)
                off, where = deviation(found[label], m)
                table.note(f"{label}: damages of {len(found[label])} probes within {100 * off:.1f} % of smelt's (most at {where})")
                workers[label].close()
    table.note(f"a probe: smelt's time is that of a whole map, loading, hashing and the reference included, over its {n} "
               "candidates; the peers' is without their reference, over a few of the same probes")
    table.note("mlx-optiq computes in the checkpoint's bfloat16, whose rounding is then a part of the damage; in float32 it "
               "codes with float32 scales, which the models that it writes do not have")
