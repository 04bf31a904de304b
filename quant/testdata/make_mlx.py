"""Writes mlx.safetensors, what mx.quantize on the CPU makes of a few rows.

    python make_mlx.py        needs mlx and numpy

<dtype>.w [28, 128]; <dtype>.<format>.{weight,scales[,biases],dequantized}; formats
are b<bits>.g<group>, mxfp4, mxfp8 and nvfp4.
"""
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
rng = np.random.default_rng(7)
out = {}


def rows(dtype):
    r = rng.standard_normal((9, 128)) * 0.05
    r[1] = rng.standard_t(3, 128) * 0.02
    r[2] = np.abs(r[2]) + 0.01
    r[3] = -np.abs(r[3]) - 0.01
    edge = np.zeros((19, 128))
    edge[1] = -0.0
    edge[2:7] = np.array([0.37, -0.37, 1, 1e-6, 1e-8])[:, None]
    edge[7, 5] = 3
    edge[8] = r[0]
    edge[8, 100] = 40
    edge[9, ::2], edge[9, 1::2] = 1, -1
    edge[10] = r[0] * 1e-6
    edge[11] = np.linspace(-1, 1, 128)
    edge[12] = r[0] * 3e5
    edge[13] = (np.arange(128) % 16 - 7.5) / 4
    edge[14] = (np.arange(128) % 33 - 16) / 8
    edge[15] = r[0] * 1e-30 if dtype != "f16" else r[0] * 1e-4
    edge[16] = np.tile([.25, .75, 1.25, 1.75, 2.5, 3.5, 5, 6, -.25, -.75, -1.25, -1.75, -2.5, -3.5, -5, -6], 8)
    edge[17] = edge[16] * 1.0078125
    edge[18] = rng.standard_normal(128) * 300
    return np.concatenate([r, edge]).astype(np.float32)


for name, dt in (("bf16", mx.bfloat16), ("f16", mx.float16), ("f32", mx.float32)):
    w = mx.array(rows(name)).astype(dt)
    out[f"{name}.w"] = w
    pairs = [(b, g) for b in (2, 3, 4, 5, 6, 8) for g in (32, 64, 128)] if name == "bf16" else [(2, 128), (3, 32), (4, 64), (8, 64)]
    for b, g in pairs:
        q = mx.quantize(w, group_size=g, bits=b)
        for k, v in zip(("weight", "scales", "biases"), q):
            out[f"{name}.b{b}.g{g}.{k}"] = v
        if g == 64 and b in (3, 4, 8):
            out[f"{name}.b{b}.g{g}.dequantized"] = mx.dequantize(*q, group_size=g, bits=b)
    for mode in ("mxfp4", "mxfp8", "nvfp4"):
        q = mx.quantize(w, mode=mode)
        out[f"{name}.{mode}.weight"], out[f"{name}.{mode}.scales"] = q
        out[f"{name}.{mode}.dequantized"] = mx.dequantize(*q, mode=mode, dtype=dt)
mx.save_safetensors("mlx.safetensors", out, metadata={"producer": f"mlx {mx.__version__}, CPU"})
