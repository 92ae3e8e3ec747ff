/* Fills the step's input buffer: the only thing that changes from step to step. Pure C. */
#ifndef NPU_OPENCL_STEP_INPUT_H
#define NPU_OPENCL_STEP_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "npu/executor.h"
#include "npu/opencl/plan.h"

struct step_shape {
    int n_rows, n_returning;
    int returning[EXECUTOR_MAX_ROWS]; /* row numbers, ascending */
    bool needs_logits; /* of any row: not all of those that return want their hidden state */
    int n_embeddings; /* rows that bring a vector; they take places 0.. in the arena's embeddings */
    int used_words; /* of the head of the buffer, tables included */
};

/* words has plan->input_words; tile_rows: rows of a run that are one unit of attention, at most TILE_ROWS. The step must
 * have been checked (executor_step does). */
void step_input_fill(const struct plan *plan, const struct step *step, int tile_rows, int32_t stamp, int32_t *words,
                     struct step_shape *shape);

#endif
