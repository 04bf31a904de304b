"""The cases of make_packages.py: graphs for coremltools beside their NumPy results."""
import numpy as np

F16, F32, F64, I32 = np.float16, np.float32, np.float64, np.int32


def rng(seed):
    return np.random.default_rng(seed)


def normal(seed, *shape, dtype=F32, scale=1.0):
    return (rng(seed).standard_normal(shape) * scale).astype(dtype)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def conv(x, w, stride, pad, dil, groups):
    """Direct 2-D convolution."""
    x = np.pad(x.astype(F64), [(0, 0), (0, 0), pad[0:2], pad[2:4]])
    o, cg, kh, kw = w.shape
    oh = (x.shape[2] - (kh - 1) * dil[0] - 1) // stride[0] + 1
    ow = (x.shape[3] - (kw - 1) * dil[1] - 1) // stride[1] + 1
    y = np.zeros((x.shape[0], o, oh, ow))
    for c in range(o):
        lo = c // (o // groups) * cg
        for i in range(kh):
            for j in range(kw):
                part = x[:, lo:lo + cg, i * dil[0]:, j * dil[1]:][:, :, ::stride[0], ::stride[1]][:, :, :oh, :ow]
                y[:, c] += np.einsum("nchw,c->nhw", part, w[c, :, i, j].astype(F64))
    return y


def cases(mb, types, ct):
    """All cases: name, target, in, out, body, tol; see make_packages.py."""
    t15, t16, t17, t18 = ct.target.iOS15, ct.target.iOS16, ct.target.iOS17, ct.target.iOS18
    out = []

    def add(name, ins, body, want, target=t18, tol=1e-5, **more):
        def named(v):
            r = body(v)
            r = list(r) if isinstance(r, (list, tuple)) else [r]
            return list(zip(want, r))
        out.append(dict(name=name, target=target, body=named, tol=tol,
                        **{"in": ins, "out": {k: np.asarray(a) for k, a in want.items()}}, **more))

    def sub(a, t):
        """Values marked with a sub-byte type."""
        return a.astype(types.nptype_from_builtin(t))

    dense(add, mb, t15, t17, t18)
    indexing(add, mb, t17)
    compressed(add, mb, types, sub, t16)
    control(add, mb, t17)
    out += stateful(mb, t18)
    return out


