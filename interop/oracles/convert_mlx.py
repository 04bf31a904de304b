#!/usr/bin/env python3
"""Quantize a checkpoint with stock mlx_lm, as mlx_lm.convert does after it has loaded the tokenizer.

    convert_mlx.py SRC OUT --bits 4 --group 64 [--recipe mixed_3_6]
"""
import argparse
import sys
from pathlib import Path

import mlx.core as mx
from mlx_lm.convert import mixed_quant_predicate_builder
from mlx_lm.utils import load_model, quantize_model, save_config, save_model

mx.set_default_device(mx.cpu)


def main(argv=None):
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("src")
    ap.add_argument("out")
    ap.add_argument("--bits", type=int)
    ap.add_argument("--group", type=int)
    ap.add_argument("--recipe")
    args = ap.parse_args(argv)
    model, config = load_model(Path(args.src), lazy=True)
    predicate = mixed_quant_predicate_builder(args.recipe, model, args.group) if args.recipe else None
    model, config = quantize_model(model, config, args.group, args.bits, quant_predicate=predicate)
    out = Path(args.out)
    out.mkdir(parents=True)
    save_model(out, model)
    config["quantization_config"] = config["quantization"]
    save_config(config, out / "config.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
