#!/usr/bin/env bash
# Compresses a real model and holds the result against the peers':
#   - no 4-bit palette has a larger error than coremltools' of the same weight, and
#     integers decode to the same numbers;
#   - all affine and floating-point formats have the bits of mx.quantize, in every
#     tensor;
#   - mlx-lm runs the quantized directory and says what our decoder says.
#
#   interop/models/compressed.sh MODEL WORK PYTHON
#
# MODEL is a checkpoint directory.
set -euo pipefail
cd "$(dirname "$0")/../.."
model=${1:?usage: compressed.sh MODEL WORK PYTHON} work=${2:?} python=${3:?}
mkdir -p "$work"
go build -o "$work/smelt" ./cmd/convert

one=(--functions decode --context 256 --chunks 2 --no-sync --force)
"$work/smelt" convert "$model" -o "$work/plain" "${one[@]}"
"$work/smelt" convert "$model" -o "$work/ours" "${one[@]}" --quantize coreml-lut4-g32
"$python" bench/compress.py "$work/plain" "$work/theirs" lut4
SMELT_PALETTES=$work/plain:$work/theirs:$work/ours go test -count=1 -v -run '^TestPalettesNotWorse$' ./interop
for how in int8:coreml-w8 int4:coreml-int4-b32; do
  "$work/smelt" convert "$model" -o "$work/ours" "${one[@]}" --quantize "${how#*:}"
  "$python" bench/compress.py "$work/plain" "$work/theirs" "${how%:*}"
  SMELT_INTEGERS=$work/theirs:$work/ours go test -count=1 -v -run '^TestIntegersEqual$' ./interop
done
rm -rf "$work/plain" "$work/ours" "$work/theirs"

"$python" interop/models/exact.py "$work/smelt" "$model" "$work"

ids=$("$work/smelt" tokenize "$model" "$(head -c 1200 RATIONALE.md)" | tr -s ' ,[]\n' ',' | sed 's/^,//; s/,$//')
for how in "--bits 4" "--bits 3 --method refit" "--mode mxfp4"; do
  # shellcheck disable=SC2086
  "$work/smelt" quantize "$model" -o "$work/mlx" $how --force
  "$python" interop/oracles/check_mlx.py "$work/mlx" --fp32 --ids "$ids" --out "$work/mlx.safetensors"
  SMELT_MLX_DIR=$work/mlx SMELT_MLX_LOGITS=$work/mlx.safetensors go test -count=1 -v -run '^TestLogitsOfMLX$' ./interop
done
