/* What every executor asks of a step before it runs it. Pure; any thread. */
#ifndef NPU_STEP_H
#define NPU_STEP_H

#include "npu/executor.h"

/* NPU_ERROR_INPUT with the row and the reason when a row's token, position, visible range, table or returns are out of
 * range, when a visible position has no block, when rows of one table are not neighbours in ascending order, or when two
 * rows would write the same place. The executor's limits are those of its head. */
enum npu_status step_validate(const struct executor *executor, const struct step *step, struct npu_error *error);

#endif
