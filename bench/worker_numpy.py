"""Measures numpy's float32 matrix product (OpenBLAS) for bench/compare: one
JSON request a line in, one JSON object a line out."""

import json
import sys
import time

import numpy as np


def op_about(_):
    from threadpoolctl import threadpool_info
    blas = [i for i in threadpool_info() if i.get("user_api") == "blas"]
    return {"numpy": np.__version__, "blas": [
        {k: i.get(k) for k in ("internal_api", "version", "architecture", "num_threads")} for i in blas]}


def op_gemm(r):
    """x [m, k] times the transpose of w [n, k], the median of reps."""
    m, n, k = r["m"], r["n"], r["k"]
    x = ((np.arange(m * k, dtype=np.int64) * 7919 % 1021 - 510) / 4096).astype(np.float32).reshape(m, k)
    w = ((np.arange(n * k, dtype=np.int64) * 7919 % 1021 - 510) / 4096).astype(np.float32).reshape(n, k)
    out = np.empty((m, n), np.float32)
    np.matmul(x, w.T, out=out)
    took = []
    for _ in range(r["reps"]):
        start = time.perf_counter()
        np.matmul(x, w.T, out=out)
        took.append(time.perf_counter() - start)
    return {"seconds": sorted(took)[len(took) // 2]}


for line in sys.stdin:
    try:
        request = json.loads(line)
        answer = globals()["op_" + request["op"]](request)
    except Exception as e:  # the driver prints it
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), flush=True)
