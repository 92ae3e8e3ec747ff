/* An executor without a model: the logits of a row are a hash of everything that was written into the positions that it
 * sees. A wrong block table, a missing or foreign K/V, a block that was given to two owners: each changes the answer. What
 * the answer must be follows from the tokens alone (fake_logits, fake_best). Breaking a rule of npu/executor.h aborts. */
#ifndef TESTS_FAKE_EXECUTOR_H
#define TESTS_FAKE_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "npu/executor.h"

struct fake_options {
    int32_t n_blocks, n_vocab, max_context;
    int max_rows, max_tables, max_returning;
};

struct fake_executor {
    struct executor base;
    uint64_t *clock_us; /* NULL, or what a step moves forward */
    uint64_t row_us; /* by this much for each row of the bucket */
    uint64_t step_us; /* and by this much */
    unsigned sleep_us; /* real time that a step takes */
    int fail_steps; /* so many next steps fail, half done */
    bool fail_copies;
    bool fail_transfers; /* reading and writing of blocks */
    uint64_t n_steps, n_rows, n_copies;
    uint64_t n_unannounced; /* rows whose token nobody had announced (executor_prefetch_tokens) */
    bool *announced; /* by token */
    int32_t *writer; /* of each block in this step: a table or -1 */
    uint64_t *slots; /* KV_BLOCK_TOKENS per block */
    float *logits; /* max_returning rows */
    struct token_logit *top;
};

struct fake_executor *fake_create(struct fake_options options); /* executor_destroy(&fake->base) ends it */

void fake_logits(const int32_t *tokens, int32_t n, int32_t n_vocab, float *logits);
int32_t fake_best(const int32_t *tokens, int32_t n, int32_t n_vocab);

/* Fills a block with what no history gives. */
void fake_poison(struct fake_executor *fake, int32_t block);

#endif
