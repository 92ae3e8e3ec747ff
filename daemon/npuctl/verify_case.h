/* What a verification compares with: prompts with the reference's logits and greedy tokens, either read from a file made
 * elsewhere or computed by the reference executor. */
#ifndef DAEMON_NPUCTL_VERIFY_CASE_H
#define DAEMON_NPUCTL_VERIFY_CASE_H

#include <stdint.h>

#include "npu/error.h"
#include "npu/executor.h"

/* Step k's logits follow the prompt and the tokens of steps 0 .. k-1; its token is their argmax. */
struct verify_case {
    int32_t *prompt;
    int n_prompt;
    int32_t *tokens; /* n_steps */
    int n_steps;
    float *prefill_logits; /* n_prompt * n_vocab, or NULL */
    float *step_logits; /* n_steps * n_vocab */
};

struct verify_cases {
    struct verify_case *cases;
    int n_cases;
};

/* {"cases":[{"prompt":[ids], "prefill_logits":[[...], ...] or null, "steps":[{"logits":[...], "argmax":id}, ...]}]} */
enum npu_status verify_cases_read(struct verify_cases *ret_cases, const char *path, int32_t n_vocab,
                                  struct npu_error *error);

/* Runs executor (one table, KV blocks from 0) over the prompt and n_steps greedy steps. */
enum npu_status verify_cases_compute(struct verify_cases *ret_cases, struct executor *executor, const int32_t *prompt,
                                     int n_prompt, int n_steps, struct npu_error *error);

void verify_cases_destroy(struct verify_cases *cases);

/* The most positions that a case takes. */
int verify_cases_positions(const struct verify_cases *cases);

/* Feeds tokens at positions first ... of one table and copies the logits of each to logits (n * n_vocab). */
enum npu_status verify_feed(struct executor *executor, const int32_t *tokens, int n, int first, float *logits,
                            struct npu_error *error);

#endif
