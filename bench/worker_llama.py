"""Measures llama.cpp for bench/compare: one JSON request a line in, one JSON
object a line out (see cmd/worker, whose requests these mirror).

Goes through the C API, so that neither sampling nor copies of logits are
timed: a decode step is llama_decode of one token, a prefill llama_decode of
the whole prompt as one batch. Both end when the logits are there to read.
"""

import ctypes
import json
import sys
import time

import llama_cpp as c
import numpy as np


class Model:
    def __init__(self, path, threads, context, batch):
        start = time.perf_counter()
        p = c.llama_model_default_params()
        p.n_gpu_layers = 0
        self.model = c.llama_model_load_from_file(path.encode(), p)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(self.model))
        q = c.llama_context_default_params()
        q.n_ctx, q.n_batch, q.n_ubatch = context, batch, batch
        q.n_threads = q.n_threads_batch = threads
        q.no_perf = True
        self.ctx = c.llama_init_from_model(self.model, q)
        if not self.ctx:
            raise RuntimeError(f"llama.cpp cannot make a context of {context} for {path}")
        self.batch = c.llama_batch_init(batch, 0, 1)
        self.pos = 0
        self.seconds = time.perf_counter() - start

    def feed(self, ids, every):
        """Decodes ids from the current position on, with logits of the last
        token or of every one."""
        b = self.batch
        b.n_tokens = len(ids)
        for i, t in enumerate(ids):
            b.token[i], b.pos[i] = t, self.pos + i
            b.n_seq_id[i], b.seq_id[i][0] = 1, 0
            b.logits[i] = every or i == len(ids) - 1
        if c.llama_decode(self.ctx, b) != 0:
            raise RuntimeError(f"llama_decode failed at position {self.pos}")
        c.llama_synchronize(self.ctx)
        self.pos += len(ids)

    def reset(self):
        c.llama_memory_clear(c.llama_get_memory(self.ctx), True)
        self.pos = 0

    def top(self):
        logits = c.llama_get_logits_ith(self.ctx, -1)
        return int(np.argmax(np.ctypeslib.as_array(logits, shape=(self.vocab,))))

    def close(self):
        c.llama_batch_free(self.batch)
        c.llama_free(self.ctx)
        c.llama_model_free(self.model)


model = None


def op_about(_):
    import importlib.metadata
    return {"version": importlib.metadata.version("llama-cpp-python"),
            "system": c.llama_print_system_info().decode()}


def op_open(r):
    global model
    op_close(r)
    model = Model(r["file"], r["threads"], r["context"], r["batch"])
    return {"seconds": model.seconds}


def op_close(_):
    global model
    if model:
        model.close()
        model = None
    return {}


def op_prefill(r):
    model.reset()
    start = time.perf_counter()
    model.feed(r["ids"], r.get("every", False))
    return {"seconds": time.perf_counter() - start, "token": model.top()}


def op_decode(r):
    seconds, tokens = 0.0, []
    for t in r["ids"]:
        start = time.perf_counter()
        model.feed([t], False)
        seconds += time.perf_counter() - start
        tokens.append(model.top())
    return {"seconds": seconds, "tokens": tokens}


def op_quantize(r):
    """Writes file as type ("Q8_0", "Q4_K_M", …). With pure, every matrix gets
    that type, the embedding too; without, llama.cpp's own mix."""
    p = c.llama_model_quantize_default_params()
    p.nthread = r["threads"]
    p.ftype = getattr(c, "LLAMA_FTYPE_MOSTLY_" + r["type"])
    if r.get("pure"):
        p.pure = True
        ggml = {"Q8_0": 8, "Q4_0": 2, "Q4_1": 3}[r["type"]]
        p.token_embedding_type = p.output_tensor_type = ggml
    if c.llama_model_quantize(r["file"].encode(), r["out"].encode(), ctypes.byref(p)) != 0:
        raise RuntimeError(f"llama.cpp cannot quantize {r['file']} to {r['type']}")
    return {}


@c.llama_log_callback
def quiet(level, text, _):
    if level >= 4:  # errors
        sys.stderr.write(text.decode(errors="replace"))


c.llama_log_set(quiet, ctypes.c_void_p(0))
c.llama_backend_init()
for line in sys.stdin:
    try:
        request = json.loads(line)
        answer = globals()["op_" + request["op"]](request)
    except Exception as e:  # the driver prints it
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), flush=True)
