/* One op of a model's graph in plain float32, sums in double: the oracle that every device is compared with. It needs no
 * executor: activations and K/V come from whoever calls, so an op can be fed with a device's own inputs.
 * Reentrant; the caller owns everything. */
#ifndef NPU_REFERENCE_REFERENCE_OP_H
#define NPU_REFERENCE_REFERENCE_OP_H

#include <stdint.h>

#include "npu/error.h"
#include "npu/model.h"

/* K/V of one sequence. key and value hold n_heads * head_size floats of the KV layer; read may be called with one of them
 * NULL when only the other is wanted. */
struct reference_kv {
    void (*read)(void *context, int kv_layer, int32_t position, float *key, float *value);
    void (*write)(void *context, int kv_layer, int32_t position, const float *key, const float *value);
    void *context;
};

struct reference_row {
    float *activations[GRAPH_MAX_ACTIVATIONS]; /* width floats each; only those that the op names are touched */
    int32_t token;
    int32_t position;
    int32_t visible_end;
    const float *embedding; /* NULL, or n_embd floats instead of the token's own */
    struct reference_kv kv;
};

/* Runs op for every row. Only allocation can fail. OP_GATHER does nothing: which rows go on is the caller's affair. */
enum npu_status reference_op_run(const struct model *model, const struct op *op, const struct reference_row *rows,
                                 int n_rows, struct npu_error *error);

/* out[0..n_outputs) = rows first_output... of weight, times in, plus bias (may be NULL): a part of a big OP_MATMUL. */
enum npu_status reference_matmul(const struct weight *weight, const struct weight *bias, const float *in,
                                 int64_t first_output, int64_t n_outputs, float *out, struct npu_error *error);

/* The positions that a row of an OP_ATTENTION sees: from the returned one up to visible_end. */
int32_t reference_visible_begin(const struct model *model, const struct op *op, int32_t position);

#endif
