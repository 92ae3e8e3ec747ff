#include "npu/verify_ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu/opencl/pack.h"
#include "npu/opencl/verify_compare.h"
#include "npu/opencl/verify_state.h"
#include "npu/step.h"

enum {
    OUTPUTS_PER_RANGE = 8,
    MAX_RANGES = 256
};

/* The sampled rows of a row set, with the reference's activations. */
struct checked_rows {
    int n;
    int places[EXECUTOR_MAX_ROWS]; /* in the row set */
    int step_rows[EXECUTOR_MAX_ROWS]; /* in the step */
    struct reference_row rows[EXECUTOR_MAX_ROWS];
};

struct run {
    struct opencl_executor *executor;
    const struct plan *plan;
    const struct op_graph *graph;
    const struct step *step;
    const struct verify_ops_options *options;
    struct npu_error *error;
    struct checked_rows sets[2];
    struct kv_view views[EXECUTOR_MAX_ROWS]; /* one per table of the step */
    int n_views;
    float *storage; /* all reference activations */
    float *device; /* a row of the widest activation, as the device has it */
    struct quantized_copy copy;
    bool *selected; /* entries that are checked; all of them without distinct_only */
    struct op_checks checks;
};

/* The entries [first, last) that are checked as one, and the ops of the graph that they stand for. */
struct group {
    int first, last;
    const struct op_entry *entry; /* the last one: what it writes is compared */
    int row_set;
    int activation; /* compared; NO_INDEX: a choice of tokens */
    int kv_layer; /* not NO_INDEX: the activation is compared with the KV cache */
    int first_op, last_op;
    bool one_activation; /* only ops on `activation` belong: others of the range are other entries' */
    struct element_range ranges[MAX_RANGES];
    int n_ranges;
};

static enum npu_status no_memory(struct npu_error *error)
{
    return npu_error_set(error, NPU_ERROR_MEMORY, "no memory to check ops");
}

/* ---- what to check ---- */

static int find_activation(const struct plan *plan, int row_set, int offset)
{
    for (int a = 0; a < plan->model->graph.n_activations; a++) {
        if (plan->activation_offsets[row_set][a] == offset)
            return a;
    }
    return NO_INDEX;
}

/* Partial results are the kernels' own affair: such entries are checked with those that put them together. */
static int group_end(const struct plan *plan, int first)
{
    int kind = plan->entries[first].kind, next = first + 1 < plan->n_entries ? plan->entries[first + 1].kind : kind;
    bool pair = (kind == ENTRY_ATTENTION && next == ENTRY_ATTENTION_MERGE) ||
                (kind == ENTRY_SELECT && next == ENTRY_SELECT_MERGE);
    return pair ? first + 2 : first + 1;
}

/* Stretches of outputs from the first to the last one, evenly spread. */
static void choose_ranges(struct group *group, int n, int wanted)
{
    int most = (wanted + OUTPUTS_PER_RANGE - 1) / OUTPUTS_PER_RANGE;
    most = most > MAX_RANGES ? MAX_RANGES : most < 2 ? 2 : most;
    if (wanted <= 0 || n <= most * OUTPUTS_PER_RANGE) {
        group->ranges[0] = (struct element_range){0, n};
        group->n_ranges = 1;
        return;
    }
    for (int i = 0; i < most; i++)
        group->ranges[i] =
            (struct element_range){(int)((int64_t)(n - OUTPUTS_PER_RANGE) * i / (most - 1)), OUTPUTS_PER_RANGE};
    group->n_ranges = most;
}

/* Floats that an op writes. */
static int op_width(const struct op *op)
{
    switch (op->kind) {
    case OP_EMBED:
    case OP_LOOKUP:
        return (int)op->weight->n_in;
    case OP_MATMUL:
        return (int)op->weight->n_out;
    case OP_RMS_NORM:
    case OP_ROPE:
    case OP_ATTENTION:
        return op->n_heads * op->head_size;
    default:
        return op->width;
    }
}

