"""The rows of bench/compare. Each function measures one group and adds its
rows to the table; whatever is missing becomes a row that says so."""

import os
import shutil
import subprocess
import tempfile
import time

from harness import Missing, interleave, run_timed, run_watched
from peers import MODELS, cache_bytes, weight_bytes
from sensitivity import sensitivity

# A story without end: every model's tokenizer makes hundreds of tokens of it.
TEXT = " ".join(
    f"On day {d} the keeper of the lighthouse counted {d * 7 % 31} ships, wrote the number into a book with a "
    f"brown cover, and asked {who} whether the {thing} had been mended." for d, (who, thing) in enumerate(
        [(w, t) for t in ("lamp", "stair", "bell", "boat", "door") for w in ("Ada", "Bruno", "Clara", "the doctor")], 1))

# smelt's weights, and what llama.cpp has of as many bits: type, pure.
FORMATS = {
    "f16": [("F16", False)],
    "int8": [("Q8_0", True)],
    "int4": [("Q4_K_M", False), ("Q4_0", True)],
    "lut4": [("Q4_K_M", False), ("Q4_1", True)],
}
SAYS = {"f16": "f16", "int8": "int8 a channel", "int4": "int4 a block of 32", "lut4": "4-bit palettes, 32 channels"}


def formats(cache, name):
    for how in cache.formats:
        for type, pure in FORMATS[how]:
            yield how, type, pure


def prompt(cache, smelt, name, n):
    ids = smelt.ask("encode", dir=cache.model(name), text=TEXT)["ids"]
    if len(ids) < n:
        raise Missing(f"the text has {len(ids)} tokens only")
    return ids[:n]


def pair(cache, table, smelt, name, how, type, pure, what, measure):
    """Opens both sides of a row and lets them take turns. measure makes a
    function of a worker, which returns a figure."""
    label = f"{what}, {MODELS[name]}, {SAYS[how]}"
    peer = f"llama.cpp {type}" + (" pure" if pure else "")
    try:
        bundle = cache.bundle(name) if how == "f16" else cache.compressed(name, how)
        smelt.ask("open", bundle=bundle, threads=cache.threads)
    except Missing as e:
        table.missing(label, peer, str(e))
        return
    llama = None
    try:
        file = cache.gguf(name, type, pure)
        llama = cache.worker("llama")
        llama.ask("open", file=file, threads=cache.threads, context=cache.context, batch=512)
        mb = os.path.getsize(file) / 1e6
        table.note(f"weights of {MODELS[name]}: {peer} {mb:.0f} MB, {SAYS[how]} {weight_bytes(bundle) / 1e6:.0f} MB")
    except Missing as e:
        table.note(f"{label}: {e}")
        llama = None
    try:
        measure(label, peer, llama, smelt)
    except Missing as e:
        table.missing(label, peer, str(e))
    if llama:
        llama.close()
    smelt.ask("close")


def decode(cache, table):
    """Tokens a second, one at a time, after a prompt of 64."""
    table.section("Decode")
    smelt = cache.worker("smelt")
    for name in cache.models:
        try:
            ids = prompt(cache, smelt, name, 64 + cache.tokens)
        except Missing as e:
            table.missing(f"decode, {MODELS[name]}", "llama.cpp", str(e))
            continue
        start, rest = ids[:64], ids[64:]

        def measure(label, peer, llama, smelt):
            said = {}

            def turn(w):
                def f():
                    w.ask("prefill", ids=start)
                    a = w.ask("decode", ids=rest)
                    said[w], said["mallocs"] = a["tokens"], a.get("mallocs", said.get("mallocs"))
                    return len(rest) / a[cache.clock]
                return f
            for w in filter(None, (llama, smelt)):  # weights into memory, buffers made
                w.ask("prefill", ids=start)
                w.ask("decode", ids=rest[:4])
            a, b = interleave(cache.rounds, turn(llama) if llama else None, turn(smelt))
            table.add(label, peer, a, b, "tok/s", aim=1.0)
            if llama and type == "F16":
                same = sum(x == y for x, y in zip(said[llama], said[smelt]))
                if same < 0.8 * len(rest):
                    table.note(f"{label}: only {same} of {len(rest)} tokens are the same on both sides")
            table.note(f"allocations a decode step, {MODELS[name]}, {label.split(', ', 2)[2]}: {said['mallocs']:.0f}")
        for how, type, pure in formats(cache, name):
            pair(cache, table, smelt, name, how, type, pure, "decode", measure)
    smelt.close()


