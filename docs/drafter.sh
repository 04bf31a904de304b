#!/bin/sh
# A worked example: how few bits does a drafter need, and which?
#
#   docs/drafter.sh [DIR]     works in DIR, which is made; needs Go alone
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=${1:-$(mktemp -d)}
mkdir -p "$work"
(cd "$root" && go build -o "$work/smelt" ./cmd/convert)
cd "$work"

# A target and a drafter, both trained, with one tokenizer. The held-out text is
# cut in two: one part to measure damage and to learn codes on, the other to judge
# with.
target=$root/fixtures/tiny-gemma3-target
cp -r "$root/speculate/testdata/tiny-gemma3-drafter" drafter
cp "$target/tokenizer.json" "$target/tokenizer_config.json" drafter/
head -c 9000 "$target/heldout.txt" > calibration.txt
tail -c +9001 "$target/heldout.txt" > prompts.txt

# What the target says of the text, once. From here on to the verdict it does not
# run.
./smelt capture "$target" --drafter drafter --text calibration.txt --sequences 32 -o states 2> /dev/null

# What each tensor's bits cost, in both codecs: codes with error feedback, damage by
# position of the draft.
./smelt sensitivity drafter drafter --states states --target "$target" -o map.json \
  --codec affine,turboquant --method feedback --bits 2,3,4,5,6,8 --group-size 32,64 --every 2 2> /dev/null > map.txt
tail -2 map.txt

# Both codecs at the same sizes, everything counted. A map knows error feedback;
# quantize goes one step further and lets layers make up for those before them.
for b in 2 3 4 5; do
  for codec in affine turboquant; do
    case $b in
      2) set -- --bpw 2.75 ;;
      3) set -- --bpw 3.5 ;;
      *) set -- --bpw $b.5 --bits 3,4,5,6,8 ;; # 2 bits are a last resort: damages of single tensors do not add up there
    esac
    ./smelt allocate map.json "$@" --runtime smelt --codec $codec -o measured.json | sed -n "s/^size /$codec-$b: /p"
    sed 's/"method": "feedback"/"method": "best"/' measured.json > $codec-$b.json
    ./smelt quantize drafter -o $codec-$b --recipe $codec-$b.json --calibration calibration.txt > /dev/null 2>&1
    rm measured.json
  done
  # And what no measurement is needed for.
  ./smelt quantize drafter -o rtn-$b --bits $b --group-size 64 > /dev/null
done

# Acceptance by bytes, with intervals; a verdict for each.
set --
for family in rtn affine turboquant; do
  for b in 2 3 4 5; do set -- "$@" --b $family-$b; done
done
./smelt accept --a drafter "$@" --target "$target" --prompts prompts.txt --cut 32 -n 48 -o curve || echo "exit code $?"

# The candidate of at most 4.5 bits a weight, alone, in the codec that was better at
# that size.
./smelt accept --a drafter --b turboquant-4 --target "$target" --prompts prompts.txt --cut 32 -n 48 -o verdict && echo "exit code 0" || echo "exit code $?"

# A drafter broken on purpose: 4 bits a weight, and norms that hardly norm.
cp -r rtn-4 broken
sed 's/"rms_norm_eps": [0-9e.-]*/"rms_norm_eps": 1.0/' rtn-4/config.json > broken/config.json
./smelt accept --a drafter --b broken --target "$target" --prompts prompts.txt --cut 32 -n 48 --limit 40 || echo "exit code $?"
