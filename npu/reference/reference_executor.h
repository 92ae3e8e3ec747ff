/* The executor in plain float32 C, op by op and row by row: slow, obvious, the oracle. */
#ifndef NPU_REFERENCE_REFERENCE_EXECUTOR_H
#define NPU_REFERENCE_REFERENCE_EXECUTOR_H

#include "npu/executor.h"
#include "npu/model.h"

struct reference_options {
    int32_t n_blocks; /* KV blocks, allocated at creation */
    int max_tables; /* per step */
    int32_t max_context; /* positions per table */
    bool kv_f16; /* round K/V to half precision, as devices that keep halves do */
};

/* The executor borrows model. destroy frees it. */
enum npu_status reference_executor_create(struct executor **ret_executor, const struct model *model,
                                          const struct reference_options *options, struct npu_error *error);

#endif
