"""Writes a transformers model as a GGUF file, with the keys and tensor names that llama.cpp's conversion gives them."""
import numpy as np
from gguf import GGUFWriter

LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA_LAYER_NAMES = LAYER_NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
MODEL_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
}


def gguf_name(name: str, architecture: str) -> str:
    base, _, kind = name.rpartition(".")
    if kind == "layer_scalar":
        return f"blk.{base.split('.')[2]}.layer_output_scale.weight"
    if base in MODEL_NAMES:
        return f"{MODEL_NAMES[base]}.{kind}"
    names = GEMMA_LAYER_NAMES if architecture.startswith("gemma") else LAYER_NAMES
    _, _, layer, rest = base.split(".", 3)
    return f"blk.{layer}.{names[rest]}.{kind}"


def neighbours_turn(values: np.ndarray, n_heads: int) -> np.ndarray:
    """Moves the halves of each head's rows next to each other: llama files turn pairs (2i, 2i+1)."""
    return values.reshape(n_heads, 2, values.shape[0] // n_heads // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def random_tensors(model) -> dict:
    """What the file holds: all parameters, and Gemma 4's scale of each layer's output."""
    scales = {name: buffer for name, buffer in model.named_buffers() if name.endswith("layer_scalar")}
    return dict(model.named_parameters()) | scales


def write_common_keys(writer: GGUFWriter, config) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def write_one_size_keys(writer: GGUFWriter, config) -> None:
    """For models whose layers are all of one size."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)


def write_rope_keys(writer: GGUFWriter, model) -> None:
    """For models with one kind of rope."""
    rope = model.config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_string(f"{writer.arch}.rope.scaling.type", "linear")
        writer.add_float32(f"{writer.arch}.rope.scaling.factor", rope["factor"])
    elif rope["rope_type"] == "llama3":
        scaled = model.model.rotary_emb.inv_freq.numpy().astype(np.float64)
        plain = rope["rope_theta"] ** (-np.arange(len(scaled)) / len(scaled))
        writer.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))


def write_gemma3_keys(writer: GGUFWriter, config) -> None:
    writer.add_sliding_window(config.sliding_window)
    writer.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    sliding = [kind == "sliding_attention" for kind in config.layer_types]
    if sliding != [(i + 1) % 6 != 0 for i in range(len(sliding))]:
        writer.add_sliding_window_pattern(sliding)
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def write_gemma4_keys(writer: GGUFWriter, config) -> None:
    arch = writer.arch
    sliding = [kind == "sliding_attention" for kind in config.layer_types]
    full, narrow = config.per_layer_config[sliding.index(False)], config.per_layer_config[sliding.index(True)]
    n_owning = config.num_hidden_layers - config.num_kv_shared_layers
    double = 2 if config.use_double_wide_mlp else 1
    writer.add_array(
        f"{arch}.feed_forward_length",
        [config.intermediate_size * (1 if i < n_owning else double) for i in range(config.num_hidden_layers)],
    )
    writer.add_array(
        f"{arch}.attention.head_count_kv",
        [(narrow if s else full).num_key_value_heads for s in sliding],
    )
    writer.add_uint32(f"{arch}.attention.key_length", full.head_dim)
    writer.add_uint32(f"{arch}.attention.value_length", full.head_dim)
    writer.add_uint32(f"{arch}.attention.key_length_swa", narrow.head_dim)
    writer.add_uint32(f"{arch}.attention.value_length_swa", narrow.head_dim)
    writer.add_uint32(f"{arch}.rope.dimension_count", full.head_dim)
    writer.add_uint32(f"{arch}.rope.dimension_count_swa", narrow.head_dim)
    writer.add_float32(f"{arch}.rope.freq_base", config.rope_parameters["full_attention"]["rope_theta"])
    writer.add_float32(f"{arch}.rope.freq_base_swa", config.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_uint32(f"{arch}.attention.sliding_window", config.sliding_window)
    writer.add_array(f"{arch}.attention.sliding_window_pattern", sliding)
    writer.add_uint32(f"{arch}.attention.shared_kv_layers", config.num_kv_shared_layers)
    writer.add_uint32(f"{arch}.embedding_length_per_layer_input", config.hidden_size_per_layer_input)
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    turning = int(full.head_dim * config.rope_parameters["full_attention"]["partial_rotary_factor"] / 2)
    factors = [1.0] * turning + [1e30] * (full.head_dim // 2 - turning)
    writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))


def export(model, architecture: str, path: str) -> None:
    config = model.config
    writer = GGUFWriter(path, architecture)
    write_common_keys(writer, config)
    if architecture == "gemma4":
        write_gemma4_keys(writer, config)
    else:
        write_one_size_keys(writer, config)
        if architecture == "gemma3":
            write_gemma3_keys(writer, config)
        else:
            write_rope_keys(writer, model)
    for name, parameter in random_tensors(model).items():
        values = parameter.detach().numpy()
        target = gguf_name(name, architecture)
        if architecture == "llama" and (".attn_q." in target or ".attn_k." in target):
            heads = config.num_attention_heads if ".attn_q." in target else config.num_key_value_heads
            values = neighbours_turn(values, heads)
        if architecture == "gemma3" and "norm" in target:
            values = values + np.float32(1.0)
        writer.add_tensor(target, np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
