/* A verification's run and its outcome. */
#ifndef DAEMON_NPUCTL_VERIFY_REPORT_H
#define DAEMON_NPUCTL_VERIFY_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "daemon/npuctl/verify_case.h"
#include "npu/compare.h"

struct verify_case_report {
    struct logit_comparison *prefill; /* one per token of the prompt, or NULL: the reference has none */
    int n_prefill;
    struct logit_comparison *steps;
    int n_compared; /* steps that had the same tokens before them on both sides */
    int first_divergence; /* the step whose tokens differ first; -1: none */
};

struct verify_report {
    struct verify_case_report *cases;
    int n_cases;
    int n_compared, n_agree, n_near_ties; /* of all logit vectors */
    double mean_peir, max_peir, max_difference;
};

/* Feeds the cases to executor. same_token: the reference's tokens, else the executor's own, and comparing ends where they
 * part. */
enum npu_status verify_run(struct verify_report *ret_report, struct executor *executor,
                           const struct verify_cases *cases, bool same_token, struct npu_error *error);
void verify_report_destroy(struct verify_report *report);

struct verify_limits {
    double mean_peir; /* limits; infinite: not asked for */
    double max_peir; /* of every logit vector */
    double max_difference; /* of every logit vector */
    bool no_near_ties;
};

/* Within the limits, and every choice is the reference's or (unless forbidden) a near tie. */
bool verify_report_passes(const struct verify_report *report, const struct verify_limits *limits);

void verify_report_print(const struct verify_report *report, const char *tested, bool passed, FILE *out);
/* One JSON object and a newline; false: no memory or the file failed. */
bool verify_report_print_json(const struct verify_report *report, const char *tested, bool passed, FILE *out);

#endif
