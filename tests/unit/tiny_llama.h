/* A llama of a few thousand random F32 weights, made in memory; the same seed gives the same bits everywhere. Fields of
 * the configuration let a test leave something out or spoil it. */
#ifndef TESTS_TINY_LLAMA_H
#define TESTS_TINY_LLAMA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "gguf_writer.h"
#include "npu/gguf.h"
#include "npu/model.h"

struct tiny_llama_config {
    uint32_t n_layers, n_embd, n_heads, n_kv_heads, n_ff, n_vocab, context;
    bool untied; /* write output.weight */
    bool query_bias; /* write attn_q.bias */
    uint32_t seed;
    const char *architecture; /* NULL: llama */
    const char *without_key; /* a key to leave out */
    const char *without_tensor; /* a tensor to leave out */
    const char *misshaped; /* a tensor that gets one row too many */
    const char *odd_type; /* a tensor that is written as type 39 (MXFP4), which nothing here computes with */
    void (*extra)(struct gguf_writer *writer); /* writes more keys */
};

static const struct tiny_llama_config tiny_llama_default = {
    .n_layers = 2, .n_embd = 32, .n_heads = 4, .n_kv_heads = 2, .n_ff = 64, .n_vocab = 61, .context = 512, .seed = 1};

struct tiny_llama {
    uint8_t *bytes;
    size_t size;
    struct gguf_file *file;
    struct model *model;
};

/* Uniform in [-1, 1), from a 32-bit xorshift. */
static inline float tiny_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return (float)(int32_t)*state * 0x1p-31f;
}

static inline bool tiny_is(const char *chosen, const char *name)
{
    return chosen != NULL && strcmp(chosen, name) == 0;
}

static inline void tiny_key(const struct tiny_llama_config *config, struct gguf_writer *writer, const char *key,
                            uint32_t value)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", config->architecture ? config->architecture : "llama", key);
    if (!tiny_is(config->without_key, name))
        write_u32(writer, name, value);
}

/* rows 1: a vector. Values are center + spread * uniform. */
static inline void tiny_tensor(const struct tiny_llama_config *config, struct gguf_writer *writer, uint32_t *state,
                               int64_t n_in, int64_t rows, float center, float spread, const char *format, ...)
{
    char name[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    if (tiny_is(config->without_tensor, name))
        return;
    bool vector = rows == 1;
    if (tiny_is(config->misshaped, name))
        rows++;
    size_t n = (size_t)(n_in * rows);
    float *values = malloc(n * sizeof *values);
    if (values == NULL)
        abort();
    for (size_t i = 0; i < n; i++)
        values[i] = center + spread * tiny_random(state);
    int64_t dims[2] = {n_in, rows};
    if (tiny_is(config->odd_type, name))
        write_tensor(writer, name, 39, vector && rows == 1 ? 1 : 2, dims, values, n / 32 * 17);
    else
        write_tensor(writer, name, TENSOR_F32, vector && rows == 1 ? 1 : 2, dims, values, n * sizeof *values);
    free(values);
}

static inline uint8_t *tiny_llama_bytes(const struct tiny_llama_config *config, size_t *ret_size)
{
    struct gguf_writer writer = {0};
    const char *architecture = config->architecture ? config->architecture : "llama";
    if (!tiny_is(config->without_key, "general.architecture"))
        write_string(&writer, "general.architecture", architecture);
    tiny_key(config, &writer, "block_count", config->n_layers);
    tiny_key(config, &writer, "embedding_length", config->n_embd);
    tiny_key(config, &writer, "context_length", config->context);
    tiny_key(config, &writer, "feed_forward_length", config->n_ff);
    tiny_key(config, &writer, "attention.head_count", config->n_heads);
    tiny_key(config, &writer, "attention.head_count_kv", config->n_kv_heads);
    char epsilon[96];
    snprintf(epsilon, sizeof epsilon, "%s.attention.layer_norm_rms_epsilon", architecture);
    if (!tiny_is(config->without_key, epsilon))
        write_f32(&writer, epsilon, 1e-5f);
    if (config->extra)
        config->extra(&writer);
    uint32_t state = config->seed * 2654435761u | 1;
    int64_t n_embd = config->n_embd, n_ff = config->n_ff;
    int64_t n_kv = n_embd / config->n_heads * config->n_kv_heads;
    tiny_tensor(config, &writer, &state, n_embd, config->n_vocab, 0, 1, "token_embd.weight");
    for (uint32_t layer = 0; layer < config->n_layers; layer++) {
        tiny_tensor(config, &writer, &state, n_embd, 1, 1, 0.3f, "blk.%u.attn_norm.weight", layer);
        tiny_tensor(config, &writer, &state, n_embd, n_embd, 0, 0.5f, "blk.%u.attn_q.weight", layer);
        if (config->query_bias)
            tiny_tensor(config, &writer, &state, n_embd, 1, 0, 0.5f, "blk.%u.attn_q.bias", layer);
        tiny_tensor(config, &writer, &state, n_embd, n_kv, 0, 0.5f, "blk.%u.attn_k.weight", layer);
        tiny_tensor(config, &writer, &state, n_embd, n_kv, 0, 0.5f, "blk.%u.attn_v.weight", layer);
        tiny_tensor(config, &writer, &state, n_embd, n_embd, 0, 0.5f, "blk.%u.attn_output.weight", layer);
        tiny_tensor(config, &writer, &state, n_embd, 1, 1, 0.3f, "blk.%u.ffn_norm.weight", layer);
        tiny_tensor(config, &writer, &state, n_embd, n_ff, 0, 0.5f, "blk.%u.ffn_gate.weight", layer);
        tiny_tensor(config, &writer, &state, n_embd, n_ff, 0, 0.5f, "blk.%u.ffn_up.weight", layer);
        tiny_tensor(config, &writer, &state, n_ff, n_embd, 0, 0.5f, "blk.%u.ffn_down.weight", layer);
    }
    tiny_tensor(config, &writer, &state, n_embd, 1, 1, 0.3f, "output_norm.weight");
    if (config->untied)
        tiny_tensor(config, &writer, &state, n_embd, config->n_vocab, 0, 1, "output.weight");
    return gguf_writer_finish(&writer, ret_size);
}

/* NPU_OK, or what gguf_open_memory or model_create said. tiny_llama_close in both cases. */
static inline enum npu_status tiny_llama_open(struct tiny_llama *llama, const struct tiny_llama_config *config,
                                              struct npu_error *error)
{
    *llama = (struct tiny_llama){0};
    llama->bytes = tiny_llama_bytes(config, &llama->size);
    enum npu_status status = gguf_open_memory(&llama->file, llama->bytes, llama->size, "tiny.gguf", error);
    if (status == NPU_OK)
        status = model_create(&llama->model, llama->file, error);
    return status;
}

static inline void tiny_llama_close(struct tiny_llama *llama)
{
    model_destroy(llama->model);
    gguf_close(llama->file);
    free(llama->bytes);
}

#endif
