#!/usr/bin/env python3
"""Run many command lines of a script of this directory in one process: importing coremltools or mlx
takes longer than looking at a small package.

    batch.py JOBS.json                   [["PKG", "--function", "decode", "--inputs", …], …]
    batch.py --script check_mlx JOBS.json    [["DIR", "--requantize", …], …]

Exit status 1 if any of them fails.
"""
import argparse
import importlib
import json
import sys

if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--script", default="run_package", help="module whose main() is run")
    ap.add_argument("jobs")
    args = ap.parse_args()
    script = importlib.import_module(args.script)
    status = 0
    with open(args.jobs, encoding="utf-8") as f:
        jobs = json.load(f)
    for argv in jobs:
        try:
            code = script.main(argv)
        except SystemExit as e:
            code = e.code
        if code:
            print("failed:", " ".join(argv), file=sys.stderr)
            status = 1
    sys.exit(status)
