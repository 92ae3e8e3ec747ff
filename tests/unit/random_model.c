#include "random_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_writer.h"
#include "npu/dequantize.h"
#include "npu/half.h"

const struct random_model_config random_model_default = {.architecture = "llama",
                                                         .n_layers = 2,
                                                         .n_embd = 64,
                                                         .n_heads = 4,
                                                         .n_kv_heads = 2,
                                                         .head_size = 32,
                                                         .n_ff = 96,
                                                         .n_vocab = 61,
                                                         .seed = 1};

uint32_t random_bits(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

float random_float(uint32_t *state)
{
    return (float)(int32_t)random_bits(state) * 0x1p-31f;
}

/* Where a block's half-precision scales stand; -1: it has no more. */
static void scale_offsets(uint32_t type, int offsets[2])
{
    offsets[0] = 0;
    offsets[1] = -1;
    switch (type) {
    case TENSOR_Q4_1:
    case TENSOR_Q5_1:
    case TENSOR_Q4_K:
    case TENSOR_Q5_K:
        offsets[1] = 2;
        break;
    case TENSOR_Q2_K:
        offsets[0] = 80;
        offsets[1] = 82;
        break;
    case TENSOR_Q3_K:
        offsets[0] = 108;
        break;
    case TENSOR_Q6_K:
        offsets[0] = 208;
        break;
    default:
        break;
    }
}

static void put_scales(uint32_t type, uint8_t *block, float d, float m)
{
    int offsets[2];
    scale_offsets(type, offsets);
    uint16_t half = float_to_half(d);
    memcpy(block + offsets[0], &half, 2);
    half = float_to_half(m);
    if (offsets[1] >= 0)
        memcpy(block + offsets[1], &half, 2);
}

/* Gives each sub-block of a K type a minimum that equals its scale, so that centered_minimum centers all of them. */
static void pair_minima(uint32_t type, uint8_t *block)
{
    uint8_t *scales = type == TENSOR_Q2_K ? block : block + 4;
    for (int i = 0; type == TENSOR_Q2_K && i < 16; i++)
        scales[i] = (uint8_t)((scales[i] & 15) * 17);
    for (int i = 0; (type == TENSOR_Q4_K || type == TENSOR_Q5_K) && i < 4; i++) {
        scales[4 + i] = scales[i];
        scales[8 + i] = (uint8_t)((scales[8 + i] & 15) * 17);
    }
}

/* The minimum that makes a block of scale 1 average zero: minima are added in Q4_1 and Q5_1, taken off in the K types. */
static float centered_minimum(uint32_t type)
{
    switch (type) {
    case TENSOR_Q4_1:
        return -7.5f;
    case TENSOR_Q5_1:
        return -15.5f;
    case TENSOR_Q2_K:
        return 1.5f;
    case TENSOR_Q4_K:
        return 7.5f;
    default:
        return 15.5f;
    }
}

/* A block of random bits, with scales that bring its values into the range. Blocks are centered, or their scale's sign
 * is random: weights with a common offset would drown everything else that a model computes. */
static void random_block(uint32_t type, uint8_t *block, float spread, uint32_t *state)
{
    int bytes = tensor_type_block_bytes(type), elements = tensor_type_block_elements(type);
    float values[256], largest = 0.0f, minimum = centered_minimum(type);
    for (int i = 0; i < bytes; i++)
        block[i] = (uint8_t)(random_bits(state) >> 11);
    pair_minima(type, block);
    put_scales(type, block, 1.0f, minimum);
    dequantize_row(type, block, values, elements);
    for (int i = 0; i < elements; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    float factor = spread * (1.0f + 0.5f * random_float(state)) / (largest > 0.0f ? largest : 1.0f);
    if (random_float(state) < 0.0f)
        factor = -factor;
    put_scales(type, block, factor, factor * minimum);
}

uint8_t *random_rows(uint32_t type, int64_t n_in, int64_t n_rows, float spread, uint32_t *state, size_t *ret_bytes)
{
    int64_t n = n_in * n_rows, elements = tensor_type_block_elements(type), block_bytes = tensor_type_block_bytes(type);
    assert_true(n_in % elements == 0 && dequantize_supported(type));
    *ret_bytes = (size_t)(n / elements * block_bytes);
    uint8_t *bytes = malloc(*ret_bytes + 1);
    assert_non_null(bytes);
    for (int64_t i = 0; i < n / elements; i++) {
        uint8_t *at = bytes + i * block_bytes;
        float value = elements == 1 ? spread * random_float(state) : 0.0f;
        uint16_t half = type == TENSOR_F16 ? float_to_half(value) : float_to_bfloat16(value);
        if (type == TENSOR_F32)
            memcpy(at, &value, 4);
        else if (type == TENSOR_F16 || type == TENSOR_BF16)
            memcpy(at, &half, 2);
        else
            random_block(type, at, spread, state);
    }
    return bytes;
}

struct making {
    const struct random_model_config *config;
    const char *architecture;
    struct gguf_writer writer;
    uint32_t state;
};

static void add_key(struct making *making, const char *key, uint32_t value)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", making->architecture, key);
    write_u32(&making->writer, name, value);
}

/* Rows from `period` on repeat the first ones; 0: none does. */
static void add_matrix(struct making *making, uint32_t type, uint32_t n_in, uint32_t n_out, uint32_t period,
                       const char *name)
{
    size_t bytes;
    int64_t dims[2] = {n_in, n_out};
    /* So that a product of unit inputs is about as large as they are. */
    uint8_t *rows = random_rows(type, n_in, n_out, 1.7f / sqrtf((float)n_in), &making->state, &bytes);
    for (uint32_t i = period; period > 0 && i < n_out; i++)
        memcpy(rows + bytes / n_out * i, rows + bytes / n_out * (i % period), bytes / n_out);
    write_tensor(&making->writer, name, type, 2, dims, rows, bytes);
    free(rows);
}

static void add_vector(struct making *making, uint32_t n, float center, float spread, const char *name)
{
    int64_t dims[1] = {n};
    float *values = malloc(n * sizeof *values);
    assert_non_null(values);
    for (uint32_t i = 0; i < n; i++)
        values[i] = center + spread * random_float(&making->state);
    write_tensor(&making->writer, name, TENSOR_F32, 1, dims, values, n * sizeof *values);
    free(values);
}

static void add_layer_matrix(struct making *making, uint32_t layer, const char *name, uint32_t type, uint32_t n_in,
                             uint32_t n_out)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s.weight", layer, name);
    add_matrix(making, type, n_in, n_out, 0, full);
    snprintf(full, sizeof full, "blk.%u.%s.bias", layer, name);
    if (making->config->biases)
        add_vector(making, n_out, 0.0f, 0.5f, full);
}

