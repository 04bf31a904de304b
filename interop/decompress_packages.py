"""Decompresses packages with coremltools and writes what becomes of their weights.

    decompress_packages.py DIR

For every NAME.mlpackage in DIR writes NAME.f16: the fp16 weight of its linear op after
coremltools.optimize.coreml.decompress_weights, row by row.
"""
import glob
import logging
import os
import sys

logging.disable(logging.WARNING)

import coremltools as ct
import coremltools.optimize.coreml as cto
import numpy as np
from coremltools.converters.mil.frontend.milproto.load import load as load_program


def weight(package):
    model = cto.decompress_weights(ct.models.MLModel(package, skip_model_load=True))
    program = load_program(model.get_spec(), specification_version=model.get_spec().specificationVersion,
                           file_weights_dir=model.weights_dir)
    found = [op.weight for f in program.functions.values() for op in f.operations if op.op_type == "linear"]
    if len(found) != 1 or found[0].op.op_type != "const":
        raise SystemExit(f"{package}: the weights are {[v.op.op_type for v in found]}")
    return np.asarray(found[0].val)


for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.mlpackage"))):
    w = weight(path)
    if w.dtype != np.float16:
        raise SystemExit(f"{path}: the weight is {w.dtype}")
    w.tofile(path.removesuffix(".mlpackage") + ".f16")
