#include "npu/opencl/step_lookup.h"

#include <stdlib.h>
#include <string.h>

#include "npu/dequantize.h"
#include "npu/gguf.h"

enum {
    KEPT_ROWS = 4 * EXECUTOR_MAX_ROWS, /* a step, the chunks of prompts that come next, and what is said often */
    N_THREADS = 4 /* disks answer several reads at once */
};

static const struct weight *table_of(const struct plan *plan, int index)
{
    return plan->lookups[index].op->weight;
}

static size_t row_bytes(const struct weight *table)
{
    return (size_t)dequantize_row_bytes(table->type, table->n_in);
}

/* On a reader's thread: this is where pages come from the disk. */
static void read_row(void *context, int32_t token, void *to)
{
    const struct step_lookup *lookup = context;
    for (int i = 0; i < lookup->plan->n_lookups; i++) {
        const struct weight *table = table_of(lookup->plan, i);
        size_t bytes = row_bytes(table);
        const uint8_t *from = (const uint8_t *)table->data + (size_t)token * bytes;
        gguf_fetch_pages(lookup->plan->model->file, from, bytes);
        memcpy((uint8_t *)to + lookup->offsets[i], from, bytes);
    }
}

enum npu_status step_lookup_create(struct step_lookup *lookup, const struct plan *plan, struct npu_error *error)
{
    size_t bytes = 0, stride = 0;
    *lookup = (struct step_lookup){.plan = plan};
    if (plan->n_lookups == 0)
        return NPU_OK;
    for (int i = 0; i < plan->n_lookups; i++) {
        lookup->offsets[i] = bytes;
        bytes += row_bytes(table_of(plan, i));
        if ((size_t)plan->lookups[i].stride > stride)
            stride = (size_t)plan->lookups[i].stride;
        gguf_expect_scattered(plan->model->file, table_of(plan, i)->tensor);
    }
    lookup->floats = malloc((size_t)plan->limits.max_rows * stride * sizeof *lookup->floats);
    if (lookup->floats == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the rows of a step");
    struct lookup_reader_options options = {.read = read_row,
                                            .context = lookup,
                                            .row_bytes = bytes,
                                            .capacity = KEPT_ROWS,
                                            .max_rows = plan->limits.max_rows,
                                            .n_threads = N_THREADS};
    return lookup_reader_create(&lookup->reader, &options, error);
}

void step_lookup_destroy(struct step_lookup *lookup)
{
    lookup_reader_destroy(lookup->reader);
    free(lookup->floats);
    *lookup = (struct step_lookup){0};
}

void step_lookup_ask(struct step_lookup *lookup, const int32_t *tokens, int n)
{
    if (lookup->reader != NULL)
        lookup_reader_ask(lookup->reader, tokens, n);
}

void step_lookup_hold(struct step_lookup *lookup, const struct step *step, const void *rows[EXECUTOR_MAX_ROWS])
{
    int32_t tokens[EXECUTOR_MAX_ROWS];
    if (lookup->reader == NULL)
        return;
    for (int i = 0; i < step->n_rows; i++)
        tokens[i] = step->rows[i].token;
    lookup_reader_hold(lookup->reader, tokens, step->n_rows, rows);
}

const float *step_lookup_floats(struct step_lookup *lookup, int index, const void *const rows[EXECUTOR_MAX_ROWS],
                                int n_rows)
{
    const struct plan_lookup *part = &lookup->plan->lookups[index];
    const struct weight *table = part->op->weight;
    for (int i = 0; i < n_rows; i++) {
        float *to = lookup->floats + (size_t)i * (size_t)part->stride;
        dequantize_row(table->type, (const uint8_t *)rows[i] + lookup->offsets[index], to, table->n_in);
        for (int64_t k = 0; k < table->n_in; k++)
            to[k] *= part->op->scale;
    }
    return lookup->floats;
}