def prefill(cache, table):
    """Tokens a second of a prompt of 512, with logits of the last token or of
    every one."""
    table.section("Prefill of 512 tokens")
    table.note(f"smelt's prefill function takes {cache.prefill} tokens at once, llama.cpp's batch is 512")
    smelt = cache.worker("smelt")
    for name in cache.models:
        try:
            ids = prompt(cache, smelt, name, 512)
        except Missing as e:
            table.missing(f"prefill, {MODELS[name]}", "llama.cpp", str(e))
            continue

        def measure(label, peer, llama, smelt):
            for every in (False, True):
                def turn(w):
                    return lambda: 512 / w.ask("prefill", ids=ids, every=every)[cache.clock]
                for w in filter(None, (llama, smelt)):
                    turn(w)()
                a, b = interleave(cache.rounds, turn(llama) if llama else None, turn(smelt))
                table.add(label + (", all logits" if every else ""), peer, a, b, "tok/s", aim=None if every else 0.9)
                if not llama:
                    break
        for how, type, pure in formats(cache, name):
            if how != "lut4":
                pair(cache, table, smelt, name, how, type, pure, "prefill", measure)
    smelt.close()


def mlx(cache, table):
    """mlx-lm on the processor, which is not what MLX is made for."""
    table.section("Decode and prefill against mlx-lm on the processor")
    smelt = cache.worker("smelt")
    for name in cache.models:
        label = f"{MODELS[name]}, f16"
        try:
            ids = prompt(cache, smelt, name, 64 + 8)
            smelt.ask("open", bundle=cache.bundle(name), threads=cache.threads)
            w = cache.worker("mlx")
            w.ask("open", dir=cache.model(name), type="float16")
        except Missing as e:
            table.missing(label, "mlx-lm", str(e))
            continue

        def turn(w):
            def f():
                p, d = w.ask("prefill", ids=ids[:64]), w.ask("decode", ids=ids[64:])
                return 64 / p["seconds"], 8 / d["seconds"]
            return f
        turn(smelt)()
        a, b = interleave(min(cache.rounds, 3), turn(w), turn(smelt))
        table.add("prefill 64, " + label, "mlx-lm", [x[0] for x in a], [x[0] for x in b], "tok/s")
        table.add("decode 8, " + label, "mlx-lm", [x[1] for x in a], [x[1] for x in b], "tok/s")
        w.close()
    smelt.close()


def gemv(cache, table):
    """A matrix of fp16 that no cache holds, against reading memory."""
    table.section("Products")
    m, k = 8192, 4096
    n = m * k * 2
    smelt = cache.worker("smelt")
    args = {"threads": cache.threads, "reps": 9}
    a, b = interleave(cache.rounds, lambda: n / 1e9 / smelt.ask("bandwidth", bytes=n, **args)["seconds"],
                      lambda: n / 1e9 / smelt.ask("gemv", m=m, k=k, **args)["seconds"])
    table.add("f16 GEMV 8192×4096 (64 MiB)", "reading 64 MiB", a, b, "GB/s", aim=0.85)
    smelt.close()


