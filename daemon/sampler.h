/* Choosing the next token from a row's result. The order is: penalties (repeat, presence, frequency) and bias on the raw
 * logits, the mask of a constraint, temperature, top_k, top_p, min_p (each over what the one before left, renormalised), one
 * draw.
 *
 * Deterministic: the same seed and the same logits give the same tokens, whatever runs beside it and whichever kind of row
 * result they come in. Equal logits: the smallest id first. NaN counts as minus infinity.
 * Source: OpenAI's API reference; min_p: Nguyen et al. 2024 (arXiv 2407.01082); xoshiro256**: Blackman and Vigna 2018.
 *
 * Pure. Thread: one at a time per sampler and per scratch. */
#ifndef DAEMON_SAMPLER_H
#define DAEMON_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/generation.h"
#include "npu/error.h"
#include "npu/executor.h"

struct sampler;
struct sampler_scratch;

/* Tokens that a constraint allows: token t if bit t % 32 of bits[t / 32] is set; none from n_tokens on. */
struct token_mask {
    uint32_t *bits;
    int32_t n_tokens;
};

/* Working memory for a vocabulary, shared by any number of samplers. */
enum npu_status sampler_scratch_create(struct sampler_scratch **ret_scratch, int32_t n_vocab, struct npu_error *error);
void sampler_scratch_destroy(struct sampler_scratch *scratch); /* NULL is fine */

struct sampler_options {
    int32_t n_vocab;
    const int32_t *banned; /* tokens that are never chosen; copied */
    int n_banned;
    bool needs_logits; /* they are wanted anyway (logprobs), or masked */
};

/* Copies what it needs. */
enum npu_status sampler_create(struct sampler **ret_sampler, const struct sampling *sampling,
                               const struct sampler_options *options, struct npu_error *error);
void sampler_destroy(struct sampler *sampler); /* NULL is fine */

/* The least that the sampler needs of a row: the best token, the top k, or all logits. Constant. */
void sampler_row_return(const struct sampler *sampler, uint8_t *ret_returns, uint8_t *ret_top_k);

/* The prompt, for the repeat penalty. False: no memory. */
bool sampler_see_prompt(struct sampler *sampler, const int32_t *tokens, int32_t n_tokens);

/* The next token, from a row of the kind that sampler_row_return says (or with all logits). It counts as output for the
 * penalties. mask: NULL, or the tokens that may come, at least one of them not banned; the row must have all logits.
 * Negative: no memory. */
int32_t sampler_choose(struct sampler *sampler, struct sampler_scratch *scratch, const struct row_result *result,
                       const struct token_mask *mask);

/* Log-probabilities of the raw logits: the token's, and the n_top most probable ones, descending. Nothing is less than
 * SAMPLER_LEAST_LOGPROB. */
#define SAMPLER_LEAST_LOGPROB (-9999.0f)
float sampler_logprob(const float *logits, int32_t n_vocab, int32_t token, struct token_probability *top, int n_top);

#endif