def dense(add, mb, t15, t17, t18):
    x, w, b = normal(1, 3, 16), normal(2, 8, 16), normal(3, 8)
    y = x.astype(F64) @ w.T.astype(F64) + b
    add("linear", {"x": x}, lambda v: mb.linear(x=v["x"], weight=w, bias=b), {"y": y.astype(F32)})
    add("mlp_ios15", {"x": x}, lambda v: mb.softmax(x=mb.relu(x=mb.linear(x=v["x"], weight=w, bias=b)), axis=-1),
        {"y": softmax(np.maximum(y, 0)).astype(F32)}, target=t15)
    add("mlp_converted_fp16", {"x": x.astype(F16)}, lambda v: mb.silu(x=mb.linear(x=v["x"], weight=w, bias=b)),
        {"y": (y / (1 + np.exp(-y))).astype(F16)}, tol=4e-3, passes="fp16")
    xh, wh = x.astype(F16), w.astype(F16)
    add("linear_fp16", {"x": xh}, lambda v: mb.gelu(x=mb.linear(x=v["x"], weight=wh), mode="TANH_APPROXIMATION"),
        {"y": gelu_tanh(xh.astype(F64) @ wh.T.astype(F64)).astype(F16)}, tol=4e-3)
    a, c = normal(4, 2, 3, 8), normal(5, 2, 5, 8)
    k = normal(6, 8, 4)
    add("matmul", {"x": a, "y": c}, lambda v: (mb.matmul(x=v["x"], y=v["y"], transpose_y=True), mb.matmul(x=v["x"], y=k)),
        {"xy": (a.astype(F64) @ c.swapaxes(1, 2)).astype(F32), "xk": (a.astype(F64) @ k).astype(F32)})
    img, kern, kb = normal(7, 1, 4, 6, 7), normal(8, 6, 2, 3, 2), normal(9, 6)
    add("conv", {"x": img}, lambda v: mb.conv(x=v["x"], weight=kern, bias=kb, strides=[2, 1], pad_type="custom",
                                              pad=[1, 0, 2, 1], dilations=[1, 2], groups=2),
        {"y": (conv(img, kern, (2, 1), (1, 0, 2, 1), (1, 2), 2) + kb[:, None, None]).astype(F32)})
    seq, one = normal(10, 1, 16, 1, 5, dtype=F16), normal(11, 12, 16, 1, 1, dtype=F16)
    add("conv1x1_fp16", {"x": seq}, lambda v: mb.conv(x=v["x"], weight=one),
        {"y": np.einsum("nchw,oc->nohw", seq.astype(F64), one[:, :, 0, 0].astype(F64)).astype(F16)}, tol=4e-3)
    g, be = normal(12, 16), normal(13, 16)
    x64 = x.astype(F64)
    centred = x64 - x64.mean(-1, keepdims=True)
    add("layer_norm", {"x": x}, lambda v: mb.layer_norm(x=v["x"], axes=[-1], gamma=g, beta=be, epsilon=F32(1e-4)),
        {"y": (centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-4) * g + be).astype(F32)})
    add("rms_norm", {"x": x}, lambda v: mb.mul(x=mb.mul(x=v["x"], y=mb.rsqrt(x=mb.reduce_mean(
        x=mb.square(x=v["x"]), axes=[-1], keep_dims=True), epsilon=F32(1e-5))), y=g),
        {"y": (x64 / np.sqrt((x64 ** 2).mean(-1, keepdims=True) + 1e-5) * g).astype(F32)})
    s = normal(14, 2, 3, 4)
    add("softmax_select", {"x": s, "y": -s}, lambda v: mb.softmax(
        x=mb.select(cond=mb.greater(x=v["x"], y=F32(0)), a=v["x"], b=v["y"]), axis=1),
        {"z": softmax(np.abs(s.astype(F64)), 1).astype(F32)})
    add("reduce", {"x": s}, lambda v: (mb.reduce_sum(x=v["x"], axes=[-1, 0], keep_dims=True),
                                       mb.reduce_log_sum_exp(x=v["x"], axes=[1]), mb.reduce_l2_norm(x=v["x"])),
        {"total": s.astype(F64).sum((0, 2), keepdims=True).astype(F32),
         "lse": np.log(np.exp(s.astype(F64)).sum(1)).astype(F32),
         "norm": np.sqrt((s.astype(F64) ** 2).sum()).astype(F32)})
    i, j = rng(15).integers(-9, 9, (3, 4)).astype(I32), rng(16).integers(1, 5, (3, 4)).astype(I32)
    add("int_arithmetic", {"x": i, "y": j}, lambda v: (
        mb.floor_div(x=v["x"], y=v["y"]), mb.mod(x=v["x"], y=v["y"]), mb.cast(x=mb.cast(x=v["x"], dtype="fp32"), dtype="int32")),
        {"q": i // j, "r": i % j, "same": i.copy()})
    q, kk, vv = normal(17, 1, 2, 3, 8), normal(18, 1, 2, 5, 8), normal(19, 1, 2, 5, 8)
    m = normal(20, 1, 1, 3, 5)
    p = softmax(q.astype(F64) @ kk.swapaxes(-1, -2) / np.sqrt(8) + m)
    add("attention", {"q": q, "k": kk, "v": vv, "m": m}, lambda v: mb.scaled_dot_product_attention(
        query=v["q"], key=v["k"], value=v["v"], attn_mask=v["m"]), {"y": (p @ vv).astype(F32)})
    qs, qz = F32([.1, .2, .05]), np.array([3, -2, 0], np.int8)
    codes = np.clip(np.rint(s / qs[:, None]) + qz[:, None], -128, 127)
    add("quantize", {"x": s}, lambda v: mb.dequantize(input=mb.quantize(
        input=v["x"], scale=qs, zero_point=qz, axis=1, output_dtype="int8"), scale=qs, zero_point=qz, axis=1),
        {"y": ((codes - qz[:, None]) * qs[:, None]).astype(F32)}, target=t17)


def gelu_tanh(x):
    return .5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + .044715 * x ** 3)))


