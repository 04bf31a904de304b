#!/usr/bin/env python3
"""Hold every MLX format against mx.quantize: all tensors of a checkpoint, bit for bit.

    exact.py SMELT MODEL WORK [--dtype bf16]

SMELT is the binary. Each directory is made, compared and removed.
"""
import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "oracles"))
import check_mlx  # noqa: E402

BITS = (2, 3, 4, 5, 6, 8)
GROUPS = (32, 64, 128)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("smelt")
    ap.add_argument("model")
    ap.add_argument("work")
    ap.add_argument("--dtype")
    args = ap.parse_args()
    out = Path(args.work) / "exact"
    formats = [["--bits", str(b), "--group-size", str(g)] for b in BITS for g in GROUPS]
    formats += [["--mode", m] for m in ("mxfp4", "mxfp8", "nvfp4")]
    start, status, tensors, missed = time.time(), 0, 0, 0
    for f in formats:
        # Groups that do not divide the columns are left alone by mlx-lm, too.
        cmd = [args.smelt, "quantize", args.model, "-o", str(out), "--force", "--keep-indivisible", *f]
        if args.dtype:
            cmd += ["--dtype", args.dtype]
        subprocess.run(cmd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        bad = check_mlx.Problems()
        model = check_mlx.load_model(out, lazy=False, strict=True)[0]
        got = check_mlx.requantize(model, args.model, None, None, None, bad, False)
        tensors += got["quantized"]
        missed += got["quantized"] - got["exact"]
        if bad:
            print("FAILED:", *f)
            status = 1
    shutil.rmtree(out)
    print(f"{args.model}: {len(formats)} formats, {tensors} tensors, {missed} not exact, {time.time() - start:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
