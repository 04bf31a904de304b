"""What the rows compare and are compared with, made once and kept in a cache
directory: virtual environments of the peers, models, GGUF files, bundles."""

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys

from harness import Missing, Worker

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
MODELS = {"gemma3-270m": "Gemma 3 270M", "smollm2-135m": "SmolLM2-135M"}

# One environment a peer: their needs of numpy and of compilers differ, and one
# that cannot be installed must not take the others with it.
ENVIRONMENTS = {
    "llama": (["llama-cpp-python==0.3.36", "gguf==0.19.0", "numpy==2.2.6"],
              {"CMAKE_ARGS": "-DGGML_NATIVE=ON", "FORCE_CMAKE": "1"}),
    "numpy": (["numpy==2.2.6", "threadpoolctl==3.6.0"], {}),
    "coreml": (["coremltools==9.0", "numpy==2.2.6"], {}),
    "mlx": (["mlx[cpu]==0.32.4", "mlx-lm==0.32.2", "numpy==2.2.6"], {}),
    "optiq": (["mlx[cpu]==0.32.4", "mlx-lm==0.32.2", "mlx-optiq==0.7.7", "numpy==2.2.6"], {}),
    "torch": (["torch==2.15.0", "transformers==5.24.0", "numpy==2.2.6"], {}),
}


def clean_env():
    """The environment without what would keep a peer from its best kernels."""
    env = dict(os.environ)
    for k in list(env):
        if k.startswith("OPENBLAS_"):
            del env[k]
    return env