def indexing(add, mb, t17):
    table = normal(30, 20, 6, dtype=F16)
    ids = np.array([3, 19, 0, 3], I32)
    add("gather", {"ids": ids}, lambda v: mb.gather(x=table, indices=v["ids"], axis=0), {"y": table[ids]}, tol=0)
    x, shift = normal(31, 2, 9), normal(34, 2, 9)
    shifted = x + shift
    order = np.argsort(-shifted, axis=-1, kind="stable")[:, :3].astype(I32)

    def top(v):
        y = mb.add(x=v["x"], y=shift)
        values, places = mb.topk(x=y, k=3, axis=-1)
        return values, places, mb.reduce_argmax(x=y, axis=-1)
    add("topk", {"x": x}, top, {"values": np.take_along_axis(shifted, order, 1), "indices": order,
                                "best": shifted.argmax(-1).astype(I32)}, tol=0, target=t17)
    data, upd = normal(32, 3, 5, 2), normal(33, 2, 2)
    nd = np.array([[0, 4], [2, 1]], I32)
    got = data.copy()
    got[nd[:, 0], nd[:, 1]] += upd
    wide = np.arange(24, dtype=I32).reshape(2, 12) % 3
    add("scatter", {"x": data, "u": upd}, lambda v: (
        mb.scatter_nd(data=v["x"], indices=nd, updates=v["u"], mode="add"),
        mb.gather_along_axis(x=v["x"], indices=mb.reshape(x=wide[:, :10], shape=[2, 5, 2]), axis=0)),
        {"y": got, "z": np.take_along_axis(data, wide[:, :10].reshape(2, 5, 2), 0)})
    got = data.copy()
    got[0:2, 1:5:2, :] = upd[:, :, None].swapaxes(1, 2)[:, :1] * np.ones((1, 2, 1), F32)
    add("slices", {"x": data, "u": upd}, lambda v: (
        mb.slice_update(x=v["x"], update=mb.tile(x=mb.expand_dims(x=v["u"], axes=[1]), reps=[1, 2, 1]),
                        begin=[0, 1, 0], end=[2, 5, 2], stride=[1, 2, 1]),
        mb.slice_by_index(x=v["x"], begin=[1, 0, 0], end=[2, 5, 2], stride=[1, 2, 1],
                          squeeze_mask=[True, False, False], begin_mask=[False, True, False]),
        mb.slice_by_size(x=v["x"], begin=[0, 1, 1], size=[-1, 2, 1])),
        {"y": got, "picked": data[1, ::2], "sized": data[:, 1:3, 1:2]}, tol=0)

    front = normal(35, 3, 2, 2)

    def move(v):
        a, b = mb.split(x=v["x"], split_sizes=[2, 3], axis=1)
        t = mb.transpose(x=mb.concat(values=(b, front), axis=1), perm=[2, 0, 1])
        return mb.pad(x=mb.reshape(x=t, shape=[2, 15]), pad=[0, 0, 1, 2], mode="constant", constant_val=F32(-1)), a
    rolled = np.concatenate([data[:, 2:], front], 1).transpose(2, 0, 1).reshape(2, 15)
    add("movement", {"x": data}, move, {"y": np.pad(rolled, [(0, 0), (1, 2)], constant_values=-1), "head": data[:, :2]}, tol=0)


