#!/bin/sh
# A worked example: how few bits does a drafter need?
#
#   docs/drafter.sh [DIR]     works in DIR, which is made; needs Go alone
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=${1:-$(mktemp -d)}
mkdir -p "$work"
(cd "$root" && go build -o "$work/smelt" ./cmd/convert)
cd "$work"

# A target and a drafter, both trained, with one tokenizer. The held-out text is
# cut in two: one part to measure damage on, the other to judge with.
target=$root/fixtures/tiny-gemma3-target
cp -r "$root/speculate/testdata/tiny-gemma3-drafter" drafter
cp "$target/tokenizer.json" "$target/tokenizer_config.json" drafter/
head -c 9000 "$target/heldout.txt" > calibration.txt
tail -c +9001 "$target/heldout.txt" > prompts.txt

# What each tensor's bits cost.
./smelt sensitivity drafter -o map.json --text calibration.txt --bits 2,3,4,5,6,8 --group-size 32,64,128 --sequences 32 2> /dev/null | tail -3

# Three families at like sizes, some 2.5, 3.5, 4.5 and 5.5 bits a weight with
# everything counted: the same affine format everywhere, TurboQuant everywhere,
# and what the map allocates, coded with error feedback.
for b in 2 3 4 5; do
  ./smelt quantize drafter -o affine-$b --bits $b --group-size 64 > /dev/null
  cat > turbo.json <<EOF
{"target": "mlx", "default": {"codec": "turboquant", "bits": $b, "group_size": 32}}
EOF
  ./smelt quantize drafter -o turboquant-$b --recipe turbo.json > /dev/null 2>&1
  # 2 bits are a last resort: damages of single tensors do not add up there.
  case $b in
    2) set -- --bpw 2.55 ;;
    3) set -- --bpw 3.5 ;;
    *) set -- --bpw $b.5 --bits 3,4,5,6,8 ;;
  esac
  ./smelt allocate map.json "$@" -o measured.json > /dev/null
  sed 's/"method": "rtn"/"method": "best"/' measured.json > recipe-$b.json
  ./smelt quantize drafter -o allocated-$b --recipe recipe-$b.json --calibration calibration.txt > /dev/null 2>&1
  rm measured.json
done

# Acceptance by bytes, with intervals; a verdict for each.
set --
for family in affine turboquant allocated; do
  for b in 2 3 4 5; do set -- "$@" --b $family-$b; done
done
./smelt accept --a drafter "$@" --target "$target" --prompts prompts.txt --cut 32 -n 48 -o curve || echo "exit code $?"

# The candidate of at most 4.5 bits a weight, alone.
./smelt accept --a drafter --b allocated-4 --target "$target" --prompts prompts.txt --cut 32 -n 48 -o verdict && echo "exit code 0"

# A drafter broken on purpose: 4 bits a weight, and norms that hardly norm.
cp -r affine-4 broken
sed 's/"rms_norm_eps": [0-9e.-]*/"rms_norm_eps": 1.0/' affine-4/config.json > broken/config.json
./smelt accept --a drafter --b broken --target "$target" --prompts prompts.txt --cut 32 -n 48 --limit 40 || echo "exit code $?"
