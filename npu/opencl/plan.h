/* The static plan: a model's op list lowered to an op table, made once. Neighbouring ops are fused, activations get their
 * places in the arena, packed weights their places in the weight segments, and entries that depend on earlier ones the
 * barrier flag. Knows no OpenCL type: tests and the self-check read it too. */
#ifndef NPU_OPENCL_PLAN_H
#define NPU_OPENCL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/op_entry.h"
#include "npu/error.h"
#include "npu/model.h"

enum {
    PLAN_MAX_SEGMENTS = 4,
    PLAN_MAX_LOOKUPS = 2
};

struct packed_weight {
    const struct weight *weight;
    int layout;
    int segment;
    size_t offset; /* bytes in the segment */
    size_t bytes;
};

/* A table whose rows the host writes with the step's inputs (OP_LOOKUP). */
struct plan_lookup {
    const struct op *op;
    int offset, stride; /* in the arena, per row */
};

struct plan_limits {
    int max_rows, max_returning, max_tables;
    int32_t max_context;
    size_t max_segment_bytes; /* the driver's largest allocation */
};

struct plan {
    const struct model *model;
    struct plan_limits limits;
    struct op_entry *entries;
    int *first_ops; /* entry i computes graph ops [first_ops[i], last_ops[i]] (an entry may fuse several) */
    int *last_ops;
    int n_entries, capacity;
    struct packed_weight *weights; /* matrices, in order of their places */
    int n_weights;
    size_t segment_bytes[PLAN_MAX_SEGMENTS];
    int n_segments;
    struct plan_lookup lookups[PLAN_MAX_LOOKUPS];
    int n_lookups;
    float *vectors; /* norm weights and biases, concatenated */
    int n_vectors;
    /* The arena, in 4-byte words. */
    int64_t arena_words;
    int activation_offsets[2][GRAPH_MAX_ACTIVATIONS]; /* per row set; -1: never there */
    int activation_strides[GRAPH_MAX_ACTIVATIONS];
    int quantized_offsets[2][GRAPH_MAX_ACTIVATIONS];
    int embeddings_offset; /* max_rows vectors of n_embd */
    int attention_scratch_offset, attention_scratch_stride, attention_splits; /* splits as units, SPLIT_ROWS rows */
    int attention_state_offsets[2]; /* walked splits, per row set */
    int partials_offset, partials_stride, select_chunks; /* selections of each chunk */
    int done_offset; /* the stamp of the last finished step */
    int select_offset, select_stride; /* per returning row: SELECT_MAX logits, SELECT_MAX tokens */
    /* The input buffer, in words. */
    int table_words; /* per block table */
    int rope_offsets[MODEL_MAX_ROPES];
    int input_words;
    /* KV blocks, in elements. */
    int *kv_offsets; /* per KV layer */
    int block_elements;
    int max_head_size, min_kv_heads;
    int gather_entry; /* entries from here on run for returning rows */
    int head_entry; /* entries from here on make logits of the hidden state */
};

enum npu_status plan_create(struct plan **ret_plan, const struct model *model, const struct plan_limits *limits,
                            struct npu_error *error);
void plan_destroy(struct plan *plan); /* NULL is fine */

/* The most units that entry can have with that many rows and returning rows: what a launch of its own is sized by. */
int plan_entry_units(const struct plan *plan, int entry, int rows, int returning);

const char *plan_entry_name(const struct op_entry *entry);
const char *plan_kind_name(int kind);

#endif
