#!/usr/bin/env python3
"""Makes tests/data/tokenizer: what Hugging Face's tokenizers give for the corpus, which the unit tests expect of npud.

    make_tokenizer_fixture.py SMOLLM2.gguf OUTPUT_DIR     (PyPI: tokenizers, gguf)

Writes
- small.gguf: a vocabulary only, cut from SmolLM2's: its control tokens, all 256 bytes, its first merges, some merges of
  digits, and a few words that no merge makes (found only where the pre-tokenizer says that whole words come first);
- corpus.json: the cases;
- ids-PRE.json for each pre-tokenizer, with the small vocabulary;
- ids-smollm2-model.json: with the whole vocabulary of the model;
- pieces.gguf: a vocabulary of the SentencePiece kind (spaces as U+2581, byte fallback), trained on the corpus itself;
- ids-llama.json, ids-llama-prefix.json (a space is put before the text) and ids-gemma4.json, with that vocabulary.

Bytes that are not UTF-8 cannot be given to the Hugging Face library. What is expected of them: for cutting words, each
such byte is a symbol, like the U+FFFD that a decoder would put there; the words are then encoded by their real bytes,
which byte-level BPE can. So nothing is lost, and decoding gives back the same bytes. In the SentencePiece kind such a byte
is the token of that byte, and nothing merges across it.
"""

import json
import os
import sys
import unicodedata

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from tokenizer_corpus import cases

N_SMALL_MERGES = 3000
# SmolLM2 never merges digits; these make pre-tokenizers visible that leave several digits in one word.
DIGIT_MERGES = ["1 2", "12 3", "123 4", "3 4", "1 1", "11 1", "2 0", "20 2", "4 5", "Ġ 1", "Ġ1 2", "Ù ¡"]
N_PIECES = 1500
PIECE_SPECIALS = [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("<|im_start|>", 3), ("<|im_end|>", 3), ("<user>", 4)]
WHOLE_WORDS = ["Ġunmerged", "wholeword", "Ġè¯", "!?!", "ĊĊĊĊ"]

# As in the tokenizer.json of Llama 3 and of Qwen 2 and 3.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# No tokenizer.json: the patterns of llama.cpp's pre-tokenizer of that name.
DEFAULT = [r"[\p{P}\$\+<=>\^~\|]+", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)", r"\p{N}+",
           r"[0-9][0-9][0-9]"]


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def pre_tokenizer(name):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name in ("gpt-2", "smollm"))
    first = {"gpt-2": [], "smollm": [pre_tokenizers.Digits(individual_digits=True)], "llama-bpe": [split(LLAMA3)],
             "qwen2": [split(QWEN2)], "default": [split(pattern) for pattern in DEFAULT]}[name]
    return pre_tokenizers.Sequence(first + [byte_level])


def byte_map():
    printable = list(range(0x21, 0x7f)) + list(range(0xa1, 0xad)) + list(range(0xae, 0x100))
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable}
    table.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return table


BYTES = byte_map()


def build(tokens, types, merges, pre):
    model = models.BPE({token: i for i, token in enumerate(tokens)}, [tuple(merge.split(" ")) for merge in merges],
                       ignore_merges=pre == "llama-bpe")
    tokenizer = Tokenizer(model)
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizer(pre)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token, kind in zip(tokens, types) if kind == 3])
    return tokenizer


def decode_bytewise(data):
    """Text with U+FFFD for each byte that is not UTF-8, and how many bytes each character came from."""
    text, sizes, at = [], [], 0
    while at < len(data):
        for size in (1, 2, 3, 4):
            try:
                text.append(data[at:at + size].decode())
                break
            except UnicodeDecodeError:
                size = 0
        if size == 0:
            text.append("\ufffd")
        sizes.append(size or 1)
        at += size or 1
    return "".join(text), sizes


def compose(data):
    """Form C of what is UTF-8 between bytes that are not."""
    return b"".join(part if invalid else unicodedata.normalize("NFC", part.decode()).encode()
                    for part, invalid in split_invalid(data))


def encode_invalid(tokenizer, specials, data):
    """The special tokens are cut out of the bytes first; see the top of this file for the rest."""
    ids = []
    while data:
        found = [(data.find(text), -len(text), token, text) for text, token in specials.items() if text in data]
        at, _, token, text = min(found) if found else (len(data), 0, None, b"")
        part = compose(data[:at]) if tokenizer.normalizer is not None else data[:at]
        characters, sizes = decode_bytewise(part)
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + size)
        for _, (start, end) in tokenizer.pre_tokenizer.pre_tokenize_str(characters):
            word = "".join(BYTES[byte] for byte in part[starts[start]:starts[end]])
            ids += [piece.id for piece in tokenizer.model.tokenize(word)]
        if token is not None:
            ids.append(token)
        data = data[at + len(text):]
    return ids


