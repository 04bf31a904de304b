#!/bin/sh
# TurboQuant against affine at equal size: weights and predictions, rounded to
# nearest and calibrated.
#
#   docs/turboquant.sh MODEL EVAL CALIBRATION OUT [SIZE...]
#
# MODEL is a Hugging Face directory, EVAL and CALIBRATION are texts, OUT a directory
# for what is measured, where runs that are there already are not run again. A SIZE
# is about the bits of a weight: 2 2.25 2.5 3 3.5 4 4.25 4.5. METHODS (rtn best)
# are those to compare, ONLY (affine, turboquant) one side, SMELT is the command, WINDOWS (4) those of EVAL that count.
set -eu
smelt=${SMELT:-smelt} methods=${METHODS:-rtn best} windows=${WINDOWS:-4}
model=$1 eval=$2 calibration=$3 out=$4
shift 4
[ $# -gt 0 ] || set -- 2 2.25 2.5 3 3.5 4 4.25 4.5
mkdir -p "$out"

# format CODEC BITS GROUP
format() { printf '"codec":"%s","bits":%d,"group_size":%d' "$1" "$2" "$3"; }

# recipe CODEC BITS GROUP [MIXED]: one format, or classes of MIXED, CLASSES:BITS, in
# others.
recipe() {
  printf '{"target":"mlx","default":{%s},"rules":[' "$(format "$1" "$2" "$3")"
  comma=
  for rule in ${4:-}; do
    printf '%s{"class":[%s],"optional":true,%s}' "$comma" \
      "$(echo "${rule%:*}" | sed 's/[a-z]*/"&"/g')" "$(format "$1" "${rule#*:}" "$3")"
    comma=,
  done
  echo ']}'
}

# number FILE KEY: the first of that name.
number() { sed -n 's/^ *"'"$2"'": \([-0-9.e]*\),*$/\1/p' "$1" | head -1; }

# one SIZE NAME METHOD CODEC BITS GROUP [MIXED]
one() {
  case $2 in ${ONLY:-}*) ;; *) return 0 ;; esac
  size=$1 name=$2 method=$3 base=$out/$2.$3
  shift 3
  if [ ! -s "$base.eval.json" ]; then
    recipe "$@" > "$base.recipe.json"
    if [ "$method" = rtn ]; then
      "$smelt" quantize "$model" -o "$base" --recipe "$base.recipe.json" --json > "$base.json" 2> "$base.log" || { tail -1 "$base.log" >&2; return 0; }
    else
      "$smelt" quantize "$model" -o "$base" --recipe "$base.recipe.json" --method "$method" --calibration "$calibration" --json > "$base.json" 2> "$base.log" || { tail -1 "$base.log" >&2; return 0; }
    fi
    "$smelt" eval "$base" --text "$eval" --windows "$windows" --reference "$model" --json > "$base.eval.tmp"
    mv "$base.eval.tmp" "$base.eval.json"
    rm -r "$base"
  fi
  # The error of all coded weights, classes weighted by how many they are.
  error=$(awk -F'[:,]' '/"modules"/ { exit } /"parameters"/ { n = $2 } /"relative_mse"/ { s += n * $2; t += n } END { printf "%.4f", s / t }' "$base.json")
  printf '%s | %.4f | %s | %s | %s | %.3f ± %.3f | %.1f | %.1f %%\n' "$size" "$(number "$base.json" bits_per_weight)" \
    "$name" "$method" "$error" "$(number "$base.eval.json" kl_mean)" "$(number "$base.eval.json" kl_standard_error)" \
    "$(number "$base.eval.json" perplexity)" "$(awk "BEGIN { print 100 * $(number "$base.eval.json" top1_agreement) }")"
}

# Widths of a mix that adds half a bit to a width b for all. Both sides mix alike:
# affine of b bits in groups of 64 and turboquant of b bits in groups of 32 take b +
# 0.5 bits.
mix() {
  if grep -q gemma3 "$model/config.json"; then
    echo "v,down:$(($1 + 2)) q,k,o,gate,up:$(($1 + 1))" # the embedding is most of it
  else
    echo "embedding,down,o:$(($1 + 1))"
  fi
}

echo 'size | exact | format | method | error | KL | perplexity | top-1'
for size in "$@"; do
  for method in $methods; do
    case $size in
      2) one $size turboquant-2-row $method turboquant 2 0 ;;
      2.25)
        one $size affine-2-g128 $method affine 2 128
        one $size turboquant-2-g64 $method turboquant 2 64 ;;
      3 | 4)
        b=$((size - 1))
        one $size affine-$b-g32 $method affine $b 32
        one $size affine-$b-mixed $method affine $b 64 "$(mix $b)"
        one $size turboquant-$size-row $method turboquant $size 0
        one $size turboquant-$b-mixed $method turboquant $b 32 "$(mix $b)" ;;
      2.5 | 3.5 | 4.5)
        b=${size%.*}
        one $size affine-$b-g64 $method affine $b 64
        one $size turboquant-$b-g32 $method turboquant $b 32 ;;
      4.25)
        one $size affine-4-g128 $method affine 4 128
        one $size turboquant-4-g64 $method turboquant 4 64 ;;
      *) echo "$0: there is no size $size" >&2; exit 2 ;;
    esac
  done
done