def compressed(add, mb, types, sub, t16):
    x = normal(40, 2, 64, dtype=F16)
    wide = x.astype(F64)
    r = rng(41)
    q4 = r.integers(-8, 8, (32, 64)).astype(np.int8)
    scale = (np.abs(normal(42, 32, 2)) + .1).astype(F16)
    offset = r.integers(-8, 8, (32, 2)).astype(np.int8)
    q8 = r.integers(-128, 128, (32, 64)).astype(np.int8)
    u8 = r.integers(0, 256, (32, 64)).astype(np.uint8)
    s64 = scale.astype(F64)

    def case(name, make, weight, **more):
        add(name, {"x": x}, lambda v: mb.linear(x=v["x"], weight=make()),
            {"y": (wide @ weight.astype(F16).astype(F64).T).astype(F16)}, tol=5e-3, **more)

    def blocks(data, off):
        return ((data.astype(F64).reshape(32, 2, 32) - off) * s64[:, :, None]).reshape(32, 64)
    case("int4_block", lambda: mb.constexpr_blockwise_shift_scale(data=sub(q4, types.int4), scale=scale), blocks(q4, 0))
    case("int4_block_offset", lambda: mb.constexpr_blockwise_shift_scale(
        data=sub(q4, types.int4), scale=scale, offset=sub(offset, types.int4)), blocks(q4, offset[:, :, None]))
    case("int8_channel", lambda: mb.constexpr_blockwise_shift_scale(data=q8, scale=scale[:, :1]), q8 * s64[:, :1])
    for bits, t in ((1, types.uint1), (2, types.uint2), (3, types.uint3), (4, types.uint4), (6, types.uint6), (8, types.uint8)):
        codes = r.integers(0, 2 ** bits, (32, 64)).astype(np.uint8)
        lut = normal(50 + bits, 4, 1, 2 ** bits, 1, dtype=F16)
        rows = np.repeat(np.arange(4), 8)[:, None]
        case(f"lut{bits}_grouped", lambda codes=codes, lut=lut, t=t: mb.constexpr_lut_to_dense(
            indices=sub(codes, t), lut=lut), lut[rows, 0, codes, 0])
    codes = r.integers(0, 8, (8, 64)).astype(np.uint8)
    vlut = normal(60, 1, 1, 8, 4, dtype=F16)
    case("lut_vector", lambda: mb.constexpr_lut_to_dense(indices=sub(codes, types.uint3), lut=vlut, vector_axis=0),
         vlut[0, 0, codes].transpose(0, 2, 1).reshape(32, 64))
    c4 = r.integers(0, 16, (32, 64)).astype(np.uint8)
    ilut, step = r.integers(-128, 128, (1, 1, 16, 1)).astype(np.int8), np.full((1, 1, 1, 1), .01, F16)
    case("lut_int8_entries", lambda: mb.constexpr_lut_to_dense(
        indices=sub(c4, types.uint4), lut=mb.constexpr_blockwise_shift_scale(data=ilut, scale=step)),
        (ilut.astype(F64) * F64(F16(.01)))[0, 0, :, 0][c4])
    mask = (r.random((32, 64)) < .4).astype(np.uint8)
    n = int(mask.sum())
    full = np.zeros((32, 64), F16)
    full[mask == 1] = nz = normal(61, n, dtype=F16)
    case("sparse", lambda: mb.constexpr_sparse_to_dense(nonzero_data=nz, mask=sub(mask, types.uint1)), full)
    nzi = r.integers(0, 16, n).astype(np.uint8)
    slut = normal(62, 1, 1, 16, 1, dtype=F16)
    full = np.zeros((32, 64), F16)
    full[mask == 1] = slut[0, 0, nzi, 0]

    def sparse_lut():
        m, d = mb.constexpr_lut_to_sparse(indices_mask=sub(mask, types.uint1),
                                          indices_nonzero_data=sub(nzi, types.uint4), lut=slut)
        return mb.constexpr_sparse_to_dense(nonzero_data=d, mask=m)
    case("sparse_lut", sparse_lut, full)
    nzq = r.integers(-8, 8, n).astype(np.int8)
    full = np.zeros((32, 64))
    full[mask == 1] = nzq

    def sparse_int4():
        m, d = mb.constexpr_sparse_blockwise_shift_scale(
            data_mask=sub(mask, types.uint1), nonzero_data=sub(nzq, types.int4), scale=scale)
        return mb.constexpr_sparse_to_dense(nonzero_data=d, mask=m)
    case("sparse_int4", sparse_int4, blocks(full, 0))

    def affine():
        return mb.constexpr_affine_dequantize(quantized_data=u8, zero_point=np.uint8(128), scale=scale[:, 0], axis=0)
    dense8 = (u8.astype(F64) - 128) * s64[:, :1]
    case("affine_ios16", affine, dense8, target=t16)
    case("affine_ios18", affine, dense8)
    flat = np.packbits(np.unpackbits(c4.reshape(-1, 1), axis=1, bitorder="little")[:, :4].reshape(-1), bitorder="little")
    lut1 = normal(63, 16, dtype=F16)
    case("lut_ios16", lambda: mb.constexpr_lut_to_dense(indices=flat, lut=lut1, shape=np.uint32([32, 64])),
         lut1[c4], target=t16)
    bits = np.packbits(mask.reshape(-1), bitorder="little")
    full = np.zeros((32, 64), F16)
    full[mask == 1] = nz
    case("sparse_ios16", lambda: mb.constexpr_sparse_to_dense(nonzero_data=nz, mask=bits, shape=np.uint32([32, 64])),
         full, target=t16)
    half = normal(64, 8, 64, dtype=F16)
    xs = x.astype(F32)
    add("cast_ios16", {"x": xs}, lambda v: mb.linear(x=v["x"], weight=mb.constexpr_cast(source_val=half, output_dtype="fp32")),
        {"y": (xs.astype(F64) @ half.T.astype(F64)).astype(F32)}, target=t16, tol=1e-4)