static struct group group_at(const struct run *run, int first)
{
    const struct plan *plan = run->plan;
    struct group group = {.first = first,
                          .last = group_end(plan, first),
                          .activation = NO_INDEX,
                          .kv_layer = NO_INDEX,
                          .first_op = plan->first_ops[first],
                          .last_op = plan->last_ops[first]};
    const struct op_entry *entry = group.entry = &plan->entries[group.last - 1];
    const struct op *last = &run->graph->ops[group.last_op];
    group.row_set = entry->row_set;
    int width = op_width(last), wanted = 0;
    switch (entry->kind) {
    case ENTRY_HEADS:
        group.one_activation = true;
        group.activation = last->kind != OP_KV_WRITE             ? last->out
                           : entry->layout == DESTINATION_VALUES ? last->in2
                                                                 : last->in;
        group.kv_layer = entry->layout == DESTINATION_PLACE ? NO_INDEX : last->kv_layer;
        width = entry->n_heads * entry->head_size;
        break;
    case ENTRY_QUANTIZE: /* stands before the product that reads the copy */
        group.activation = last->in;
        width = 0;
        break;
    case ENTRY_GATHER:
        group.activation = find_activation(plan, 1, entry->out);
        width = entry->n_in;
        break;
    case ENTRY_SELECT_MERGE:
        break;
    case ENTRY_MATMUL:
        wanted = run->options->max_outputs;
        group.activation = last->out;
        break;
    default:
        group.activation = last->out;
    }
    choose_ranges(&group, width, wanted);
    return group;
}

static bool belongs(const struct group *group, const struct op *op)
{
    return op->kind != OP_GATHER && op->kind != OP_KV_WRITE && group->entry->kind != ENTRY_QUANTIZE &&
           (!group->one_activation || op->out == group->activation);
}

/* What decides the code that runs: the entry without its places, and the tensor's type. */
static struct op_entry shape_of(const struct run *run, int index, uint32_t *type)
{
    struct op_entry shape = run->plan->entries[index];
    const struct op *op = &run->graph->ops[run->plan->first_ops[index]];
    *type = op->weight != NULL ? op->weight->type : 0;
    shape.flags &= ~FLAG_BARRIER;
    shape.quantized = shape.quantized >= 0;
    shape.vector = shape.vector >= 0;
    shape.layer = shape.in = shape.in_stride = shape.in2 = shape.in2_stride = shape.out = shape.out_stride = 0;
    shape.kv_offset = shape.scratch = shape.state = 0;
    shape.weight_offset = 0;
    return shape;
}

static bool seen_before(const struct run *run, int index)
{
    uint32_t type, other_type;
    struct op_entry shape = shape_of(run, index, &type);
    for (int i = 0; i < index; i++) {
        struct op_entry other = shape_of(run, i, &other_type);
        if (run->selected[i] && type == other_type && memcmp(&shape, &other, sizeof shape) == 0)
            return true;
    }
    return false;
}

static void select_entries(struct run *run)
{
    for (int i = 0; i < run->plan->n_entries; i++)
        run->selected[i] = !run->options->distinct_only || !seen_before(run, i);
}

/* Ops outside layers always run; a layer runs as a whole or not at all. */
static bool layer_runs(const struct run *run, int layer)
{
    bool runs = layer == NO_INDEX;
    for (int i = 0; i < run->plan->n_entries && !runs; i++)
        runs = run->selected[i] && run->plan->entries[i].layer == layer;
    return runs;
}

/* ---- the reference's side ---- */

static void choose_rows(struct checked_rows *rows, const int *step_rows, int n, int wanted)
{
    rows->n = wanted > 0 && n > wanted ? wanted : n;
    for (int i = 0; i < rows->n; i++) {
        int place = rows->n > 1 ? (int)((int64_t)(n - 1) * i / (rows->n - 1)) : n - 1;
        rows->places[i] = place;
        rows->step_rows[i] = step_rows != NULL ? step_rows[place] : place;
    }
}

static bool has_place(const struct run *run, int row_set, int activation)
{
    return run->plan->activation_offsets[row_set][activation] >= 0;
}

