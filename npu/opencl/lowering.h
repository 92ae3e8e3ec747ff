/* Lowers a model's op list to the entries of a plan: fuses neighbours, sets barriers, packs weights into segments. Part of
 * plan_create. */
#ifndef NPU_OPENCL_LOWERING_H
#define NPU_OPENCL_LOWERING_H

#include "npu/opencl/plan.h"

/* The plan's places (activations, scratch, KV, input) are set; entries, weights, vectors and lookups are filled. */
enum npu_status lowering_run(struct plan *plan, struct npu_error *error);

#endif
