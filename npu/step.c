#include "npu/step.h"

static enum npu_status check_table(const struct executor *executor, const struct step *step, int row,
                                   struct npu_error *error)
{
    const struct step_row *r = &step->rows[row];
    const struct block_table *table = &step->tables[r->table];
    int needed = (r->visible_end + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    if (table->n_blocks < needed)
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "step row %d sees positions before %d, but its table has %d blocks of %d", row,
                             r->visible_end, table->n_blocks, KV_BLOCK_TOKENS);
    for (int i = 0; i < needed; i++) {
        if (table->blocks[i] < 0 || table->blocks[i] >= executor->n_blocks)
            return npu_error_set(error, NPU_ERROR_INPUT,
                                 "step row %d: entry %d of its table is block %d; blocks are 0 to %d", row, i,
                                 table->blocks[i], executor->n_blocks - 1);
    }
    return NPU_OK;
}

static enum npu_status check_row(const struct executor *executor, const struct step *step, int row,
                                 struct npu_error *error)
{
    const struct step_row *r = &step->rows[row];
    if (r->token < 0 || r->token >= executor->n_vocab)
        return npu_error_set(error, NPU_ERROR_INPUT, "step row %d: token %d; tokens are 0 to %d", row, r->token,
                             executor->n_vocab - 1);
    if (r->position < 0 || r->position >= executor->max_context)
        return npu_error_set(error, NPU_ERROR_INPUT, "step row %d: position %d; positions are 0 to %d", row,
                             r->position, executor->max_context - 1);
    if (r->visible_end <= r->position || r->visible_end > executor->max_context)
        return npu_error_set(error, NPU_ERROR_INPUT, "step row %d at position %d: visible_end %d; it must be %d to %d",
                             row, r->position, r->visible_end, r->position + 1, executor->max_context);
    if (r->table >= step->n_tables)
        return npu_error_set(error, NPU_ERROR_INPUT, "step row %d: table %d; the step has %d tables", row, r->table,
                             step->n_tables);
    if (r->returns > ROW_RETURN_HIDDEN)
        return npu_error_set(error, NPU_ERROR_INPUT, "step row %d: unknown kind of return %d", row, r->returns);
    if (r->returns == ROW_RETURN_TOP_K &&
        (r->top_k < 1 || r->top_k > EXECUTOR_MAX_TOP_K || r->top_k > executor->n_vocab))
        return npu_error_set(error, NPU_ERROR_INPUT, "step row %d: top_k %d; it must be 1 to %d", row, r->top_k,
                             EXECUTOR_MAX_TOP_K < executor->n_vocab ? EXECUTOR_MAX_TOP_K : executor->n_vocab);
    return check_table(executor, step, row, error);
}

static int64_t place_of(const struct step *step, int row)
{
    const struct step_row *r = &step->rows[row];
    return (int64_t)step->tables[r->table].blocks[r->position / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS +
           r->position % KV_BLOCK_TOKENS;
}

enum npu_status step_validate(const struct executor *executor, const struct step *step, struct npu_error *error)
{
    if (step->n_rows < 1 || step->n_rows > executor->max_rows)
        return npu_error_set(error, NPU_ERROR_INPUT, "a step of %d rows; it must have 1 to %d", step->n_rows,
                             executor->max_rows);
    if (step->n_tables < 1 || step->n_tables > executor->max_tables)
        return npu_error_set(error, NPU_ERROR_INPUT, "a step of %d block tables; it must have 1 to %d", step->n_tables,
                             executor->max_tables);
    int64_t places[EXECUTOR_MAX_ROWS];
    int n_returning = 0;
    for (int row = 0; row < step->n_rows; row++) {
        enum npu_status status = check_row(executor, step, row, error);
        if (status != NPU_OK)
            return status;
        places[row] = place_of(step, row);
        for (int other = 0; other < row; other++) {
            if (places[other] == places[row])
                return npu_error_set(error, NPU_ERROR_INPUT, "step rows %d and %d write the same place of the KV cache",
                                     other, row);
            if (step->rows[other].table != step->rows[row].table)
                continue;
            if (step->rows[row - 1].table != step->rows[row].table)
                return npu_error_set(error, NPU_ERROR_INPUT, "step rows %d and %d share a table but are not neighbours",
                                     other, row);
            if (step->rows[other].position >= step->rows[row].position)
                return npu_error_set(error, NPU_ERROR_INPUT,
                                     "step rows %d and %d of one table: positions %d and %d do not ascend", other, row,
                                     step->rows[other].position, step->rows[row].position);
        }
        n_returning += step->rows[row].returns != ROW_RETURN_NOTHING;
    }
    if (n_returning > executor->max_returning)
        return npu_error_set(error, NPU_ERROR_INPUT, "a step of %d rows that return something; it may have %d",
                             n_returning, executor->max_returning);
    return NPU_OK;
}