static enum npu_status prepare_rows(struct run *run)
{
    const struct step_shape *shape = &run->executor->shape;
    choose_rows(&run->sets[0], NULL, shape->n_rows, run->options->max_rows);
    choose_rows(&run->sets[1], shape->returning, shape->n_returning, run->options->max_rows);
    size_t floats = 0, widest = 0;
    for (int set = 0; set < 2; set++) {
        for (int a = 0; a < run->graph->n_activations; a++) {
            size_t width = (size_t)run->graph->activations[a].width;
            widest = width > widest ? width : widest;
            floats += has_place(run, set, a) ? width * (size_t)run->sets[set].n : 0;
        }
    }
    run->storage = calloc(floats + 1, sizeof *run->storage);
    run->device = calloc(widest + 32, sizeof *run->device);
    run->copy.values = calloc(widest + 32, 1);
    run->copy.scales = calloc(widest / 32 + 1, sizeof(float));
    run->copy.sums = calloc(widest / 32 + 1, sizeof(float));
    run->copy.halves = calloc(widest / 32 + 1, sizeof(int32_t));
    run->selected = calloc((size_t)run->plan->n_entries, sizeof *run->selected);
    run->checks.checks = calloc(2 * (size_t)run->plan->n_entries, sizeof *run->checks.checks);
    if (run->storage == NULL || run->device == NULL || run->copy.values == NULL || run->copy.scales == NULL ||
        run->copy.sums == NULL || run->copy.halves == NULL || run->selected == NULL || run->checks.checks == NULL)
        return no_memory(run->error);
    for (int t = 0; t < run->step->n_tables; t++) {
        enum npu_status status = kv_view_init(&run->views[t], run->executor, &run->step->tables[t], run->error);
        if (status != NPU_OK)
            return status;
        run->n_views = t + 1;
    }
    float *next = run->storage;
    for (int set = 0; set < 2; set++) {
        for (int i = 0; i < run->sets[set].n; i++) {
            const struct step_row *row = &run->step->rows[run->sets[set].step_rows[i]];
            struct reference_row *reference = &run->sets[set].rows[i];
            *reference = (struct reference_row){.token = row->token,
                                                .position = row->position,
                                                .visible_end = row->visible_end,
                                                .embedding = row->embedding,
                                                .kv = kv_view_reference(&run->views[row->table])};
            for (int a = 0; a < run->graph->n_activations; a++) {
                if (!has_place(run, set, a))
                    continue;
                reference->activations[a] = next;
                next += run->graph->activations[a].width;
            }
        }
    }
    return NPU_OK;
}

static void done(struct run *run)
{
    for (int i = 0; i < run->n_views; i++)
        kv_view_done(&run->views[i]);
    free(run->storage);
    free(run->device);
    free(run->copy.values);
    free(run->copy.scales);
    free(run->copy.sums);
    free(run->copy.halves);
    free(run->selected);
    op_checks_destroy(&run->checks);
}

static enum npu_status take_activation(struct run *run, int row_set, int activation)
{
    struct checked_rows *rows = &run->sets[row_set];
    enum npu_status status = NPU_OK;
    if (activation == NO_INDEX || !has_place(run, row_set, activation))
        return NPU_OK;
    for (int r = 0; r < rows->n && status == NPU_OK; r++)
        status = verify_read_activation(run->executor, row_set, activation, rows->places[r],
                                        rows->rows[r].activations[activation], run->error);
    return status;
}

/* The device's inputs, before the group runs. */
static enum npu_status take_inputs(struct run *run, const struct group *group)
{
    enum npu_status status = take_activation(run, group->row_set, group->activation);
    for (int i = group->first_op; i <= group->last_op; i++) {
        const struct op *op = &run->graph->ops[i];
        if (!belongs(group, op))
            continue;
        int touched[] = {op->in, op->in2, op->out};
        for (int t = 0; t < 3 && status == NPU_OK; t++)
            status = take_activation(run, group->row_set, touched[t]);
    }
    return status;
}

/* What a product of int8 activations really multiplies. */
static enum npu_status take_quantized_input(struct run *run, const struct group *group, int activation)
{
    struct checked_rows *rows = &run->sets[group->row_set];
    for (int r = 0; r < rows->n; r++) {
        enum npu_status status =
            verify_read_quantized(run->executor, group->entry, rows->places[r], &run->copy, run->error);
        if (status != NPU_OK)
            return status;
        for (int i = 0; i < group->entry->quantized_width; i++)
            rows->rows[r].activations[activation][i] = (float)run->copy.values[i] * run->copy.scales[i / 32];
    }
    return NPU_OK;
}

static enum npu_status run_matmul(struct run *run, const struct group *group, const struct op *op)
{
    struct checked_rows *rows = &run->sets[group->row_set];
    if (group->n_ranges == 1)
        return reference_op_run(run->plan->model, op, rows->rows, rows->n, run->error);
    for (int r = 0; r < rows->n; r++) {
        float *const *activations = rows->rows[r].activations;
        for (int i = 0; i < group->n_ranges; i++) {
            const struct element_range *range = &group->ranges[i];
            enum npu_status status = reference_matmul(op->weight, op->bias, activations[op->in], range->first, range->n,
                                                      activations[op->out] + range->first, run->error);
            if (status != NPU_OK)
                return status;
        }
    }
    return NPU_OK;
}

static enum npu_status run_reference(struct run *run, const struct group *group)
{
    struct checked_rows *rows = &run->sets[group->row_set];
    for (int i = group->first_op; i <= group->last_op; i++) {
        const struct op *op = &run->graph->ops[i];
        if (!belongs(group, op) || rows->n == 0)
            continue;
        enum npu_status status = op->kind == OP_MATMUL
                                     ? run_matmul(run, group, op)
                                     : reference_op_run(run->plan->model, op, rows->rows, rows->n, run->error);
        if (status != NPU_OK)
            return status;
    }
    for (int i = 0; i < run->n_views; i++) {
        if (run->views[i].status != NPU_OK)
            return npu_error_set(run->error, run->views[i].status, "%s", run->views[i].error.message);
    }
    return NPU_OK;
}