def gemm(cache, table):
    """float32 products of a square and of a decoder's shapes."""
    table.section("Products")
    smelt = cache.worker("smelt")
    try:
        numpy = cache.worker("numpy")
        blas = numpy.ask("about")
        table.note("numpy " + blas["numpy"] + ": " + ", ".join(
            f"{b['internal_api']} {b['version']}, {b['architecture']} kernels, {b['num_threads']} threads" for b in blas["blas"]))
    except Missing as e:
        numpy = None
        table.note(f"numpy: {e}")
    for m, n, k in (512, 512, 512), (512, 2048, 640), (512, 640, 2048), (64, 8192, 2048), (128, 4096, 4096):
        def turn(w):
            def f():
                time.sleep(0.1)  # OpenBLAS's threads keep a core busy for a while after a product
                return 2 * m * n * k / 1e9 / w.ask("gemm", m=m, n=n, k=k, reps=9, threads=cache.threads)["seconds"]
            return f
        try:
            a, b = interleave(cache.rounds, turn(numpy) if numpy else None, turn(smelt))
            table.add(f"f32 GEMM {m}×{n}×{k}", "numpy", a, b, "GFLOP/s", aim=0.85)
        except Missing as e:
            table.missing(f"f32 GEMM {m}×{n}×{k}", "numpy", str(e))
    for w in filter(None, (smelt, numpy)):
        w.close()


def checkpoint_files(dir):
    return sorted(os.path.join(dir, n) for n in os.listdir(dir) if n.endswith(".safetensors"))


def scratch(cache, need):
    """A directory without a disk behind it, so that neither side waits for
    one; beside the cache where memory is short."""
    try:
        free = shutil.disk_usage("/dev/shm").free
        with open("/proc/meminfo") as f:
            available = next(int(l.split()[1]) * 1024 for l in f if l.startswith("MemAvailable"))
    except OSError:
        free = available = 0
    return tempfile.mkdtemp(prefix="smelt-bench-", dir="/dev/shm" if min(free, available) > need * 1.5 else cache.path)


