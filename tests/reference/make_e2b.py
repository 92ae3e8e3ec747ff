#!/usr/bin/env python3
"""Writes a GGUF of Gemma 4 E2B's dimensions with random weights in Q4_0 (about 2.6 GB): to see how a model of that size loads
and decodes without having its weights. Its tokenizer knows bytes and little else; token ids can be given, too.

    make_e2b.py OUTPUT.gguf     (PyPI: gguf)"""

import sys

import gguf
import numpy as np

# As in the model's config.json.
VOCABULARY, EMBEDDING, LAYERS, PER_LAYER = 262144, 1536, 35, 256
HEADS, KV_HEADS, SLIDING_HEAD, FULL_HEAD, WINDOW = 8, 1, 256, 512, 512
FEED_FORWARD, SHARING = 6144, 20  # layers that share K/V have twice that width
CONTEXT, SOFTCAP, EPSILON = 131072, 30.0, 1e-6

BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])  # Q4_0: 32 elements
NIBBLE_DEVIATION = 4.61  # of nibble - 8


def is_full(layer):
    return layer % 5 == 4


def owns_kv(layer):
    return layer < LAYERS - SHARING


def tensors():
    """(name, n_in, n_out) of every tensor; vectors have n_out None."""
    n_all = LAYERS * PER_LAYER
    yield "token_embd.weight", EMBEDDING, VOCABULARY
    yield "per_layer_token_embd.weight", n_all, VOCABULARY
    yield "per_layer_model_proj.weight", EMBEDDING, n_all
    yield "per_layer_proj_norm.weight", PER_LAYER, None
    yield "output_norm.weight", EMBEDDING, None
    for layer in range(LAYERS):
        head = FULL_HEAD if is_full(layer) else SLIDING_HEAD
        width = FEED_FORWARD if owns_kv(layer) else 2 * FEED_FORWARD
        matrices = [("attn_q", EMBEDDING, HEADS * head), ("attn_output", HEADS * head, EMBEDDING),
                    ("ffn_gate", EMBEDDING, width), ("ffn_up", EMBEDDING, width), ("ffn_down", width, EMBEDDING),
                    ("inp_gate", EMBEDDING, PER_LAYER), ("proj", PER_LAYER, EMBEDDING)]
        vectors = [("attn_norm", EMBEDDING), ("attn_q_norm", head), ("post_attention_norm", EMBEDDING),
                   ("ffn_norm", EMBEDDING), ("post_ffw_norm", EMBEDDING), ("post_norm", EMBEDDING),
                   ("layer_output_scale", 1)]
        if owns_kv(layer):
            matrices += [("attn_k", EMBEDDING, KV_HEADS * head), ("attn_v", EMBEDDING, KV_HEADS * head)]
            vectors += [("attn_k_norm", head)]
        for name, n_in, n_out in matrices:
            yield f"blk.{layer}.{name}.weight", n_in, n_out
        for name, n in vectors:
            yield f"blk.{layer}.{name}.weight", n, None


def write_keys(writer):
    full = [is_full(layer) for layer in range(LAYERS)]
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_key_length(FULL_HEAD)
    writer.add_value_length(FULL_HEAD)
    writer.add_final_logit_softcapping(SOFTCAP)
    writer.add_sliding_window(WINDOW)
    for key, value in [("attention.key_length_swa", SLIDING_HEAD), ("attention.value_length_swa", SLIDING_HEAD),
                       ("rope.dimension_count", FULL_HEAD), ("rope.dimension_count_swa", SLIDING_HEAD),
                       ("attention.shared_kv_layers", SHARING), ("embedding_length_per_layer_input", PER_LAYER)]:
        writer.add_uint32(f"gemma4.{key}", value)
    writer.add_float32("gemma4.rope.freq_base", 1e6)
    writer.add_float32("gemma4.rope.freq_base_swa", 1e4)
    writer.add_array("gemma4.attention.sliding_window_pattern", [not f for f in full])
    writer.add_array("gemma4.feed_forward_length",
                     [FEED_FORWARD if owns_kv(layer) else 2 * FEED_FORWARD for layer in range(LAYERS)])


def write_tokenizer(writer):
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)] + ["a", "b", "ab"]
    types = [3] * 4 + [6] * 256 + [1] * 3
    n_filled = VOCABULARY - len(tokens)
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list(tokens + [f"<word {i}>" for i in range(n_filled)])
    writer.add_token_types(types + [1] * n_filled)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)


def random_blocks(random, n_in, n_out):
    """Rows that make of unit inputs about unit outputs; the signs of the scales keep them from a common offset."""
    blocks = np.empty(n_in // 32 * n_out, BLOCK)
    blocks["nibbles"] = np.frombuffer(random.bytes(16 * len(blocks)), np.uint8).reshape(-1, 16)
    scale = 1.0 / (NIBBLE_DEVIATION * np.sqrt(n_in))
    signs = random.integers(0, 2, len(blocks), np.int8) * 2 - 1
    blocks["scale"] = signs.astype(np.float16) * np.float16(scale)
    return blocks.view(np.uint8)


def random_vector(random, name, n):
    """Norms' weights. Attention is not scaled: small norms of queries and keys keep it from one-hot choices. What a layer
    adds is small beside what it adds to, as in trained models; else rounding would grow from layer to layer."""
    center = 0.3 if "_q_norm" in name or "_k_norm" in name else 0.2 if "post_" in name else 1.0
    return (center * (1.0 + 0.1 * random.standard_normal(n))).astype(np.float32)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    random = np.random.default_rng(4)
    writer = gguf.GGUFWriter(sys.argv[1], "gemma4")
    write_keys(writer)
    write_tokenizer(writer)
    turning = FULL_HEAD // 8  # a quarter of the pairs
    factors = np.array([1.0] * turning + [1e30] * (FULL_HEAD // 2 - turning), np.float32)
    writer.add_tensor_info("rope_freqs.weight", factors.shape, factors.dtype, factors.nbytes)
    for name, n_in, n_out in tensors():
        if n_out is None:
            writer.add_tensor_info(name, (n_in,), np.dtype(np.float32), 4 * n_in)
        else:
            row_bytes = n_in // 32 * BLOCK.itemsize
            writer.add_tensor_info(name, (n_out, row_bytes), np.dtype(np.uint8), n_out * row_bytes,
                                   raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.write_tensor_data(factors)
    for name, n_in, n_out in tensors():
        writer.write_tensor_data(random_vector(random, name, n_in) if n_out is None else random_blocks(random, n_in, n_out))
    writer.close()


if __name__ == "__main__":
    main()
