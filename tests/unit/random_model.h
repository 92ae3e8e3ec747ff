/* A small decoder with random weights of any tensor type, made in memory; the same seed gives the same bits everywhere. */
#ifndef TESTS_RANDOM_MODEL_H
#define TESTS_RANDOM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "npu/gguf.h"
#include "npu/model.h"

/* Types default to F32 and sizes to those of random_model_default. */
struct random_model_config {
    const char *architecture; /* llama, qwen2, qwen3, gemma3 or gemma4; NULL: llama */
    uint32_t n_layers, n_embd, n_heads, n_kv_heads, head_size, n_ff, n_vocab;
    uint32_t window; /* gemma3, gemma4: every other layer is a sliding one */
    uint32_t n_per_layer; /* gemma4: elements of a layer's embedding; its full layers' heads are twice head_size */
    uint32_t n_shared_kv; /* gemma4: layers at the end that read the K/V of earlier ones */
    uint32_t matrix_type; /* of all matrices but these */
    uint32_t down_type; /* of ffn_down, where mixed_types says so */
    uint32_t table_type; /* of the token table */
    bool mixed_types;
    bool untied; /* an output.weight of its own, of matrix_type */
    bool biases; /* on every matrix that may have one */
    uint32_t table_period; /* row i of the table is row i % table_period: equal logits; 0: all rows differ */
    uint32_t seed;
};

extern const struct random_model_config random_model_default;

struct random_model {
    uint8_t *bytes;
    struct gguf_file *file;
    struct model *model;
};

/* Fails the running test with the message when the model cannot be read. */
void random_model_open(struct random_model *model, const struct random_model_config *config);
void random_model_close(struct random_model *model);

/* n_rows rows of n_in elements in the format of type, about uniform in [-spread, spread]; the caller frees it. n_in must
 * be whole blocks of type. */
uint8_t *random_rows(uint32_t type, int64_t n_in, int64_t n_rows, float spread, uint32_t *state, size_t *ret_bytes);

uint32_t random_bits(uint32_t *state); /* xorshift; state is not 0 */
float random_float(uint32_t *state); /* uniform in [-1, 1) */

#endif
