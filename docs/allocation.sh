#!/bin/sh
# From a checkpoint to a verdict: what every tensor's bits cost, the best recipe
# for a size, the model in that size, and how much of the original it has kept.
#
#   docs/allocation.sh MODEL TEXT OUT [BPW]
#
# MODEL is a Hugging Face directory, TEXT a text file that nothing was fitted to,
# OUT a directory for what is written. SMELT is the command, smelt by default.
set -eu
smelt=${SMELT:-smelt} model=$1 text=$2 out=$3 bpw=${4:-4.876}
mkdir -p "$out"

say() { printf '\n$ %s\n' "$*"; "$@"; }

# 1. The map: one tensor at a time in five widths, on the built-in mix of texts. A
#    run that is stopped goes on when it is started again.
[ -e "$out/map.json" ] || say "$smelt" sensitivity "$model" -o "$out/map.json" --noise

# 2. The recipe, with its certificate, and what other rules would have chosen.
say "$smelt" allocate "$out/map.json" --bpw "$bpw" -o "$out/recipe.json" --force
for rule in uniform static threshold greedy; do
  say "$smelt" allocate "$out/map.json" --bpw "$bpw" --strategy $rule | grep -E '^\$|^size|^damage'
done

# 3. The prediction against the whole, on the text of the map.
say "$smelt" sensitivity verify "$model" "$out/map.json" --recipe "$out/recipe.json"

# 4. The model, and the verdict on a text that was not looked at.
say "$smelt" quantize "$model" -o "$out/model" --recipe "$out/recipe.json" --force
say "$smelt" eval "$out/model" --reference "$model" --text "$text" --windows 4

# 5. Everything on one page.
say "$smelt" report "$out/map.json" --bpw "$bpw" -o "$out/report.html" --force
