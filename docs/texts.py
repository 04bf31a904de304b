#!/usr/bin/env python3
"""Texts to calibrate on and to measure on, of what every Go installation and this repository hold.

    docs/texts.py OUT [OWN]

OUT/other.txt is to measure on: Go, C, a licence, old prose, dialogue, and three languages.
OUT/mixed.jsonl is to calibrate on: OWN, what a model is for, beside other text of such kinds; domains
take turns. No sentence is in both.
"""
import json
import subprocess
import sys
from pathlib import Path

repo = Path(__file__).resolve().parent.parent
go = Path(subprocess.run(["go", "env", "GOROOT"], capture_output=True, text=True, check=True).stdout.strip())


def read(path, first=0, size=None):
    text = (go / path).read_text(encoding="utf-8")
    return text[first:] if size is None else text[first:first + size]


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    mix = [json.loads(line) for line in (repo / "calibration/mix/mix.jsonl").read_text(encoding="utf-8").splitlines()]
    other = [
        read("src/net/http/transport.go", 8000, 9000),
        read("src/runtime/cgo/gcc_libinit.c"),
        read("src/crypto/internal/boring/LICENSE"),
        read("src/testdata/Isaac.Newton-Opticks.txt", 60000, 9000),
        *(m["text"] for m in mix if m["domain"] in ("dialogue", "german", "french", "spanish", "terms")),
    ]
    (out / "other.txt").write_text("\n\n".join(other), encoding="utf-8")
    mixed = [
        ("go", read("src/encoding/json/decode.go")),
        ("go", read("src/sort/sort.go")),
        ("c", read("src/runtime/cgo/gcc_libinit_windows.c")),
        ("c", read("src/runtime/cgo/gcc_signal_ios_arm64.c")),
        ("c", read("src/runtime/cgo/gcc_darwin_arm64.c")),
        ("prose", read("src/testdata/Isaac.Newton-Opticks.txt", 200000, 60000)),
        ("terms", read("LICENSE")),
        ("terms", read("PATENTS")),
        ("notes", read("doc/godebug.md")),
    ]
    if len(sys.argv) > 2:
        mixed.insert(0, ("own", Path(sys.argv[2]).read_text(encoding="utf-8")))
    with open(out / "mixed.jsonl", "w", encoding="utf-8") as f:
        for domain, text in mixed:
            f.write(json.dumps({"domain": domain, "text": text}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