/* ---- comparing ---- */

static void name_check(const struct run *run, const struct group *group, struct op_check *check)
{
    const struct op_graph *graph = run->graph;
    check->entry = group->first;
    check->layer = group->entry->layer;
    check->kernel = plan_entry_name(&run->plan->entries[group->first]);
    if (group->activation == NO_INDEX) {
        snprintf(check->name, sizeof check->name, "choice of tokens");
        return;
    }
    const struct op *named = NULL; /* the op that brings a tensor, else the last */
    for (int i = group->first_op; i <= group->last_op; i++) {
        const struct op *op = &graph->ops[i];
        if (belongs(group, op) && (named == NULL || named->weight == NULL))
            named = op;
    }
    if (named == NULL)
        named = &graph->ops[group->last_op];
    snprintf(check->name, sizeof check->name, "%s %s", op_kind_name(named->kind),
             named->weight != NULL ? named->weight->name : graph->activations[group->activation].name);
}

static void note(struct op_check *check, int step_row, const struct row_difference *difference)
{
    bool first = check->row < 0, worse = !(difference->error <= check->error);
    if (first || worse) {
        check->row = step_row;
        check->element = difference->element;
        check->error = difference->error;
        check->device = difference->device;
        check->reference = difference->reference;
    }
}

static void add_check(struct run *run, const struct group *group, struct op_check *check, const char *output,
                      double limit)
{
    if (check->row < 0)
        return; /* no row has reached it */
    name_check(run, group, check);
    check->output = output;
    check->passed = check->error <= limit;
    run->checks.n_failed += !check->passed;
    run->checks.checks[run->checks.n++] = *check;
}

static enum npu_status compare_activation(struct run *run, const struct group *group)
{
    struct checked_rows *rows = &run->sets[group->row_set];
    struct op_check check = {.row = -1}, copy = {.row = -1};
    enum npu_status status = NPU_OK;
    for (int r = 0; r < rows->n && status == NPU_OK; r++) {
        status = verify_read_activation(run->executor, group->row_set, group->activation, rows->places[r], run->device,
                                        run->error);
        if (status != NPU_OK)
            break;
        struct row_difference difference =
            compare_floats(run->device, rows->rows[r].activations[group->activation], group->ranges, group->n_ranges);
        if (group->entry->kind != ENTRY_QUANTIZE)
            note(&check, rows->step_rows[r], &difference);
        if (!(group->entry->flags & FLAG_QUANTIZE))
            continue;
        status = verify_read_quantized(run->executor, group->entry, rows->places[r], &run->copy, run->error);
        if (status == NPU_OK) {
            difference = compare_quantized(&run->copy, run->device, group->entry->quantized_width);
            note(&copy, rows->step_rows[r], &difference);
        }
    }
    if (status == NPU_OK) {
        add_check(run, group, &check, "output", group->entry->kind == ENTRY_GATHER ? 0.0 : run->options->limit);
        add_check(run, group, &copy, "int8 copy", 0.0);
    }
    return status;
}

static enum npu_status compare_cache(struct run *run, const struct group *group)
{
    struct checked_rows *rows = &run->sets[group->row_set];
    struct op_check check = {.row = -1};
    bool values = group->entry->layout == DESTINATION_VALUES, halves = run->executor->kv_element_bytes == 2;
    for (int r = 0; r < rows->n; r++) {
        const struct reference_row *row = &rows->rows[r];
        struct kv_view *view = row->kv.context;
        kv_view_forget(view);
        row->kv.read(view, group->kv_layer, row->position, values ? NULL : run->device, values ? run->device : NULL);
        if (view->status != NPU_OK)
            return npu_error_set(run->error, view->status, "%s", view->error.message);
        struct row_difference difference =
            compare_kv(run->device, row->activations[group->activation], group->ranges[0].n, halves);
        note(&check, rows->step_rows[r], &difference);
    }
    add_check(run, group, &check, values ? "values" : "keys", run->options->limit);
    return NPU_OK;
}

