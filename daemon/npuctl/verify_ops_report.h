/* npuctl verify --ops: every op of a prompt's step and of greedy steps after it against the reference. */
#ifndef DAEMON_NPUCTL_VERIFY_OPS_REPORT_H
#define DAEMON_NPUCTL_VERIFY_OPS_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "npu/executor.h"
#include "npu/verify_ops.h"

/* All checks of one kernel's output: how many, and the worst. */
struct verify_ops_line {
    struct op_check worst;
    int n, n_failed;
};

enum {
    VERIFY_OPS_MAX_LINES = 64,
    VERIFY_OPS_MAX_FAILURES = 20 /* described one by one */
};

struct verify_ops_report {
    struct verify_ops_line lines[VERIFY_OPS_MAX_LINES];
    int n_lines;
    struct op_check failures[VERIFY_OPS_MAX_FAILURES];
    int n_checked, n_failed, n_steps;
};

/* Runs the prompt in chunks, then n_steps of the device's own choices, all in one table of KV blocks from 0. */
enum npu_status verify_ops_report_run(struct verify_ops_report *report, struct executor *executor,
                                      const int32_t *prompt, int n_prompt, int n_steps, struct npu_error *error);

void verify_ops_report_print(const struct verify_ops_report *report, const char *tested, FILE *out);
/* One JSON object and a newline; false: no memory or the file failed. */
bool verify_ops_report_print_json(const struct verify_ops_report *report, const char *tested, FILE *out);

#endif