def control(add, mb, t17):
    x, y, step = normal(70, 3, 4), normal(71, 3, 4), normal(72, 3, 4)

    def choose(v):
        positive = mb.squeeze(x=mb.greater(x=mb.reduce_sum(x=v["x"], axes=[0, 1], keep_dims=True), y=F32(0)), axes=[0, 1])
        return mb.cond(pred=positive, _true_fn=lambda: mb.add(x=v["x"], y=step), _false_fn=lambda: mb.sub(x=v["x"], y=v["y"]))
    add("cond", {"x": x, "y": y}, choose, {"z": x + step if x.sum() > 0 else x - y})

    def loop(v):
        start = mb.squeeze(x=v["n"], axes=[0])
        return mb.while_loop(
            _cond=lambda i, a: mb.less(x=i, y=5),
            _body=lambda i, a: (mb.add(x=i, y=1), mb.add(x=mb.mul(x=a, y=F32(2)), y=step)), loop_vars=(start, v["x"]))[1]
    add("while_loop", {"n": np.array([1], I32), "x": x}, loop, {"z": x * 16 + step * 15}, target=t17)


def stateful(mb, target):
    """A key cache as a state, and two functions that share one weight."""
    w = normal(80, 8, 8, dtype=F16)
    ctx = 4

    def cache(rows):
        def body(v):
            k = mb.linear(x=v["x"], weight=w)
            old = mb.read_state(input=v["kv"])
            begin = mb.concat(values=(v["pos"], np.array([0], I32)), axis=0)
            end = mb.concat(values=(mb.add(x=v["pos"], y=np.array([rows], I32)), np.array([8], I32)), axis=0)
            new = mb.coreml_update_state(state=v["kv"], value=mb.slice_update(x=old, update=k, begin=begin, end=end))
            return [("scores", mb.matmul(x=k, y=new, transpose_y=True))]
        return body
    xs = normal(81, 3, 1, 8, dtype=F16)

    def run(parts, kv, functions):
        steps, pos = [], 0
        for x, f in zip(parts, functions):
            k = (x.astype(F64) @ w.T.astype(F64)).astype(F16)
            kv[pos:pos + len(x)] = k
            steps.append({"in": {"x": x, "pos": np.array([pos], I32)}, "function": f,
                          "out": {"scores": (k.astype(F64) @ kv.T.astype(F64)).astype(F16)}})
            pos += len(x)
        return steps
    single = dict(name="state", target=target, tol=2e-2, states={"kv": (ctx, 8)}, body=cache(1),
                  steps=run(list(xs), np.zeros((ctx, 8), F16), ["main"] * 3))
    ps = [normal(82, 2, 8, dtype=F16), normal(83, 1, 8, dtype=F16)]
    steps = run(ps, np.zeros((ctx, 8), F16), ["prefill", "decode"])
    multi = dict(name="multifunction", target=target, tol=2e-2, states={"kv": (ctx, 8)}, default="decode", steps=steps,
                 functions={"prefill": {"in": steps[0]["in"], "body": cache(2)},
                            "decode": {"in": steps[1]["in"], "body": cache(1)}})
    return [single, multi]
