#include "daemon/npuctl/verify_ops_report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct verify_ops_options check_all = {.limit = VERIFY_OPS_LIMIT};

static void count(struct verify_ops_report *report, const struct op_check *check)
{
    report->n_checked++;
    if (!check->passed && report->n_failed < VERIFY_OPS_MAX_FAILURES)
        report->failures[report->n_failed] = *check;
    report->n_failed += !check->passed;
    struct verify_ops_line *line = report->lines, *end = report->lines + report->n_lines;
    while (line < end && (strcmp(line->worst.kernel, check->kernel) != 0 || line->worst.output != check->output))
        line++;
    if (line == end) {
        if (report->n_lines == VERIFY_OPS_MAX_LINES)
            return;
        *line = (struct verify_ops_line){.worst = *check};
        report->n_lines++;
    }
    line->n++;
    line->n_failed += !check->passed;
    if (!(check->error <= line->worst.error))
        line->worst = *check;
}

/* Checks n tokens at positions first ... as one step, and asks the device what comes next. */
static enum npu_status check_step(struct verify_ops_report *report, struct executor *executor,
                                  const struct block_table *table, const int32_t *tokens, int n, int first,
                                  int32_t *next, struct npu_error *error)
{
    struct step_row rows[EXECUTOR_MAX_ROWS];
    struct row_result results[EXECUTOR_MAX_ROWS];
    memset(rows, 0, sizeof rows);
    for (int i = 0; i < n; i++)
        rows[i] = (struct step_row){.token = tokens[i], .position = first + i, .visible_end = first + i + 1};
    rows[n - 1].returns = ROW_RETURN_BEST;
    struct step step = {rows, n, table, 1};
    struct op_checks checks = {0};
    enum npu_status status = verify_ops_run(&checks, executor, &step, &check_all, error);
    for (int i = 0; i < checks.n; i++)
        count(report, &checks.checks[i]);
    op_checks_destroy(&checks);
    report->n_steps++;
    if (status == NPU_OK)
        status = executor_step(executor, &step, results, error);
    if (status == NPU_OK)
        *next = results[n - 1].best.token;
    return status;
}

enum npu_status verify_ops_report_run(struct verify_ops_report *report, struct executor *executor,
                                      const int32_t *prompt, int n_prompt, int n_steps, struct npu_error *error)
{
    *report = (struct verify_ops_report){0};
    int n_blocks = (n_prompt + n_steps + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    int32_t *blocks = malloc((size_t)n_blocks * sizeof *blocks);
    if (blocks == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for a block table");
    for (int i = 0; i < n_blocks; i++)
        blocks[i] = i;
    struct block_table table = {blocks, n_blocks};
    enum npu_status status = NPU_OK;
    int32_t token = 0;
    for (int at = 0; at < n_prompt && status == NPU_OK;) {
        int n = n_prompt - at < executor->max_rows ? n_prompt - at : executor->max_rows;
        status = check_step(report, executor, &table, prompt + at, n, at, &token, error);
        at += n;
    }
    for (int k = 0; k < n_steps && status == NPU_OK; k++) {
        int32_t fed = token;
        status = check_step(report, executor, &table, &fed, 1, n_prompt + k, &token, error);
    }
    free(blocks);
    return status;
}

void verify_ops_report_print(const struct verify_ops_report *report, const char *tested, FILE *out)
{
    char text[512];
    fprintf(out, "tested: %s\n%-16s %-10s %7s %12s  worst\n", tested, "kernel", "", "checks", "error");
    for (int i = 0; i < report->n_lines; i++) {
        const struct verify_ops_line *line = &report->lines[i];
        op_check_describe(&line->worst, text, sizeof text);
        fprintf(out, "%-16s %-10s %7d %12.3g  %s\n", line->worst.kernel, line->worst.output, line->n, line->worst.error,
                text);
    }
    for (int i = 0; i < report->n_failed && i < VERIFY_OPS_MAX_FAILURES; i++) {
        op_check_describe(&report->failures[i], text, sizeof text);
        fprintf(out, "WRONG %s\n", text);
    }
    fprintf(out, "%d steps, %d ops checked, %d wrong: %s\n", report->n_steps, report->n_checked, report->n_failed,
            report->n_failed == 0 ? "passed" : "FAILED");
}

/* JSON has no infinity: null stands for it. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *check_json(const struct op_check *check)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:i, s:i, s:o, s:o, s:o}", "layer", check->layer, "name", check->name,
                     "kernel", check->kernel, "output", check->output, "row", check->row, "element", check->element,
                     "error", number(check->error), "device", number(check->device), "reference",
                     number(check->reference));
}

bool verify_ops_report_print_json(const struct verify_ops_report *report, const char *tested, FILE *out)
{
    json_t *kernels = json_array(), *failures = json_array();
    for (int i = 0; i < report->n_lines; i++) {
        const struct verify_ops_line *line = &report->lines[i];
        json_array_append_new(kernels, json_pack("{s:i, s:i, s:o}", "checked", line->n, "wrong", line->n_failed,
                                                 "worst", check_json(&line->worst)));
    }
    for (int i = 0; i < report->n_failed && i < VERIFY_OPS_MAX_FAILURES; i++)
        json_array_append_new(failures, check_json(&report->failures[i]));
    bool complete = json_array_size(kernels) == (size_t)report->n_lines;
    json_t *root = json_pack("{s:s, s:i, s:i, s:i, s:o, s:o, s:b}", "tested", tested, "steps", report->n_steps,
                             "checked", report->n_checked, "wrong", report->n_failed, "kernels", kernels, "failures",
                             failures, "passed", report->n_failed == 0);
    bool written = complete && root != NULL && json_dumpf(root, out, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0 &&
                   fputc('\n', out) != EOF;
    json_decref(root);
    return written;
}
