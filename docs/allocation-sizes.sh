#!/bin/sh
# One map, recipes for several sizes, the models, and how they compare with fixed
# splits of the same sizes.
#
#   docs/allocation-sizes.sh rtn  MODEL OUT TEXT...
#   docs/allocation-sizes.sh best MODEL OUT TEXT...   with CALIBRATION=FILE
#
# MODEL is a Hugging Face directory, OUT a directory for what is written; TEXTs are
# files that nothing was fitted to. Models of method best learn from the beginning of
# CALIBRATION; damage is measured on its last 100,000 bytes.
#
# SMELT    the command: smelt
# BPW      sizes: 3.9 4.502 4.876 5.250 5.502 5.876, what the candidates allow of it
# SPLITS   fixed splits, EMBEDDING/REST: 3/4 4/4 4/5 4/6 5/5 5/6
# WIDE     group sizes of candidates: 64,128
# MEASURE  text that damage is measured on: --sequences 8 --tokens 256 (rtn: 16 of 64
#          of the built-in mix)
# PIN      a format for the embedding, such as *embed_tokens=4/64, at all sizes
set -eu
smelt=${SMELT:-smelt} method=$1 model=$2 out=$3
shift 3
mkdir -p "$out"
texts=
for t; do texts="$texts --text $t"; done
learn=
if [ "$method" = best ]; then learn="--calibration ${CALIBRATION:?a text to calibrate on}"; fi

say() { printf '\n$ %s\n' "$*"; "$@"; }

# judge NAME: stores the model by NAME.json, unless that has been done, and measures.
# shellcheck disable=SC2086
judge() {
  [ ! -e "$out/$1.kl" ] || return 0
  say "$smelt" quantize "$model" -o "$out/model" --recipe "$out/$1.json" $learn --force | tail -n 1
  say "$smelt" eval "$out/model" --reference "$model" $texts --windows 4 --save "$out/$1.kl"
  rm -rf "$out/model"
}

# The map. Two widths of every tensor are measured, the others follow from their
# errors. With method best everything else is stored at 4 bits by the same method
# while one tensor varies: that says what classes of tensors do. What single tensors
# of a class do is measured with all others as they are.
# shellcheck disable=SC2086
map() {
  if [ "$method" = best ]; then
    "$smelt" quantize "$model" --method best --print-recipe > "$out/start.json"
    tail -c 100000 "$CALIBRATION" > "$out/measure.txt"
    on="--text $out/measure.txt ${MEASURE:---sequences 8 --tokens 256}"
    [ -e "$out/around.json" ] || say "$smelt" sensitivity "$model" -o "$out/around.json" --method best $learn --base "$out/start.json" \
      --group-size "${WIDE:-64,128}" --estimator scaled --probe-bits 3,5 $on
    [ -e "$out/singles.json" ] || say "$smelt" sensitivity "$model" -o "$out/singles.json" --method best $learn --bits 4 $on
    say "$smelt" sensitivity combine "$out/around.json" "$out/singles.json" -o "$out/map.json"
  else
    say "$smelt" sensitivity "$model" -o "$out/map.json" --method "$method" \
      --group-size "${WIDE:-64,128}" --estimator scaled --probe-bits 3,5 ${MEASURE:---sequences 16 --tokens 64}
  fi
}
[ -e "$out/map.json" ] || map

# Recipes, and what becomes of them.
for bpw in ${BPW-3.9 4.502 4.876 5.250 5.502 5.876}; do
  name=at-$bpw${PIN:+-pinned}
  say "$smelt" allocate "$out/map.json" --bpw "$bpw" ${PIN:+--pin "$PIN"} -o "$out/$name.json" --force
  judge "$name"
done

# Fixed splits: one width for the embedding, one for the rest.
for split in ${SPLITS-3/4 4/4 4/5 4/6 5/5 5/6}; do
  name=fixed-${split%/*}-${split#*/}
  printf '{"target": "mlx", "default": {"codec": "affine", "bits": %d, "group_size": 64, "method": "%s"},
 "rules": [{"class": ["embedding"], "bits": %d}]}\n' "${split#*/}" "$method" "${split%/*}" > "$out/$name.json"
  judge "$name"
done
