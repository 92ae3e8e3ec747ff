#include "npu/executor.h"

enum npu_status executor_step(struct executor *executor, const struct step *step, struct row_result *results,
                              struct npu_error *error)
{
    return executor->interface->step(executor, step, results, error);
}

enum npu_status executor_read_block(struct executor *executor, int32_t block, void *to, struct npu_error *error)
{
    return executor->interface->read_block(executor, block, to, error);
}

enum npu_status executor_write_block(struct executor *executor, int32_t block, const void *from, struct npu_error *error)
{
    return executor->interface->write_block(executor, block, from, error);
}

enum npu_status executor_copy_block(struct executor *executor, int32_t from, int32_t to, struct npu_error *error)
{
    return executor->interface->copy_block(executor, from, to, error);
}

void executor_destroy(struct executor *executor)
{
    if (executor != NULL)
        executor->interface->destroy(executor);
}
