/* A model: hyperparameters, tensors by their GGUF names, and the op list that its architecture describes.
 * Borrows the open file. Immutable after model_create; any thread may read. */
#ifndef NPU_MODEL_H
#define NPU_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "npu/error.h"
#include "npu/ops.h"
#include "npu/pooling.h"

struct gguf_file;

enum { MODEL_MAX_ROPES = 2 };

struct rope {
    int dims;              /* elements of a head that turn (the first ones) */
    double base;
    double position_scale; /* positions are multiplied by this (linear scaling) */
    bool interleaved;      /* pairs (2i, 2i+1); else (i, i + dims/2) */
    const float *factors;  /* NULL, or dims/2 divisors of the frequencies (rope_freqs) */
};

struct kv_layer {
    int n_heads;
    int head_size;
};

struct model {
    const struct gguf_file *file;
    char architecture[32];
    int n_layers;
    int n_embd;
    int n_vocab;
    int64_t trained_context;
    enum pooling pooling; /* that it was trained for as an embedding model */
    int window; /* positions that a sliding layer sees, its own included; 0: no sliding layers */
    struct rope ropes[MODEL_MAX_ROPES];
    int n_ropes;
    struct kv_layer *kv_layers;
    int n_kv_layers;
    struct weight *weights;
    int n_weights;
    struct op_graph graph;
};

/* Reads the metadata, checks every tensor's shape and type, and builds the op list. Anything unknown is named. */
enum npu_status model_create(struct model **ret_model, const struct gguf_file *file, struct npu_error *error);
void model_destroy(struct model *model); /* NULL is fine */

/* cos and sin of a rope at a position: 2 * (dims/2) floats, all cosines first. Computed in double. */
void rope_angles(const struct rope *rope, int32_t position, float *cosines_sines);

/* For arch/NAME.c. The builder remembers the first error, so that descriptions read straight. */
struct model_builder {
    struct model *model;
    struct npu_error *error;
    bool failed;
    int weights_capacity;
};

/* Metadata "ARCH.key"; the _or forms give a default when absent. */
bool builder_has(struct model_builder *builder, const char *key);
bool builder_string_is(struct model_builder *builder, const char *key, const char *expected);
int64_t builder_int(struct model_builder *builder, const char *key, int64_t low, int64_t high);
int64_t builder_int_or(struct model_builder *builder, const char *key, int64_t low, int64_t high, int64_t otherwise);
double builder_float(struct model_builder *builder, const char *key);
double builder_float_or(struct model_builder *builder, const char *key, double otherwise);
/* A key that holds one integer for all layers, or an array with one for each. */
int64_t builder_layer_int(struct model_builder *builder, const char *key, int layer, int64_t low, int64_t high);
int64_t builder_layer_int_or(struct model_builder *builder, const char *key, int layer, int64_t low, int64_t high,
                             int64_t otherwise);
/* attention.sliding_window_pattern: one flag per layer (true: sliding), or n: every n-th layer is full, 0: none is. */
enum window builder_layer_window(struct model_builder *builder, int layer, int default_pattern);
/* A tensor that must have that shape (n_out 1: a vector); builder_find_weight gives NULL when it is absent. */
const struct weight *builder_weight(struct model_builder *builder, int64_t n_in, int64_t n_out, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
const struct weight *builder_find_weight(struct model_builder *builder, int64_t n_in, int64_t n_out, const char *format,
                                         ...) __attribute__((format(printf, 4, 5)));
/* Each adds one to the model and returns its index. */
int builder_add_rope(struct model_builder *builder, struct rope rope);
int builder_add_kv_layer(struct model_builder *builder, int n_heads, int head_size);
/* rope_freqs.weight as divisors for a rope over dims elements; NULL when the file has none. */
const float *builder_rope_factors(struct model_builder *builder, int dims);
/* What rope.scaling.type and rope.scaling.factor make of positions: 1 when nothing is scaled. */
double builder_rope_position_scale(struct model_builder *builder);
void builder_fail(struct model_builder *builder, enum npu_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* arch/: each fills the model and its graph through the builder. */
void arch_llama_build(struct model_builder *builder);
void arch_gemma3_build(struct model_builder *builder);
void arch_gemma4_build(struct model_builder *builder);
void arch_qwen2_build(struct model_builder *builder);
void arch_qwen3_build(struct model_builder *builder);

#endif