class Cache:
    def __init__(self, path, threads, prefill, context):
        self.path, self.threads, self.prefill, self.context = path, threads, prefill, context
        self.failed = {}  # environments that could not be made, with the reason
        self.fresh = set()  # bundles of this run
        self.workers = []
        os.makedirs(path, exist_ok=True)
        self.log = open(os.path.join(path, "log.txt"), "a")
        self.bin = os.path.join(path, "bin")

    def at(self, *names):
        return os.path.join(self.path, *names)

    def run(self, argv, env=None, cwd=None):
        """Runs a preparation; its output goes to log.txt."""
        print("  …", " ".join(os.path.relpath(a) if os.path.isabs(a) and len(a) > 60 else a for a in argv)[:150],
              file=sys.stderr, flush=True)
        self.log.write(f"$ {argv}\n")
        self.log.flush()
        p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=cwd)
        self.log.write(p.stdout)
        if p.returncode:
            last = (p.stdout.strip().splitlines() or ["no output"])[-1]
            raise Missing(f"{os.path.basename(argv[0])} failed: {last} (see {self.log.name})")

    # Tools.

    def build(self):
        """Builds smelt and its worker from this checkout."""
        os.makedirs(self.bin, exist_ok=True)
        for name, package in ("smelt", "./cmd/convert"), ("worker", "./bench/cmd/worker"):
            self.run(["go", "build", "-o", os.path.join(self.bin, name), package], cwd=ROOT)

    def smelt(self):
        return os.path.join(self.bin, "smelt")

    def python(self, name):
        """The interpreter of an environment, which is made if need be."""
        if name in self.failed:
            raise Missing(self.failed[name])
        packages, env = ENVIRONMENTS[name]
        override = os.environ.get(f"SMELT_BENCH_{name.upper()}_PYTHON")
        if override:
            return override
        dir = self.at("venv-" + name)
        python, stamp = os.path.join(dir, "bin", "python"), os.path.join(dir, "packages.json")
        want = json.dumps([packages, env])
        try:
            with open(stamp) as f:
                if f.read() == want:
                    return python
        except OSError:
            pass
        try:
            shutil.rmtree(dir, ignore_errors=True)
            self.run([sys.executable, "-m", "venv", dir])
            self.run([python, "-m", "pip", "install", "-q", *packages], env=dict(os.environ) | env)
        except Missing as e:
            self.failed[name] = f"cannot install {packages[0]}: {e}"
            raise Missing(self.failed[name]) from None
        with open(stamp, "w") as f:
            f.write(want)
        return python

    def worker(self, kind):
        """Starts a worker: smelt, or one of the environments."""
        env = clean_env()
        n = str(self.threads)
        env |= {"GOMAXPROCS": n, "OMP_NUM_THREADS": n, "OPENBLAS_NUM_THREADS": n}
        argv = [os.path.join(self.bin, "worker")] if kind == "smelt" else \
            [self.python(kind), os.path.join(HERE, f"worker_{kind}.py")]
        w = Worker(argv, env)
        self.workers.append(w)
        return w

    def close(self):
        for w in self.workers:
            w.close()
        self.workers = []

    # Models.

    def model(self, name):
        """The Hugging Face directory of a model."""
        dir = self.at("models")
        given = os.environ.get("SMELT_MODELS")
        if given and os.path.isfile(os.path.join(given, name, "model.safetensors")):
            return os.path.join(given, name)
        if not os.path.isfile(os.path.join(dir, name, "model.safetensors")):
            self.run(["bash", os.path.join(ROOT, "interop/models/fetch.sh"), dir, self.python("numpy")])
        return os.path.join(dir, name)

    def gguf(self, name, type="F16", pure=False):
        """A GGUF of a model; types other than F16 are made by llama.cpp."""
        os.makedirs(self.at("gguf"), exist_ok=True)
        out = self.at("gguf", f"{name}-{type}{'-pure' if pure else ''}.gguf")
        if os.path.exists(out):
            return out
        if type == "F16":
            self.run([self.python("llama"), os.path.join(HERE, "write_gguf.py"), self.model(name), out])
            return out
        w = self.worker("llama")
        w.ask("quantize", file=self.gguf(name), out=out + ".partial", type=type, pure=pure, threads=self.threads)
        os.rename(out + ".partial", out)
        w.close()
        return out

    def bundle(self, name, prefill=True):
        """A bundle with fp16 weights, converted anew in every run."""
        out = self.at("bundles", name + ("" if prefill else "-decode"))
        if out not in self.fresh:
            os.makedirs(self.at("bundles"), exist_ok=True)
            self.run([self.smelt(), "convert", self.model(name), "-o", out, "--force", "--context", str(self.context),
                      "--functions", f"decode,prefill:{self.prefill}" if prefill else "decode"])
            self.fresh.add(out)
        return out

    def compressed(self, name, how):
        """The bundle with packages compressed by coremltools, made again when
        the packages or compress.py change. Palettes take k-means minutes a
        function: they come with decode only."""
        src = self.bundle(name, how != "lut4")
        key = package_hash(src)
        out = self.at("bundles", f"{name}-{how}")
        try:
            with open(out + ".source") as f:
                if f.read() == key:
                    relink(src, out)
                    return out
        except OSError:
            pass
        self.run([self.python("coreml"), os.path.join(HERE, "compress.py"), src, out, how])
        with open(out + ".source", "w") as f:
            f.write(key)
        return out

    def synthetic(self, size):
        """A llama checkpoint of random BF16 weights of about size bytes."""
        out = self.at(f"synthetic-{size // 1_000_000}MB")
        if not os.path.exists(os.path.join(out, "config.json")):
            print("  … writing", out, file=sys.stderr, flush=True)
            w = self.worker("smelt")
            w.ask("synthetic", dir=out, bytes=size)
            w.close()
        return out


def package_hash(bundle):
    """A hash of the packages of a bundle and of what compresses them."""
    h = hashlib.sha256()
    files = [os.path.join(HERE, "compress.py")]
    for dir, _, names in sorted(os.walk(bundle)):
        files += sorted(os.path.join(dir, n) for n in names if n.endswith((".mlmodel", ".bin")))
    for name in files:
        with open(name, "rb") as f:
            h.update(hashlib.file_digest(f, "sha256").digest())
    return h.hexdigest()


def relink(src, out):
    """Gives the compressed bundle out what src has beside its packages."""
    for name in os.listdir(src):
        if os.path.isfile(os.path.join(src, name)):
            os.unlink(os.path.join(out, name))
            os.link(os.path.join(src, name), os.path.join(out, name))


def weight_bytes(bundle):
    """The bytes of the weight files of a bundle's packages."""
    total = 0
    for dir, _, names in os.walk(bundle):
        total += sum(os.path.getsize(os.path.join(dir, n)) for n in names if n == "weight.bin")
    return total


def cache_bytes(bundle):
    """The bytes of a bundle's key-value cache as declared, in fp16."""
    with open(os.path.join(bundle, "contract.json")) as f:
        contract = json.load(f)
    return sum(2 * math.prod(p["shape"]) for chunk in contract["chunks"] for p in chunk["functions"][0]["inputs"]
               if p["role"] in ("key_cache", "value_cache"))
