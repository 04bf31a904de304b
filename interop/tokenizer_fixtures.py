#!/usr/bin/env python3
"""Write the fixtures of package tokenizer with the Hugging Face library.

Every directory of tokenizer/testdata holds a small tokenizer.json, one for
each family of pipelines, and cases.jsonl, what the library makes of a few
hundred texts and id lists:

    {"t": text, "ids": [...], "special": [...]}    without and with specials
    {"ids": [...], "text": "...", "skip": "..."}   decoded, specials kept or not

testdata/tiny is a file of this project and is only recorded from; the other
vocabularies are trained here. Training breaks ties at random, so a run replaces
vocabularies and cases together.

    pip install tokenizers
    python3 interop/tokenizer_fixtures.py
"""
import json
import os
import random

from tokenizers import Tokenizer, models, trainers
from tokenizers import pre_tokenizers as pre

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tokenizer", "testdata")

WORDS = """the of and to in is it that was for on are as with his they at be this from have or by one had
not but what all were when we there can an your which their said if do will each about how up out them then
she many some so these would other into has more her two like him see time could no make than first been its
who now people my made over did down only way find use may water long little very after words called just
where most know tensor weight layer token model attention cache prefill decode""".split()
FOREIGN = "straße naïve café Ångström здравствуйте мир 你好世界 こんにちは 안녕하세요 مرحبا שלום नमस्ते Việt Nam".split()
CODE = ["def f(x):\n    return x**2\n", "for (int i=0;i<10;i++) {\n\tprintf(\"%d\\n\", i);\n}\n",
        "<div class=\"a\">&nbsp;</div>", "x->y::z<T>&&", "\tif err != nil {\r\n\t\treturn err\r\n\t}"]
SPACES = [chr(c) for c in (9, 10, 11, 13, 32, 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x3000)]
ODD = ["\u200b", "\u200d", "\ufeff", "\ufffd", "\0", "\x7f", "\uffff", "\U0010ffff", "\u034f", "▁", "Ġ", "ſ",
       "İ", "ﬆ", "\U00011935\U00011930", "\u1c89", "👨‍👩‍👧", "🏳️‍🌈", "👍🏽", "🇩🇪", "1️⃣", "<0x41>", "٣٤", "Ⅻ½"]
QUOTES = ["'s", "'S", "'ſt", "'re", "'VE", "'ll", "'d", "''m", "’s", "'l"]
MARKS = ["\u0300", "\u0301", "\u0308", "\u0323", "\u0327", "\u0345", "\u0334", "\u08d3"]

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def corpus():
    r = random.Random(1)
    for _ in range(400):
        yield " ".join(r.choice(WORDS + FOREIGN if r.random() < .2 else WORDS) for _ in range(12)) + ".\n"
    yield from CODE * 20


def fragment(r, specials):
    kind = r.randrange(15)
    if kind == 0:
        return "".join(r.choice(SPACES) for _ in range(r.randint(1, 4)))
    if kind == 1:
        return r.choice([" ", "\n", "\r\n", "\t", " \n"]) * r.randint(1, 6)
    if kind == 2:
        return r.choice(CODE)
    if kind == 3:
        return r.choice(QUOTES)
    if kind == 4:
        return r.choice(ODD)
    if kind == 5:
        return r.choice("aeoAЕº") + "".join(r.choice(MARKS) for _ in range(r.choice([1, 2, 4, 33])))
    if kind == 6:
        return "".join(r.choice("ᄀᄂ가각ᅡᅵᆨᆫ") for _ in range(4))
    if kind in (7, 8) and specials:
        return r.choice(specials)
    if kind == 9 and specials:
        return r.choice(specials)[:-1]
    if kind == 10:
        return str(r.randrange(10 ** r.randint(1, 9)))
    if kind == 11:
        return r.choice(FOREIGN)
    if kind == 12:
        return r.choice("!#$%()*+,-./:;=?@[]_{|}~") * r.randint(1, 3)
    return r.choice(["", " "]) + r.choice(WORDS)


def record(name, lines=150):
    path = os.path.join(ROOT, name)
    tok = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    with open(os.path.join(path, "tokenizer.json"), encoding="utf-8") as f:
        specials = [t["content"] for t in json.load(f)["added_tokens"]]
    r = random.Random(name)
    top = tok.get_vocab_size()
    with open(os.path.join(path, "cases.jsonl"), "w", encoding="utf-8") as f:
        for i in range(lines):
            text = "".join(fragment(r, specials) for _ in range(i % 9))
            ids = tok.encode(text, add_special_tokens=False).ids
            with_specials = tok.encode(text, add_special_tokens=True).ids
            f.write(json.dumps({"t": text, "ids": ids, "special": with_specials}) + "\n")
            mixed = [r.randrange(top + 2) for _ in range(i % 9)]
            for some in (with_specials, mixed):
                f.write(json.dumps({"ids": some, "text": tok.decode(some, skip_special_tokens=False),
                                    "skip": tok.decode(some, skip_special_tokens=True)}) + "\n")


