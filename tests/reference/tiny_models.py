"""The small random-weight models that npud is compared with Hugging Face transformers on: one entry each, by architecture.

The shapes are chosen so that what differs between models shows: grouped heads of 1, 2, 4 and 8, windows smaller and larger
than the prompt, odd orders of layer types, tied and separate output matrices, biases, rope scaling, softcapped logits.
"""
from transformers import Gemma3TextConfig, Gemma4TextConfig, LlamaConfig, Qwen2Config, Qwen3Config

VOCAB = 96
CONTEXT = 512


def common(**changes):
    options = dict(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    options.update(changes)
    return options


def llama(**changes):
    return LlamaConfig(**common(**(dict(rms_norm_eps=1e-5, tie_word_embeddings=True) | changes)))


def qwen2(**changes):
    return Qwen2Config(**common(rms_norm_eps=1e-6, **changes))


def qwen3(**changes):
    return Qwen3Config(**common(rms_norm_eps=1e-6, **changes))


def gemma3(layer_types, sliding_window, **changes):
    options = dict(
        layer_types=layer_types,
        num_hidden_layers=len(layer_types),
        sliding_window=sliding_window,
        query_pre_attn_scalar=32,
    )
    options.update(changes)
    return Gemma3TextConfig(**common(**options))


def gemma4(layer_types, sliding_window, **changes):
    options = dict(
        layer_types=layer_types,
        num_hidden_layers=len(layer_types),
        sliding_window=sliding_window,
        global_head_dim=64,
        vocab_size_per_layer_input=VOCAB,
        hidden_size_per_layer_input=32,
    )
    options.update(changes)
    return Gemma4TextConfig(**common(**options))


S, F = "sliding_attention", "full_attention"

LLAMA3_ROPE = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)

# name: (architecture in the GGUF file, configuration)
MODELS = {
    "llama": ("llama", lambda: llama()),
    "llama-mha-untied": ("llama", lambda: llama(num_key_value_heads=4, tie_word_embeddings=False)),
    "llama-mqa-llama3-rope": (
        "llama",
        lambda: llama(num_attention_heads=8, num_key_value_heads=1, rope_parameters=LLAMA3_ROPE),
    ),
    "llama-linear-rope-bias": (
        "llama",
        lambda: llama(
            attention_bias=True,
            mlp_bias=True,
            rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0),
        ),
    ),
    "qwen2": ("qwen2", lambda: qwen2(rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "qwen2-mqa-tied": (
        "qwen2",
        lambda: qwen2(num_attention_heads=8, num_key_value_heads=1, tie_word_embeddings=True),
    ),
    "qwen3": ("qwen3", lambda: qwen3(rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "qwen3-mqa-tied": (
        "qwen3",
        lambda: qwen3(num_attention_heads=8, num_key_value_heads=1, tie_word_embeddings=True),
    ),
    "gemma3": ("gemma3", lambda: gemma3([S, S, S, S, S, F, S], 8)),
    "gemma3-wide-window": ("gemma3", lambda: gemma3([S, S, F, S, S, F], 64, num_key_value_heads=4)),
    "gemma3-odd-layers": (
        "gemma3",
        lambda: gemma3([F, S, S, F, F], 5, num_attention_heads=8, num_key_value_heads=1),
    ),
    "gemma3-softcap": ("gemma3", lambda: gemma3([S, F, S], 8, final_logit_softcapping=3.0, tie_word_embeddings=False)),
    # Sharing of 0, 1 and many layers; with and without per-layer embeddings; keys as values; double width.
    "gemma4": (
        "gemma4",
        lambda: gemma4([S, S, F, S, S, F], 8, num_kv_shared_layers=3, use_double_wide_mlp=True, final_logit_softcapping=4.0),
    ),
    "gemma4-no-sharing": ("gemma4", lambda: gemma4([S, S, F], 64, num_attention_heads=8, num_key_value_heads=1)),
    "gemma4-one-shared": (
        "gemma4",
        lambda: gemma4([S, F, S, F], 8, num_kv_shared_layers=1, num_key_value_heads=4, hidden_size_per_layer_input=64),
    ),
    "gemma4-odd-sharing": ("gemma4", lambda: gemma4([F, S, S, S, F, S, F], 5, num_kv_shared_layers=4)),
    "gemma4-keys-as-values": (
        "gemma4",
        lambda: gemma4(
            [S, F, S, F],
            8,
            attention_k_eq_v=True,
            num_global_key_value_heads=1,
            hidden_size_per_layer_input=0,
            final_logit_softcapping=4.0,
        ),
    ),
}
