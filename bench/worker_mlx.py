"""Measures mlx-lm on the processor for bench/compare: one JSON request a line
in, one JSON object a line out (see cmd/worker, whose requests these mirror)."""

import json
import sys
import time

import mlx.core as mx
from mlx_lm import load
from mlx_lm.models.cache import make_prompt_cache

mx.set_default_device(mx.cpu)
model = cache = None


def op_about(_):
    import importlib.metadata
    return {k: importlib.metadata.version(k) for k in ("mlx", "mlx-lm")}


def op_open(r):
    """Loads a Hugging Face directory with its weights cast to type."""
    global model
    start = time.perf_counter()
    model, _ = load(r["dir"])
    model.set_dtype(getattr(mx, r.get("type", "float16")))
    mx.eval(model.parameters())
    return {"seconds": time.perf_counter() - start}


def op_prefill(r):
    global cache
    cache = make_prompt_cache(model)
    start = time.perf_counter()
    token = mx.argmax(model(mx.array([r["ids"]]), cache=cache)[0, -1])
    mx.eval(token)
    return {"seconds": time.perf_counter() - start, "token": token.item()}


def op_decode(r):
    start, tokens = time.perf_counter(), []
    for t in r["ids"]:
        token = mx.argmax(model(mx.array([[t]]), cache=cache)[0, -1])
        mx.eval(token)
        tokens.append(token.item())
    return {"seconds": time.perf_counter() - start, "tokens": tokens}


for line in sys.stdin:
    try:
        request = json.loads(line)
        answer = globals()["op_" + request["op"]](request)
    except Exception as e:  # the driver prints it
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), flush=True)