static void add_layer_vector(struct making *making, uint32_t layer, const char *name, uint32_t n, float center)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s.weight", layer, name);
    add_vector(making, n, center, 0.3f * center, full);
}

static void add_layer_norm(struct making *making, uint32_t layer, const char *name, uint32_t n)
{
    add_layer_vector(making, layer, name, n, 1.0f);
}

/* What only Gemma 4's layers have. Its attention is not scaled: norms keep it from one-hot choices. */
static void add_gemma4_parts(struct making *making, uint32_t layer, uint32_t head_size)
{
    const struct random_model_config *c = making->config;
    add_layer_vector(making, layer, "attn_q_norm", head_size, 0.4f);
    add_layer_vector(making, layer, "attn_k_norm", head_size, 0.4f);
    add_layer_matrix(making, layer, "inp_gate", c->matrix_type, c->n_embd, c->n_per_layer);
    add_layer_matrix(making, layer, "proj", c->matrix_type, c->n_per_layer, c->n_embd);
    add_layer_norm(making, layer, "post_norm", c->n_embd);
    add_layer_vector(making, layer, "layer_output_scale", 1, 0.8f);
}

static void add_layer(struct making *making, uint32_t layer)
{
    const struct random_model_config *c = making->config;
    bool gemma4 = strcmp(making->architecture, "gemma4") == 0,
         gemma = gemma4 || strcmp(making->architecture, "gemma3") == 0,
         head_norms = (gemma && !gemma4) || strcmp(making->architecture, "qwen3") == 0;
    uint32_t head_size = gemma4 && layer % 2 == 1 ? 2 * c->head_size : c->head_size;
    uint32_t n_query = c->n_heads * head_size, n_kv = c->n_kv_heads * head_size;
    add_layer_norm(making, layer, "attn_norm", c->n_embd);
    add_layer_matrix(making, layer, "attn_q", c->matrix_type, c->n_embd, n_query);
    add_layer_matrix(making, layer, "attn_k", c->matrix_type, c->n_embd, n_kv);
    add_layer_matrix(making, layer, "attn_v", c->matrix_type, c->n_embd, n_kv);
    add_layer_matrix(making, layer, "attn_output", c->matrix_type, n_query, c->n_embd);
    if (head_norms) {
        add_layer_norm(making, layer, "attn_q_norm", c->head_size);
        add_layer_norm(making, layer, "attn_k_norm", c->head_size);
    }
    if (gemma) {
        add_layer_norm(making, layer, "post_attention_norm", c->n_embd);
        add_layer_norm(making, layer, "post_ffw_norm", c->n_embd);
    }
    if (gemma4)
        add_gemma4_parts(making, layer, head_size);
    add_layer_norm(making, layer, "ffn_norm", c->n_embd);
    add_layer_matrix(making, layer, "ffn_gate", c->matrix_type, c->n_embd, c->n_ff);
    add_layer_matrix(making, layer, "ffn_up", c->matrix_type, c->n_embd, c->n_ff);
    add_layer_matrix(making, layer, "ffn_down", c->mixed_types ? c->down_type : c->matrix_type, c->n_ff, c->n_embd);
}

