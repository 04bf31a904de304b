"""Measures the plain loop for bench/compare: a layer's matrix replaced by what
its codes decode to, one forward pass over all sequences in float32, KL to the
reference. One JSON request a line in, one JSON object a line out."""

import json
import os
import sys
import time

import torch
from transformers import AutoModelForCausalLM

torch.set_grad_enabled(False)
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
model = ids = reference = group = None


def op_about(_):
    import transformers
    return {"torch": torch.__version__, "transformers": transformers.__version__}


def op_open(r):
    global model, ids, group, reference
    model = AutoModelForCausalLM.from_pretrained(r["dir"], dtype=torch.float32)
    model.eval()
    ids, group = torch.tensor(r["sequences"]), r["group"]
    reference = torch.log_softmax(model(ids, use_cache=False).logits, -1)
    return {}


def rounded(w, bits):
    """w as affine codes in groups decode, with scales and biases in bfloat16,
    by the formula of mx.quantize."""
    x = w.reshape(w.shape[0], -1, group)
    top = (1 << bits) - 1
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    scale = torch.clamp((high - low) / top, min=1e-7)
    side = low.abs() > high.abs()
    scale = torch.where(side, scale, -scale)
    edge = torch.where(side, low, high)
    at_zero = torch.round(edge / scale)
    scale = torch.where(at_zero == 0, scale, edge / torch.where(at_zero == 0, torch.ones_like(at_zero), at_zero))
    bias = torch.where(at_zero == 0, torch.zeros_like(edge), edge)
    codes = torch.clamp(torch.round((x - bias) / scale), 0, top)
    return (codes * scale.bfloat16().float() + bias.bfloat16().float()).reshape(w.shape)


def op_probe(r):
    found = []
    modules = dict(model.named_modules())
    start = time.process_time()
    for name in r["layers"]:
        weight = modules[name].weight
        original = weight.data
        for b in r["bits"]:
            weight.data = rounded(original, b)
            q = torch.log_softmax(model(ids, use_cache=False).logits, -1)
            kl = torch.nn.functional.kl_div(q, reference, reduction="none", log_target=True).sum(-1).mean()
            found.append([name, b, kl.item()])
        weight.data = original
    return {"cpu_seconds": time.process_time() - start, "found": found}


for line in sys.stdin:
    try:
        request = json.loads(line)
        answer = globals()["op_" + request["op"]](request)
    except Exception as e:  # the driver prints it
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), flush=True)
