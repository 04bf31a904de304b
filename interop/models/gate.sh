#!/usr/bin/env bash
# Converts the two real models, lets coremltools check every package, and runs
# the parity gate against recorded PyTorch results.
#
#   interop/models/gate.sh MODELS GOLDENS WORK [PYTHON]
#
# MODELS is what fetch.sh made; GOLDENS holds NAME.safetensors recordings.
# Without PYTHON the check by coremltools is left out.
set -uo pipefail
cd "$(dirname "$0")/../.."
models=${1:?usage: gate.sh MODELS GOLDENS WORK [PYTHON]} goldens=${2:?} work=${3:?} python=${4:-}
mkdir -p "$work"
go build -o "$work/smelt" ./cmd/convert || exit 1
status=0
step() { echo "+ $*"; "$@" || { echo "exit $? from: $*"; status=1; }; }

for name in gemma3-270m smollm2-135m; do
  bundle=$work/$name
  step "$work/smelt" convert "$models/$name" -o "$bundle" --chunks 2 --force
  [ -z "$python" ] || step "$python" interop/oracles/check_package.py "$bundle"/*.mlpackage
  step "$work/smelt" lint "$bundle"
  step "$work/smelt" run "$bundle" --prompt "A database is" -n 24
  step "$work/smelt" parity "$bundle" --golden "$goldens/$name.safetensors"
  # The same bytes from one core as from two.
  step env GOMAXPROCS=1 "$work/smelt" convert "$models/$name" -o "$bundle.again" --chunks 2 --force
  step diff -r "$bundle" "$bundle.again"
  rm -rf "$bundle.again"
  step "$work/smelt" convert "$models/$name" -o "$bundle.state" --chunks 3 --kv state --embed graph --force
  step "$work/smelt" parity "$bundle.state" --golden "$goldens/$name.safetensors"
  rm -rf "$bundle.state"
done
exit $status