static void add_gemma4_keys(struct making *making)
{
    const struct random_model_config *c = making->config;
    add_key(making, "attention.key_length_swa", c->head_size);
    add_key(making, "attention.shared_kv_layers", c->n_shared_kv);
    add_key(making, "embedding_length_per_layer_input", c->n_per_layer);
    write_f32(&making->writer, "gemma4.final_logit_softcapping", 30.0f);
}

/* Embeddings of all layers by token, what projects the embedded input beside them, and a rope that turns a quarter. */
static void add_gemma4_tables(struct making *making)
{
    const struct random_model_config *c = making->config;
    uint32_t n_all = c->n_layers * c->n_per_layer, n_turning = c->head_size / 4;
    float factors[512];
    assert_true(c->head_size <= 512);
    for (uint32_t i = 0; i < c->head_size; i++)
        factors[i] = i < n_turning ? 1.0f : 1e30f;
    add_matrix(making, c->table_type, n_all, c->n_vocab, 0, "per_layer_token_embd.weight");
    add_matrix(making, c->matrix_type, c->n_embd, n_all, 0, "per_layer_model_proj.weight");
    add_vector(making, c->n_per_layer, 1.0f, 0.3f, "per_layer_proj_norm.weight");
    write_tensor(&making->writer, "rope_freqs.weight", TENSOR_F32, 1, (int64_t[]){c->head_size}, factors,
                 c->head_size * sizeof *factors);
}

static void add_keys(struct making *making)
{
    const struct random_model_config *c = making->config;
    bool gemma4 = strcmp(making->architecture, "gemma4") == 0;
    uint32_t head_size = gemma4 ? 2 * c->head_size : c->head_size; /* of full layers */
    char epsilon[96];
    write_string(&making->writer, "general.architecture", making->architecture);
    add_key(making, "block_count", c->n_layers);
    add_key(making, "embedding_length", c->n_embd);
    add_key(making, "context_length", 4096);
    add_key(making, "feed_forward_length", c->n_ff);
    add_key(making, "attention.head_count", c->n_heads);
    add_key(making, "attention.head_count_kv", c->n_kv_heads);
    add_key(making, "attention.key_length", head_size);
    add_key(making, "attention.value_length", head_size);
    if (gemma4)
        add_gemma4_keys(making);
    if (c->window > 0) {
        add_key(making, "attention.sliding_window", c->window);
        add_key(making, "attention.sliding_window_pattern", 2);
    }
    snprintf(epsilon, sizeof epsilon, "%s.attention.layer_norm_rms_epsilon", making->architecture);
    write_f32(&making->writer, epsilon, 1e-5f);
}

void random_model_open(struct random_model *model, const struct random_model_config *config)
{
    *model = (struct random_model){0};
    struct making making = {
        .config = config, .architecture = config->architecture, .state = config->seed * 2654435761u | 1};
    add_keys(&making);
    add_matrix(&making, config->table_type, config->n_embd, config->n_vocab, config->table_period, "token_embd.weight");
    if (config->n_per_layer > 0)
        add_gemma4_tables(&making);
    for (uint32_t layer = 0; layer < config->n_layers; layer++)
        add_layer(&making, layer);
    add_vector(&making, config->n_embd, 1.0f, 0.3f, "output_norm.weight");
    if (config->untied)
        add_matrix(&making, config->matrix_type, config->n_embd, config->n_vocab, 0, "output.weight");
    if (config->biases)
        add_vector(&making, config->n_vocab, 0.0f, 0.5f, "output.bias");
    size_t size;
    struct npu_error error = {0};
    model->bytes = gguf_writer_finish(&making.writer, &size);
    if (gguf_open_memory(&model->file, model->bytes, size, "random.gguf", &error) != NPU_OK ||
        model_create(&model->model, model->file, &error) != NPU_OK)
        fail_msg("%s", error.message);
}

void random_model_close(struct random_model *model)
{
    model_destroy(model->model);
    gguf_close(model->file);
    free(model->bytes);
    *model = (struct random_model){0};
}
