/* What stands on the device between two entries of the op table, as the reference's ops see it. */
#ifndef NPU_OPENCL_VERIFY_STATE_H
#define NPU_OPENCL_VERIFY_STATE_H

#include <stdint.h>

#include "npu/opencl/opencl_executor.h"
#include "npu/reference/reference_op.h"

/* The activation of a row of a row set (0: the step's rows, 1: returning rows); its width in floats. */
enum npu_status verify_read_activation(struct opencl_executor *executor, int row_set, int activation, int row,
                                       float *to, struct npu_error *error);

/* A row's quantized copy, laid out as kernels/op_entry.h says. The arrays are the caller's. */
struct quantized_copy {
    int8_t *values; /* width */
    float *scales, *sums;
    int32_t *halves; /* width / 32 each */
};

enum npu_status verify_read_quantized(struct opencl_executor *executor, const struct op_entry *entry, int row,
                                      const struct quantized_copy *copy, struct npu_error *error);

/* The K/V of one block table in the device's cache. Holds one layer's part of one block at a time. */
struct kv_view {
    struct opencl_executor *executor;
    const struct block_table *table;
    int kv_layer; /* -1: nothing is held */
    int32_t block;
    unsigned char *bytes; /* of the layer that needs most */
    enum npu_status status; /* the first failure of a read */
    struct npu_error error;
};

enum npu_status kv_view_init(struct kv_view *view, struct opencl_executor *executor, const struct block_table *table,
                             struct npu_error *error);
void kv_view_done(struct kv_view *view);
void kv_view_forget(struct kv_view *view); /* the device may have written */
struct reference_kv kv_view_reference(struct kv_view *view);

#endif