def encode_all(tokens, types, merges, pre):
    tokenizer = build(tokens, types, merges, pre)
    specials = {token.encode(): i for i, (token, kind) in enumerate(zip(tokens, types)) if kind == 3}
    result = []
    for data, parse_special in cases():
        tokenizer.encode_special_tokens = not parse_special
        try:
            ids = tokenizer.encode(data.decode(), add_special_tokens=False).ids
            # The bytewise way must agree where both can go, or it proves nothing where only it can.
            assert not parse_special or encode_invalid(tokenizer, specials, data) == ids, (pre, data)
        except UnicodeDecodeError:
            ids = encode_invalid(tokenizer, specials, data)
        result.append(ids)
    return result


def piece_vocabulary():
    """Tokens, types and all merges: every way in which two pieces make a third, the earlier trained third first."""
    training = Tokenizer(models.BPE())
    training.normalizer = normalizers.Replace(" ", "\u2581")
    training.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n+"), "isolated")
    texts = [data.decode() for data, _ in cases() if is_utf8(data)]
    training.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=N_PIECES, show_progress=False, max_token_length=12))
    pieces = training.get_vocab()
    specials = [token for token, _ in PIECE_SPECIALS]
    pieces = [piece for piece in sorted(pieces, key=pieces.get) if piece not in specials]
    kept = set(pieces)
    merges = [f"{piece[:at]} {piece[at:]}" for piece in pieces for at in range(1, len(piece))
              if piece[:at] in kept and piece[at:] in kept]
    tokens = specials + [f"<0x{byte:02X}>" for byte in range(256)] + pieces
    types = [kind for _, kind in PIECE_SPECIALS] + [6] * 256 + [1] * len(pieces)
    return tokens, types, merges


def is_utf8(data):
    try:
        data.decode()
        return True
    except UnicodeDecodeError:
        return False


def encode_pieces(tokens, types, merges, kind):
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges], byte_fallback=True,
                                     unk_token="<unk>", fuse_unk=True))
    steps = [normalizers.Prepend("\u2581")] if kind == "llama-prefix" else []
    tokenizer.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", "\u2581")])
    if kind == "gemma4":
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n+"), "isolated")
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token, type in PIECE_SPECIALS if type != 4])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token, type in PIECE_SPECIALS if type == 4])
    result = []
    for data, parse_special in cases():
        tokenizer.encode_special_tokens = not parse_special
        if kind == "llama-prefix" and not is_utf8(data):
            result.append(None)  # where the space goes is told by the other texts
            continue
        ids = []
        for part, invalid in split_invalid(data):
            ids += [vocabulary[f"<0x{byte:02X}>"] for byte in part] if invalid else \
                tokenizer.encode(part.decode(), add_special_tokens=False).ids
        result.append(ids)
    return result


def split_invalid(data):
    """(part, is it a byte that is not UTF-8), in order."""
    characters, sizes = decode_bytewise(data)
    at, start = 0, 0
    for character, size in zip(characters, sizes):
        if character == "\ufffd" and size == 1:
            if start < at:
                yield data[start:at], False
            yield data[at:at + 1], True
            start = at + 1
        at += size
    if start < at or not data:
        yield data[start:at], False


def write_pieces(path, tokens, types, merges):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_scores([-float(i) for i in range(len(tokens))])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def write_json(path, name, value):
    with open(os.path.join(path, name), "w", encoding="ascii") as file:
        file.write("[\n" + ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in value) + "\n]\n")


def small_vocabulary(tokens, types, merges):
    kept = [token for token, kind in zip(tokens, types) if kind == 3]
    kinds = [3] * len(kept)
    merges = merges[:N_SMALL_MERGES]
    merges += [merge for merge in DIGIT_MERGES if merge not in merges]
    words = sorted(BYTES.values()) + [merge.replace(" ", "") for merge in merges]
    words += [word for word in WHOLE_WORDS if word not in words]
    return kept + words, kinds + [1] * len(words), merges


def main():
    source, output = sys.argv[1:]
    reader = gguf.GGUFReader(source)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    write_json(output, "ids-smollm2-model.json", encode_all(tokens, types, merges, "smollm"))

    tokens, types, merges = small_vocabulary(tokens, types, merges)
    writer = gguf.GGUFWriter(os.path.join(output, "small.gguf"), "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    for pre in ("gpt-2", "smollm", "llama-bpe", "qwen2", "default"):
        write_json(output, f"ids-{pre}.json", encode_all(tokens, types, merges, pre))

    tokens, types, merges = piece_vocabulary()
    write_pieces(os.path.join(output, "pieces.gguf"), tokens, types, merges)
    for kind in ("llama", "llama-prefix", "gemma4"):
        write_json(output, f"ids-{kind}.json", encode_pieces(tokens, types, merges, kind))

    corpus = []
    for data, parse_special in cases():
        case = {} if parse_special else {"parse_special": False}
        try:
            case["text"] = data.decode()
        except UnicodeDecodeError:
            case["hex"] = data.hex()
        corpus.append(case)
    write_json(output, "corpus.json", corpus)


if __name__ == "__main__":
    main()
