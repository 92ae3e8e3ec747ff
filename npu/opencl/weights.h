/* Puts a plan's packed weights on the device: repacks straight into buffers that share the host's memory, else through a
 * staging copy, with one thread per CPU, and drops the file's pages behind it, so that a weight is in memory once. */
#ifndef NPU_OPENCL_WEIGHTS_H
#define NPU_OPENCL_WEIGHTS_H

#include "npu/opencl/device_buffer.h"
#include "npu/opencl/plan.h"

enum npu_status weights_load(const struct plan *plan, struct device_buffer segments[PLAN_MAX_SEGMENTS],
                             cl_command_queue queue, struct npu_error *error);

#endif