def convert(cache, table):
    """smelt convert against cp of the checkpoint, page cache warm."""
    table.section("Convert to fp16")
    for label, get, extra in (
            ("Gemma 3 270M", lambda: cache.model("gemma3-270m"), []),
            ("Gemma 3 270M without range probe", lambda: cache.model("gemma3-270m"), ["--residual-scale", "0.125"]),
            (f"llama of {cache.synthetic_bytes / 1e9:g} GB", lambda: cache.synthetic(cache.synthetic_bytes), []),
            (f"llama of {cache.synthetic_bytes / 1e9:g} GB without range probe",
             lambda: cache.synthetic(cache.synthetic_bytes), ["--residual-scale", "1"])):
        if cache.synthetic_bytes == 0 and label.startswith("llama"):
            continue
        try:
            src = get()
            files = checkpoint_files(src)
            size = sum(map(os.path.getsize, files))
            dir = scratch(cache, size * 2.7)
        except Missing as e:
            table.missing(label, "cp", str(e))
            continue
        if not dir.startswith("/dev/shm"):
            table.note(f"convert, {label}: on disk, where smelt waits for its final fsync and cp does not")
        out, copy = os.path.join(dir, "out"), os.path.join(dir, "copy")
        peak = {}

        def peer():
            os.mkdir(copy)
            took = run_timed(["cp", *files, copy])
            shutil.rmtree(copy)
            return took

        def smelt():
            r = run_watched([cache.smelt(), "convert", src, "-o", out, *extra],
                            env=dict(os.environ) | {"GOMAXPROCS": str(cache.threads)})
            peak["written"] = sum(os.path.getsize(os.path.join(d, n)) for d, _, ns in os.walk(out) for n in ns)
            shutil.rmtree(out)
            for k in "resident", "anonymous":
                peak[k] = max(peak.get(k, 0), r[k])
            return r["seconds"]
        try:
            for f in files:  # into the page cache
                subprocess.run(["cat", f], stdout=subprocess.DEVNULL, check=True)
            a, b = interleave(max(1, cache.rounds if size < 1e9 else cache.rounds // 2), peer, smelt)
            table.add("convert, " + label, "cp", a, b, "s", lower=True, aim=0.5)
            if not extra:
                largest = largest_tensor(files)
                table.add(f"anonymous memory of convert, {label}", "256 MB + largest tensor",
                          [256 + largest / 1e6], [peak["anonymous"] / 1e6], "MB", lower=True, aim=1.0)
                table.note(f"convert, {label}: reads {size / 1e6:.0f} MB, writes {peak['written'] / 1e6:.0f} MB; "
                           f"peak resident {peak['resident'] / 1e6:.0f} MB")
        except Missing as e:
            table.missing("convert, " + label, "cp", str(e))
        finally:
            shutil.rmtree(dir, ignore_errors=True)


def largest_tensor(files):
    import json
    most = 0
    for path in files:
        with open(path, "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        header.pop("__metadata__", None)
        most = max([most] + [t["data_offsets"][1] - t["data_offsets"][0] for t in header.values()])
    return most


def memory(cache, table):
    """Resident memory after 512 tokens of prefill and 16 of decode."""
    table.section("Memory while running")
    for name in cache.models:
        label = f"{MODELS[name]}, f16"
        try:
            smelt = cache.worker("smelt")
            ids = prompt(cache, smelt, name, 528)
            bundle = cache.bundle(name)
            smelt.close()
            smelt = cache.worker("smelt")  # without the tokenizer's memory
            smelt.ask("open", bundle=bundle, threads=cache.threads)
        except Missing as e:
            table.missing(label, "llama.cpp F16", str(e))
            continue
        theirs = []
        try:
            llama = cache.worker("llama")
            llama.ask("open", file=cache.gguf(name), threads=cache.threads, context=cache.context, batch=512)
        except Missing as e:
            llama = None
            table.note(f"memory, {label}: {e}")
        for w in filter(None, (smelt, llama)):
            w.ask("prefill", ids=ids[:512])
            w.ask("decode", ids=ids[512:])
        ours = smelt.memory()
        if llama:
            theirs = llama.memory()
        limit = 1.15 * weight_bytes(bundle) + cache_bytes(bundle)
        table.add("peak resident, " + label, "llama.cpp F16", [theirs["VmHWM"] / 1e6] if theirs else [],
                  [ours["VmHWM"] / 1e6], "MB", lower=True)
        table.add("peak resident, " + label, "1.15 × weight file + cache", [limit / 1e6], [ours["VmHWM"] / 1e6], "MB",
                  lower=True, aim=1.0)
        table.add("anonymous, " + label, "llama.cpp F16", [theirs["RssAnon"] / 1e6] if theirs else [],
                  [ours["RssAnon"] / 1e6], "MB", lower=True)
        for w in filter(None, (smelt, llama)):
            w.close()


def parity(cache, table):
    """The parity gates against the checkpoint's reference, all of them."""
    table.section("Parity over 640 positions")
    goldens = os.environ.get("SMELT_MODEL_GOLDENS")
    for name in cache.models:
        label = f"parity, {MODELS[name]}"
        try:
            bundle, model = cache.bundle(name), cache.model(name)
            argv = [cache.smelt(), "parity", bundle]
            golden = os.path.join(goldens or "", name + ".safetensors")
            with tempfile.TemporaryDirectory() as tmp:
                if goldens and os.path.exists(golden):
                    argv += ["--golden", golden]
                else:
                    smelt = cache.worker("smelt")
                    ids = prompt(cache, smelt, name, 640)
                    smelt.close()
                    prompts = os.path.join(tmp, "prompts.txt")
                    with open(prompts, "w") as f:
                        f.write(TEXT[:len(TEXT) * 640 // max(len(ids), 640)] + "\n")
                    argv += ["--checkpoint", model, "--prompts", prompts]
                start = time.perf_counter()
                p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=dict(os.environ) | {"GOMAXPROCS": str(cache.threads)})
                took = time.perf_counter() - start
            if p.returncode not in (0, 1):
                raise Missing((p.stderr.strip().splitlines() or ["no message"])[-1])
            table.add(label, "aim", [30], [took], "s", lower=True, aim=1.0)
            table.note(f"{label}: {'passed' if p.returncode == 0 else 'FAILED'}, against "
                       + ("a recording" if "--golden" in argv else "the checkpoint"))
        except Missing as e:
            table.missing(label, "aim", str(e))


GROUPS = {f.__name__: f for f in (decode, prefill, gemv, gemm, convert, memory, parity, mlx, sensitivity)}
