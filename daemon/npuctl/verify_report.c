#include "daemon/npuctl/verify_report.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void count(struct verify_report *report, const struct logit_comparison *comparison)
{
    report->n_compared++;
    report->n_agree += comparison->argmax_agrees;
    report->n_near_ties += !comparison->argmax_agrees && comparison->near_tie;
    report->mean_peir += (comparison->peir - report->mean_peir) / report->n_compared;
    report->max_peir = fmax(report->max_peir, comparison->peir);
    report->max_difference = fmax(report->max_difference, comparison->max_difference);
}

static enum npu_status run_prefill(struct verify_report *report, struct verify_case_report *result,
                                   struct executor *executor, const struct verify_case *c, float *logits,
                                   struct npu_error *error)
{
    enum npu_status status = verify_feed(executor, c->prompt, c->n_prompt, 0, logits, error);
    if (status != NPU_OK || c->prefill_logits == NULL)
        return status;
    result->prefill = calloc((size_t)c->n_prompt, sizeof *result->prefill);
    if (result->prefill == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the report");
    result->n_prefill = c->n_prompt;
    for (int i = 0; i < c->n_prompt; i++) {
        size_t offset = (size_t)i * (size_t)executor->n_vocab;
        result->prefill[i] = logit_compare(logits + offset, c->prefill_logits + offset, executor->n_vocab);
        count(report, &result->prefill[i]);
    }
    return NPU_OK;
}

static enum npu_status run_case(struct verify_report *report, struct verify_case_report *result,
                                struct executor *executor, const struct verify_case *c, bool same_token,
                                struct npu_error *error)
{
    size_t n_vocab = (size_t)executor->n_vocab;
    result->first_divergence = -1;
    result->steps = calloc((size_t)c->n_steps + 1, sizeof *result->steps);
    float *prompt_logits = malloc((size_t)c->n_prompt * n_vocab * sizeof *prompt_logits);
    enum npu_status status = NPU_OK;
    if (result->steps == NULL || prompt_logits == NULL) {
        status = npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the logits of %d tokens", c->n_prompt);
        goto cleanup;
    }
    status = run_prefill(report, result, executor, c, prompt_logits, error);
    float *logits = prompt_logits + (size_t)(c->n_prompt - 1) * n_vocab;
    for (int k = 0; status == NPU_OK && k < c->n_steps; k++) {
        if (k > 0) {
            if (!same_token && result->first_divergence >= 0)
                break;
            logits = prompt_logits; /* no longer needed: room for one row */
            status = verify_feed(executor, &c->tokens[k - 1], 1, c->n_prompt + k - 1, logits, error);
            if (status != NPU_OK)
                break;
        }
        struct logit_comparison *comparison = &result->steps[k];
        *comparison = logit_compare(logits, c->step_logits + (size_t)k * n_vocab, executor->n_vocab);
        result->n_compared = k + 1;
        if (result->first_divergence < 0 && comparison->argmax != c->tokens[k])
            result->first_divergence = k;
        /* Step 0 is the prompt's last position, which the prefill has counted where it was compared. */
        if (k > 0 || result->prefill == NULL)
            count(report, comparison);
    }
cleanup:
    free(prompt_logits);
    return status;
}

enum npu_status verify_run(struct verify_report *ret_report, struct executor *executor,
                           const struct verify_cases *cases, bool same_token, struct npu_error *error)
{
    struct verify_report report = {.cases = calloc((size_t)cases->n_cases, sizeof *report.cases),
                                   .n_cases = cases->n_cases};
    if (report.cases == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the report");
    enum npu_status status = NPU_OK;
    for (int i = 0; status == NPU_OK && i < cases->n_cases; i++)
        status = run_case(&report, &report.cases[i], executor, &cases->cases[i], same_token, error);
    if (status != NPU_OK) {
        verify_report_destroy(&report);
        return status;
    }
    *ret_report = report;
    return NPU_OK;
}

void verify_report_destroy(struct verify_report *report)
{
    for (int i = 0; i < report->n_cases; i++) {
        free(report->cases[i].prefill);
        free(report->cases[i].steps);
    }
    free(report->cases);
    *report = (struct verify_report){0};
}

bool verify_report_passes(const struct verify_report *report, const struct verify_limits *limits)
{
    /* Written so that a NaN fails. */
    return report->mean_peir <= limits->mean_peir && report->max_peir <= limits->max_peir &&
           report->max_difference <= limits->max_difference &&
           report->n_agree + (limits->no_near_ties ? 0 : report->n_near_ties) == report->n_compared;
}

static void print_line(const char *label, const struct logit_comparison *c, FILE *out)
{
    fprintf(out, "%-10s %10.3g %10.3g %9.5f  %7d %9d  %s\n", label, c->mean_difference, c->max_difference, c->peir,
            c->argmax, c->reference_argmax,
            c->argmax_agrees ? "same"
            : c->near_tie    ? "near tie"
                             : "WRONG");
}

void verify_report_print(const struct verify_report *report, const char *tested, bool passed, FILE *out)
{
    fprintf(out, "tested: %s\n", tested);
    for (int i = 0; i < report->n_cases; i++) {
        const struct verify_case_report *c = &report->cases[i];
        fprintf(out, "case %d\n%-10s %10s %10s %9s  %7s %9s\n", i, "", "mean|diff|", "max|diff|", "PEIR", "choice",
                "reference");
        char label[32];
        for (int p = 0; p < c->n_prefill; p++) {
            snprintf(label, sizeof label, "prompt %d", p);
            print_line(label, &c->prefill[p], out);
        }
        for (int k = 0; k < c->n_compared; k++) {
            snprintf(label, sizeof label, "step %d", k);
            print_line(label, &c->steps[k], out);
        }
        if (c->first_divergence >= 0)
            fprintf(out, "the choices differ first at step %d\n", c->first_divergence);
    }
    fprintf(out,
            "PEIR mean %.5f, worst %.5f; max|diff| %.3g; %d of %d choices are the reference's, %d near ties, %d wrong: "
            "%s\n",
            report->mean_peir, report->max_peir, report->max_difference, report->n_agree, report->n_compared,
            report->n_near_ties, report->n_compared - report->n_agree - report->n_near_ties,
            passed ? "passed" : "FAILED");
}

/* JSON has no infinity: null stands for it. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *comparison_json(const struct logit_comparison *c)
{
    return json_pack("{s:o, s:o, s:o, s:i, s:i, s:b, s:b}", "mean_difference", number(c->mean_difference),
                     "max_difference", number(c->max_difference), "peir", number(c->peir), "argmax", c->argmax,
                     "reference_argmax", c->reference_argmax, "argmax_agrees", c->argmax_agrees, "near_tie",
                     c->near_tie);
}

static json_t *comparisons_json(const struct logit_comparison *comparisons, int n)
{
    json_t *array = json_array();
    for (int i = 0; array != NULL && i < n; i++) {
        if (json_array_append_new(array, comparison_json(&comparisons[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *case_json(const struct verify_case_report *c)
{
    json_t *divergence = c->first_divergence < 0 ? json_null() : json_integer(c->first_divergence);
    return json_pack("{s:o, s:o, s:o}", "prefill", comparisons_json(c->prefill, c->n_prefill), "steps",
                     comparisons_json(c->steps, c->n_compared), "first_divergence", divergence);
}

bool verify_report_print_json(const struct verify_report *report, const char *tested, bool passed, FILE *out)
{
    json_t *cases = json_array();
    for (int i = 0; i < report->n_cases; i++) {
        if (json_array_append_new(cases, case_json(&report->cases[i])) != 0) {
            json_decref(cases);
            return false;
        }
    }
    json_t *root = json_pack("{s:s, s:o, s:o, s:o, s:o, s:i, s:i, s:i, s:b}", "tested", tested, "cases", cases,
                             "mean_peir", number(report->mean_peir), "max_peir", number(report->max_peir),
                             "max_difference", number(report->max_difference), "compared", report->n_compared,
                             "argmax_agrees", report->n_agree, "near_ties", report->n_near_ties, "passed", passed);
    bool written =
        root != NULL && json_dumpf(root, out, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0 && fputc('\n', out) != EOF;
    json_decref(root);
    return written;
}
