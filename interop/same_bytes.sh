#!/usr/bin/env bash
# Converts the fixtures on different processors and compares every file byte
# for byte: amd64 with all its vector instructions, amd64 with none, amd64
# where the compiler fuses multiplications and additions (GOAMD64=v3), and
# arm64, natively or in an emulator. It also reads the arm64 code of the
# packages that decide bytes: no instruction there may fuse a product and a sum,
# and no function of package math whose result depends on the processor may be
# called. Two are left out: internal/kernel, of which a conversion uses casts, whose
# tests compare all levels, and decoder, which only calibrated methods use, whose
# bytes belong to a kernel level.
#
#   interop/same_bytes.sh WORK [CHECKPOINT…]
#
# WORK is a directory for binaries and bundles; CHECKPOINT defaults to all
# fixtures. Needs qemu-aarch64-static on a machine that is not arm64.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -lt 1 ]; then
  echo "usage: $0 WORK [CHECKPOINT...]" >&2
  exit 2
fi
mkdir -p "$1"
work=$(cd "$1" && pwd)
shift
all=("$@")
[ $# -gt 0 ] || all=(fixtures/gemma3 fixtures/llama3-scaled fixtures/llama-tied fixtures/qwen2 fixtures/qwen3 fixtures/gemma4-e2b fixtures/gemma4-e4b fixtures/tiny-gemma3-target)

build() { # NAME VARIABLE=VALUE…
  env CGO_ENABLED=0 "${@:2}" go build -o "$work/$1" ./cmd/convert
}

# The code of the packages that decide bytes.
status=0
packages=$(GOARCH=arm64 GOOS=linux CGO_ENABLED=0 go list -export -deps \
  -f '{{if .Module}}{{if .Module.Main}}{{.ImportPath}} {{.Export}}{{end}}{{end}}' ./conversion ./quant)
: >"$work/code"
while read -r path archive; do
  [[ $path == */internal/kernel || $path == */decoder ]] || go tool objdump "$archive" >>"$work/code"
done <<<"$packages"
if ! grep -q 'FADDD ' "$work/code"; then
  echo "same_bytes: no floating point code found in $packages" >&2
  exit 1
fi
if grep -E 'FN?M(ADD|SUB)[SD] |R_CALLARM64:math\.' "$work/code" | grep -vE 'math\.(frexp|ldexp|modf)'; then
  echo "FUSED or not the same on every processor: see above"
  status=1
fi

# The ways to run, as commands; the first is what the others are held against.
declare -a names=() commands=()
way() {
  names+=("$1")
  commands+=("$2")
}
build native
build arm64 GOARCH=arm64 GOOS=linux
way native "$work/native"
way no-vectors "env GODEBUG=cpu.all=off $work/native"
case $(go env GOARCH) in
arm64)
  if [ "$(go env GOOS)" = darwin ] && /usr/bin/arch -x86_64 /usr/bin/true 2>/dev/null; then
    build amd64 GOARCH=amd64
    way amd64 "/usr/bin/arch -x86_64 $work/amd64"
  fi
  ;;
*)
  if grep -qw avx2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo && grep -qw bmi2 /proc/cpuinfo; then
    build fused GOAMD64=v3
    way fused "$work/fused"
  fi
  if ! command -v qemu-aarch64-static >/dev/null; then
    echo "same_bytes: no qemu-aarch64-static (install qemu-user-static)" >&2
    exit 1
  fi
  way arm64 "qemu-aarch64-static $work/arm64"
  ;;
esac

flags=(
  ""
  "--chunks 2 --functions decode,prefill:16 --kv state --embed graph --head logits"
  "--compute f32 --functions decode --residual-scale 0.25"
)
for c in "${!all[@]}"; do
  checkpoint=${all[$c]}
  for f in "${flags[@]}"; do
    # Other flags on the first two only: they decide no number.
    [ "$c" -lt 2 ] || [ -z "$f" ] || continue
    rm -rf "$work/want"
    for i in "${!names[@]}"; do
      out=$work/got
      [ "$i" -gt 0 ] || out=$work/want
      rm -rf "$out"
      # shellcheck disable=SC2086 # words of a command
      if ! ${commands[$i]} convert "$checkpoint" -o "$out" $f >"$work/log" 2>&1; then
        cat "$work/log"
        echo "FAILED ${names[$i]}: convert $checkpoint $f"
        status=1
        break
      fi
      [ "$i" -gt 0 ] || continue
      if ! diff -r "$work/want" "$out"; then
        echo "DIFFERS ${names[$i]} from ${names[0]}: convert $checkpoint $f"
        status=1
      fi
    done
    echo "$checkpoint $f: $(find "$work/want" -type f 2>/dev/null | wc -l) files, ${names[*]}"
  done
done
exit $status