static enum npu_status compare_choices(struct run *run, const struct group *group)
{
    const struct checked_rows *rows = &run->sets[1];
    struct op_check check = {.row = -1};
    for (int r = 0; r < rows->n; r++) {
        const struct step_row *row = &run->step->rows[rows->step_rows[r]];
        int k = row->returns == ROW_RETURN_BEST ? 1 : row->returns == ROW_RETURN_TOP_K ? row->top_k : 0;
        if (k == 0)
            continue;
        float values[2 * SELECT_MAX];
        int32_t tokens[SELECT_MAX];
        enum npu_status status = opencl_executor_read_arena(
            run->executor, run->plan->select_offset + (int64_t)rows->places[r] * run->plan->select_stride, values,
            2 * SELECT_MAX, run->error);
        if (status == NPU_OK)
            status =
                verify_read_activation(run->executor, 1, run->graph->logits, rows->places[r], run->device, run->error);
        if (status != NPU_OK)
            return status;
        memcpy(tokens, values + SELECT_MAX, sizeof tokens);
        struct row_difference difference = compare_choice(values, tokens, k, run->device, run->plan->model->n_vocab);
        note(&check, rows->step_rows[r], &difference);
    }
    add_check(run, group, &check, "choice", 0.0);
    return NPU_OK;
}

/* A gather only copies: what it must give stands in the step's rows. */
static enum npu_status take_gathered(struct run *run, const struct group *group)
{
    struct checked_rows *rows = &run->sets[1];
    enum npu_status status = NPU_OK;
    for (int r = 0; r < rows->n && status == NPU_OK; r++)
        status = verify_read_activation(run->executor, 0, group->activation, rows->step_rows[r],
                                        rows->rows[r].activations[group->activation], run->error);
    return status;
}

static enum npu_status check_group(struct run *run, const struct group *group)
{
    enum npu_status status =
        group->entry->kind == ENTRY_GATHER ? take_gathered(run, group) : take_inputs(run, group);
    if (status == NPU_OK && group->entry->kind == ENTRY_MATMUL && pack_layout_is_quantized(group->entry->layout))
        status = take_quantized_input(run, group, run->graph->ops[group->first_op].in);
    if (status == NPU_OK)
        status = opencl_executor_run_entries(run->executor, group->first, group->last, false, run->error);
    for (int i = 0; i < run->n_views; i++)
        kv_view_forget(&run->views[i]);
    if (status != NPU_OK)
        return status;
    if (group->activation == NO_INDEX)
        return compare_choices(run, group);
    status = run_reference(run, group);
    if (status != NPU_OK)
        return status;
    return group->kv_layer != NO_INDEX ? compare_cache(run, group) : compare_activation(run, group);
}

static enum npu_status check_all(struct run *run)
{
    int end = run->executor->shape.n_returning > 0 ? run->plan->n_entries : run->plan->gather_entry;
    for (int first = 0; first < end;) {
        int last = group_end(run->plan, first);
        enum npu_status status = NPU_OK;
        if (run->selected[first] || run->selected[last - 1]) {
            struct group group = group_at(run, first);
            status = check_group(run, &group);
        } else if (layer_runs(run, run->plan->entries[first].layer)) {
            status = opencl_executor_run_entries(run->executor, first, last, false, run->error);
        }
        if (status != NPU_OK)
            return status;
        first = last;
    }
    return NPU_OK;
}

enum npu_status verify_ops_run(struct op_checks *ret_checks, struct executor *executor, const struct step *step,
                               const struct verify_ops_options *options, struct npu_error *error)
{
    enum npu_status status = step_validate(executor, step, error);
    if (status != NPU_OK)
        return status;
    struct run *run = calloc(1, sizeof *run);
    if (run == NULL)
        return no_memory(error);
    run->executor = (struct opencl_executor *)executor;
    run->plan = run->executor->plan;
    run->graph = &run->plan->model->graph;
    run->step = step;
    run->options = options;
    run->error = error;
    status = opencl_executor_upload(run->executor, step, error);
    if (status == NPU_OK)
        status = prepare_rows(run);
    if (status == NPU_OK) {
        select_entries(run);
        status = check_all(run);
    }
    if (status == NPU_OK) {
        *ret_checks = run->checks;
        run->checks = (struct op_checks){0};
    }
    done(run);
    free(run);
    return status;
}

void op_checks_destroy(struct op_checks *checks)
{
    free(checks->checks);
    *checks = (struct op_checks){0};
}

void op_check_describe(const struct op_check *check, char *text, size_t bytes)
{
    char layer[32] = "";
    if (check->layer != NO_INDEX)
        snprintf(layer, sizeof layer, "layer %d ", check->layer);
    snprintf(text, bytes, "%s%s (kernel %s), row %d, %s %d: device %.9g, reference %.9g", layer, check->name,
             check->kernel, check->row, check->output, check->element, check->device, check->reference);
}
