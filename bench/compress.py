"""Compresses every chunk of a bundle with coremltools.

    python compress.py BUNDLE OUT int8|int4|lut4

int8 is linear_quantize_weights per channel, int4 the same per block of 32,
lut4 palettize_weights to 4 bits by k-means in channel groups of 32. Contract,
embedding table and tokenizer are linked, not copied.

coremltools compresses packages of one function only, so a chunk is taken
apart, its functions are compressed one by one and joined again, which finds
their equal weights and stores them once.
"""

import logging
import os
import shutil
import sys
import tempfile

logging.disable(logging.WARNING)  # missing macOS frameworks, untested torch
os.environ["TQDM_DISABLE"] = "1"

import coremltools as ct
import coremltools.optimize.coreml as cto

CONFIGS = {
    "int8": lambda: (cto.linear_quantize_weights, cto.OpLinearQuantizerConfig(
        mode="linear_symmetric", dtype="int8", granularity="per_channel")),
    "int4": lambda: (cto.linear_quantize_weights, cto.OpLinearQuantizerConfig(
        mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=32)),
    "lut4": lambda: (cto.palettize_weights, cto.OpPalettizerConfig(
        mode="kmeans", nbits=4, granularity="per_grouped_channel", group_size=32)),
}


def functions(package):
    """The names of the package's functions, none if it has only main."""
    return [f.name for f in ct.models.MLModel(package, skip_model_load=True).get_spec().description.functions]


def pick(package, function, out):
    """Writes one function of a package as the main function of another, in
    the form of a package that never had several."""
    d = ct.utils.MultiFunctionDescriptor()
    d.add_function(package, src_function_name=function, target_function_name="main")
    d.default_function_name = "main"
    ct.utils.save_multifunction(d, out + ".one.mlpackage")
    model = ct.models.MLModel(out + ".one.mlpackage", skip_model_load=True)
    spec = model.get_spec()
    about = spec.description
    only = about.functions[0]
    about.input.extend(only.input)
    about.output.extend(only.output)
    about.state.extend(only.state)
    about.ClearField("functions")
    about.ClearField("defaultFunctionName")
    ct.models.utils.save_spec(spec, out, weights_dir=model.weights_dir)
    shutil.rmtree(out + ".one.mlpackage")


def join(parts, out):
    d = ct.utils.MultiFunctionDescriptor()
    for name, package in parts.items():
        d.add_function(package, src_function_name="main", target_function_name=name)
    d.default_function_name = next(iter(parts))
    ct.utils.save_multifunction(d, out)


def compress(package, out, how):
    apply, config = CONFIGS[how]()

    def one(src, to):
        model = ct.models.MLModel(src, skip_model_load=True)
        apply(model, cto.OptimizationConfig(global_config=config)).save(to)

    names = functions(package)
    if not names:
        one(package, out)
        return
    with tempfile.TemporaryDirectory(dir=os.path.dirname(out)) as tmp:
        parts = {}
        for name in names:
            plain = os.path.join(tmp, name + ".plain.mlpackage")
            parts[name] = os.path.join(tmp, name + ".mlpackage")
            pick(package, name, plain)
            one(plain, parts[name])
            shutil.rmtree(plain)
        join(parts, out)


def keep_metadata(package, out):
    """Copies what the package says about its origin, which is lost on the way."""
    was = ct.utils.load_spec(package).description.metadata.userDefined
    for dir, _, files in os.walk(out):
        for name in files:
            if name.endswith(".mlmodel"):
                path = os.path.join(dir, name)
                spec = ct.utils.load_spec(path)
                for k, v in was.items():
                    spec.description.metadata.userDefined[k] = v
                with open(path, "wb") as f:
                    f.write(spec.SerializeToString())


def main(src, out, how):
    partial = out + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    for name in sorted(os.listdir(src)):
        path, to = os.path.join(src, name), os.path.join(partial, name)
        if name.endswith(".mlpackage"):
            compress(path, to, how)
            keep_metadata(path, to)
        elif os.path.isdir(path):
            shutil.copytree(path, to, copy_function=os.link)
        else:
            os.link(path, to)
    shutil.rmtree(out, ignore_errors=True)
    os.rename(partial, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
