/* The rows of a step that come from tables which stay in the mapped file (OP_LOOKUP): read ahead in packed form, then
 * dequantized for the device. Borrows the plan. Thread: the executor's. */
#ifndef NPU_OPENCL_STEP_LOOKUP_H
#define NPU_OPENCL_STEP_LOOKUP_H

#include "npu/executor.h"
#include "npu/opencl/lookup_reader.h"
#include "npu/opencl/plan.h"

struct step_lookup {
    const struct plan *plan;
    struct lookup_reader *reader; /* NULL: the model has no such tables */
    size_t offsets[PLAN_MAX_LOOKUPS]; /* of each table's part in a row of the reader */
    float *floats; /* max_rows rows of the widest table */
};

enum npu_status step_lookup_create(struct step_lookup *lookup, const struct plan *plan, struct npu_error *error);
void step_lookup_destroy(struct step_lookup *lookup);

void step_lookup_ask(struct step_lookup *lookup, const int32_t *tokens, int n);

/* Waits for the step's rows; they stay until the next call. */
void step_lookup_hold(struct step_lookup *lookup, const struct step *step, const void *rows[EXECUTOR_MAX_ROWS]);
/* The rows of table `index` of the plan as floats, stride apart as in the arena; valid until the next call. */
const float *step_lookup_floats(struct step_lookup *lookup, int index, const void *const rows[EXECUTOR_MAX_ROWS],
                                int n_rows);

#endif