def train(split, size, **options):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = split
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=size, show_progress=False, **options))
    return json.loads(tok.to_str())["model"]


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated"):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def sequence(field, *parts):
    return {"type": "Sequence", field: list(parts)}


def template(bos, bos_id):
    piece = {"SpecialToken": {"id": bos, "type_id": 0}}
    a, b = ({"Sequence": {"id": x, "type_id": 0}} for x in "AB")
    return {"type": "TemplateProcessing", "single": [piece, a], "pair": [piece, a, piece, b],
            "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}}}


def write(name, model, tokens, **parts):
    """tokens: (content, flags) pairs; ids follow the library's rule."""
    spec = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None, **parts, "model": model}
    following = len(model["vocab"])
    for content, flags in tokens:
        at = model["vocab"].get(content)
        if at is None:
            at, following = following, following + 1
        spec["added_tokens"].append({"id": at, "content": content, **{
            flag: flag in flags for flag in ("single_word", "lstrip", "rstrip", "normalized", "special")}})
    os.makedirs(os.path.join(ROOT, name), exist_ok=True)
    with open(os.path.join(ROOT, name, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(spec, f, ensure_ascii=False, indent=0)
    record(name)


def main():
    alphabet = pre.ByteLevel.alphabet()
    gpt2 = pre.ByteLevel(add_prefix_space=False)
    special = ["special"]

    model = train(gpt2, 700, initial_alphabet=alphabet)
    model["ignore_merges"] = True
    # A token that no merge reaches: only ignore_merges can yield it.
    model["vocab"]["Ġtransformer"] = len(model["vocab"])
    model["merges"] = [" ".join(pair) for pair in model["merges"]]
    bos = len(model["vocab"])
    write("llama-like", model, [("<|begin_of_text|>", special), ("<|eot_id|>", special)],
          pre_tokenizer=sequence("pretokenizers", split({"Regex": CL100K % "{1,3}"}), byte_level()),
          post_processor=sequence("processors", byte_level(True), template("<|begin_of_text|>", bos)),
          decoder=byte_level(True, True))

    model = train(gpt2, 700, initial_alphabet=alphabet)
    model.update(continuing_subword_prefix="", end_of_word_suffix="")
    write("qwen-like", model, [
        ("<|im_start|>", special), ("<|im_end|>", special), ("<think>", []), ("<mask>", ["lstrip", "special"]),
        ("<sep>", ["rstrip", "special"]), ("kvcache", ["single_word"]), ("E\u0301", ["normalized", "special"]),
        ("Ünï", ["normalized", "lstrip", "rstrip"]), ("  ", ["rstrip", "lstrip"])],
          normalizer={"type": "NFC"},
          pre_tokenizer=sequence("pretokenizers", split({"Regex": CL100K % ""}), byte_level()),
          post_processor=byte_level(), decoder=byte_level())

    metaspace = pre.Metaspace()
    bytes_ = ["<0x%02X>" % b for b in range(256)]
    model = train(metaspace, 900, special_tokens=["<pad>", "<eos>", "<bos>", "<unk>"] + bytes_)
    model.update(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    write("gemma-like", model, [
        ("<pad>", special), ("<eos>", special), ("<bos>", special), ("<unk>", special),
        ("<start_of_turn>", special), ("\n\n", []), ("\n\n\n", []), ("<div>", []), ("▁▁", [])],
          normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
          pre_tokenizer=split({"String": " "}, "MergedWithPrevious"),
          post_processor=template("<bos>", 2),
          decoder=sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                           {"type": "ByteFallback"}, {"type": "Fuse"}))
    write("llama2-like", model, [("<bos>", special), ("<eos>", special)],
          normalizer=sequence("normalizers", {"type": "Prepend", "prepend": "▁"},
                              {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
          post_processor=template("<bos>", 2),
          decoder=sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                           {"type": "ByteFallback"}, {"type": "Fuse"},
                           {"type": "Strip", "content": " ", "start": 1, "stop": 0}))

    model = train(metaspace, 500, special_tokens=["<unk>"], limit_alphabet=80)
    model.update(unk_token="<unk>", fuse_unk=False)
    spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
    write("metaspace", model, [("<unk>", special), ("<s>", ["rstrip", "special"])],
          normalizer=sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}),
          pre_tokenizer=spaces, decoder=spaces)

    model = train(pre.WhitespaceSplit(), 500, limit_alphabet=80, end_of_word_suffix="</w>",
                  continuing_subword_prefix="@@", special_tokens=["<unk>"])
    model.update(unk_token="<unk>")
    write("affixes", model, [("<unk>", special)], normalizer={"type": "NFD"},
          pre_tokenizer=sequence("pretokenizers", {"type": "Digits", "individual_digits": False},
                                 {"type": "Whitespace"}),
          decoder={"type": "BPEDecoder", "suffix": "</w>"})
    record("tiny")


if __name__ == "__main__":
    main()
