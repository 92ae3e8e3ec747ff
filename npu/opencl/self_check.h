/* The check at start: does this driver compute what the model means? Runs before anybody owns a KV block, and writes
 * blocks from 0 on. */
#ifndef NPU_OPENCL_SELF_CHECK_H
#define NPU_OPENCL_SELF_CHECK_H

#include "npu/loader.h"
#include "npu/opencl/opencl_executor.h"

/* Quick: every distinct op, shape and layout once, on sampled rows and outputs. Full: all ops, rows and outputs of whole
 * steps. Both also compare the bits of a step in one launch with those of one op a launch, and give one launch up where
 * they differ. A wrong op is NPU_ERROR_DEVICE with a line that names it. */
enum npu_status self_check_run(struct opencl_executor *executor, enum self_check mode, struct npu_error *error);

#endif
