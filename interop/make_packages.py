#!/usr/bin/env python3
"""Write small .mlpackage directories with coremltools, each with inputs and expected outputs.

    python interop/make_packages.py OUT [--only NAME,NAME] [--list]

Needs coremltools, numpy and safetensors. OUT/NAME gets `model.mlpackage` and `io.safetensors`;
OUT/index.json lists the cases: name, tolerance and, for a run of several predictions, the
function of each step. Tensors are called in.<input> and out.<output>, with step<k>. in front
when there are steps; state starts at zero and lives across steps. Expected values are computed
here with NumPy in float64 from the stored parameters.
"""
import argparse
import json
import logging
import os
import shutil
import sys

logging.disable(logging.WARNING)

import coremltools as ct  # noqa: E402
import numpy as np  # noqa: E402
from coremltools.converters.mil import Builder as mb  # noqa: E402
from coremltools.converters.mil.mil import Function, Placeholder, Program, types  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

import package_cases  # noqa: E402

MIL_TYPES = {"float16": types.fp16, "float32": types.fp32, "int32": types.int32}


def program(inputs, body, target, states=None, name="main"):
    """A one-function program; body maps the function's variables to a list of (name, variable)."""
    from coremltools.converters.mil.mil.program import StateTensorPlaceholder
    prog = Program()
    holders = {n: Placeholder(sym_shape=a.shape, dtype=MIL_TYPES[str(a.dtype)]) for n, a in inputs.items()}
    for n, shape in (states or {}).items():
        holders[n] = StateTensorPlaceholder(sym_shape=shape, dtype=types.fp16)
    with Function(holders, opset_version=target) as f:
        outputs = body(f.inputs)
        for n, v in outputs:
            v.name = n
        f.set_outputs([v for _, v in outputs])
    prog.add_function(name, f)
    return prog


def convert(prog, target, passes, inputs=None):
    pipeline = ct.PassPipeline.DEFAULT if passes else ct.PassPipeline.EMPTY
    fp16 = passes == "fp16"
    return ct.convert(
        prog, convert_to="mlprogram", minimum_deployment_target=target, skip_model_load=True, inputs=inputs,
        compute_precision=ct.precision.FLOAT16 if fp16 else ct.precision.FLOAT32, pass_pipeline=pipeline)


def write_single(case, path):
    """One function, one or several predictions."""
    steps = case["steps"] if "steps" in case else [case]
    prog = program(steps[0]["in"], case["body"], case["target"], case.get("states"))
    model = convert(prog, case["target"], case.get("passes"))
    model.author, model.short_description = "smelt", case["name"]
    model.user_defined_metadata["case"] = case["name"]
    model.save(path)


def write_multi(case, path):
    """Functions merged from single packages; equal weights end up shared."""
    descriptor = ct.utils.MultiFunctionDescriptor()
    parts = []
    for name, part in case["functions"].items():
        tmp = f"{path}.{name}.mlpackage"
        parts.append(tmp)
        convert(program(part["in"], part["body"], case["target"], case.get("states")), case["target"], None).save(tmp)
        descriptor.add_function(tmp, "main", name)
    descriptor.default_function_name = case["default"]
    ct.utils.save_multifunction(descriptor, path)
    for tmp in parts:
        shutil.rmtree(tmp)


def tensors(case):
    out = {}
    steps = case.get("steps")
    for k, step in enumerate(steps or [case]):
        prefix = f"step{k}." if steps else ""
        for kind in ("in", "out"):
            for n, a in step[kind].items():
                out[f"{prefix}{kind}.{n}"] = np.array(a, order="C")
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", nargs="?")
    ap.add_argument("--only", help="comma-separated case names")
    ap.add_argument("--list", action="store_true")
    args = ap.parse_args()
    cases = package_cases.cases(mb, types, ct)
    if args.only:
        wanted = args.only.split(",")
        unknown = set(wanted) - {c["name"] for c in cases}
        if unknown:
            sys.exit(f"no such case: {', '.join(sorted(unknown))}")
        cases = [c for c in cases if c["name"] in wanted]
    if args.list or not args.out:
        print("\n".join(c["name"] for c in cases))
        return
    index = []
    for case in cases:
        d = os.path.join(args.out, case["name"])
        shutil.rmtree(d, ignore_errors=True)
        os.makedirs(d)
        path = os.path.join(d, "model.mlpackage")
        (write_multi if "functions" in case else write_single)(case, path)
        save_file(tensors(case), os.path.join(d, "io.safetensors"))
        record = {"name": case["name"], "atol": case["tol"], "rtol": case["tol"]}
        if "steps" in case:
            record["steps"] = [s.get("function", "main") for s in case["steps"]]
        index.append(record)
    with open(os.path.join(args.out, "index.json"), "w") as f:
        json.dump(index, f, indent=1)
        f.write("\n")
    print(f"{len(index)} packages in {args.out}")


if __name__ == "__main__":
    main()
