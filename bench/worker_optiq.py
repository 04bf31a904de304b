"""Measures mlx-optiq's sensitivity sweep for bench/compare: one JSON request a
line in, one JSON object a line out."""

import contextlib
import json
import sys
import time

import mlx.core as mx
from mlx_lm import load
from optiq.core import sensitivity

mx.set_default_device(mx.cpu)
model = samples = group = None


def op_about(_):
    import importlib.metadata
    return {k: importlib.metadata.version(k) for k in ("mlx", "mlx-lm", "mlx-optiq")}


def op_open(r):
    global model, samples, group
    model, _ = load(r["dir"])
    model.set_dtype(getattr(mx, r["type"]))
    mx.eval(model.parameters())
    samples = [((mx.array([ids]),), {}) for ids in r["sequences"]]
    group = r["group"]
    return {}


def sweep(names, bits):
    """The package's own sweep over some layers: processor seconds, results."""
    every = sensitivity._quantizable_linears
    sensitivity._quantizable_linears = lambda m, g: [x for x in every(m, g) if x[0] in names]
    start = time.process_time()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            results = sensitivity.analyze_sensitivity_exact(
                model, lambda: samples, candidate_bits=bits, group_size=group, n_calibration=len(samples))
    finally:
        sensitivity._quantizable_linears = every
    return time.process_time() - start, results


def op_probe(r):
    reference, _ = sweep([], r["bits"])
    took, results = sweep(r["layers"], r["bits"])
    return {"cpu_seconds": took - reference,
            "found": [[x.layer_name, b, v] for x in results for b, v in x.sensitivities.items()]}


for line in sys.stdin:
    try:
        request = json.loads(line)
        answer = globals()["op_" + request["op"]](request)
    except Exception as e:  # the driver prints it
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), flush=True)
