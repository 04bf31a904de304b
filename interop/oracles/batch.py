#!/usr/bin/env python3
"""Run many run_package.py command lines in one process: importing coremltools takes longer than
evaluating a small package.

    batch.py JOBS.json        [["PKG", "--function", "decode", "--inputs", …], …]

Exit status 1 if any of them fails.
"""
import json
import sys

import run_package

if __name__ == "__main__":
    status = 0
    with open(sys.argv[1], encoding="utf-8") as f:
        jobs = json.load(f)
    for argv in jobs:
        try:
            code = run_package.main(argv)
        except SystemExit as e:
            code = e.code
        if code:
            print("failed:", " ".join(argv), file=sys.stderr)
            status = 1
    sys.exit(status)
