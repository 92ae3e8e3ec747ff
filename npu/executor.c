#include "npu/executor.h"

#include "npu/step.h"

static enum npu_status check_block(const struct executor *executor, int32_t block, struct npu_error *error)
{
    if (block < 0 || block >= executor->n_blocks)
        return npu_error_set(error, NPU_ERROR_INPUT, "KV block %d, must be 0 to %d", block, executor->n_blocks - 1);
    return NPU_OK;
}

enum npu_status executor_step(struct executor *executor, const struct step *step, struct row_result *results,
                              struct npu_error *error)
{
    enum npu_status status = step_validate(executor, step, error);
    return status != NPU_OK ? status : executor->interface->step(executor, step, results, error);
}

enum npu_status executor_read_block(struct executor *executor, int32_t block, void *to, struct npu_error *error)
{
    enum npu_status status = check_block(executor, block, error);
    return status != NPU_OK ? status : executor->interface->read_block(executor, block, to, error);
}

enum npu_status executor_write_block(struct executor *executor, int32_t block, const void *from, struct npu_error *error)
{
    enum npu_status status = check_block(executor, block, error);
    return status != NPU_OK ? status : executor->interface->write_block(executor, block, from, error);
}

enum npu_status executor_copy_block(struct executor *executor, int32_t from, int32_t to, struct npu_error *error)
{
    enum npu_status status = check_block(executor, from, error);
    if (status == NPU_OK)
        status = check_block(executor, to, error);
    return status != NPU_OK ? status : executor->interface->copy_block(executor, from, to, error);
}

void executor_prefetch_tokens(struct executor *executor, const int32_t *tokens, int n)
{
    if (executor->interface->prefetch == NULL)
        return;
    for (int first = 0; first < n;) { /* stretches of tokens that there are */
        int end = first;
        while (end < n && tokens[end] >= 0 && tokens[end] < executor->n_vocab)
            end++;
        if (end > first)
            executor->interface->prefetch(executor, tokens + first, end - first);
        first = end + 1;
    }
}

uint64_t executor_launch_switches(const struct executor *executor)
{
    return executor->interface->launch_switches != NULL ? executor->interface->launch_switches(executor) : 0;
}

void executor_destroy(struct executor *executor)
{
    if (executor != NULL)
        executor->interface->destroy(executor);
}
