/* Random K/V: a past that nothing had to compute, for checks and measurements. */
#ifndef NPU_OPENCL_RANDOM_HISTORY_H
#define NPU_OPENCL_RANDOM_HISTORY_H

#include "npu/opencl/opencl_executor.h"

/* Fills KV blocks [0, n) with values in [-1, 1), each block with others. */
enum npu_status random_history_write(struct opencl_executor *executor, int32_t n, struct npu_error *error);

#endif
