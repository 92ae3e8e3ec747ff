/* The executor: runs steps of a loaded model on a device. The one interface between policy (daemon/) and
 * computing (npu/); no OpenCL type appears here. Implementations: reference (plain C) and OpenCL.
 *
 * A step is R rows, R at most max_rows. Prefill, decode, batching and speculation are all rows: a prefill chunk is n rows
 * of one block table at consecutive positions, a decode of S sessions is S rows of S tables, a mixed step is both.
 * A row's result is bitwise the same in any step, beside any other rows, in any launch mode of one device.
 *
 * Ownership: the executor borrows its model, which must outlive it. Thread: every call from one thread at a time
 * (the engine thread once the daemon runs). */
#ifndef NPU_EXECUTOR_H
#define NPU_EXECUTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npu/error.h"

struct model;

enum {
    KV_BLOCK_TOKENS = 32,       /* positions that one KV block holds, for all layers */
    EXECUTOR_MAX_ROWS = 256,    /* the largest bucket */
    EXECUTOR_MAX_TOP_K = 128,   /* the largest k of ROW_RETURN_TOP_K */
};

enum row_return {
    ROW_RETURN_NOTHING, /* most prefill rows: only their K/V is wanted */
    ROW_RETURN_BEST,    /* the token with the largest logit (the smallest id of equal ones), and that logit */
    ROW_RETURN_TOP_K,   /* the top_k largest logits with their tokens, descending, equal ones by ascending id */
    ROW_RETURN_LOGITS,  /* all n_vocab logits */
    ROW_RETURN_HIDDEN,  /* the n_embd floats after the final norm */
};

struct step_row {
    int32_t token;          /* 0..n_vocab-1 */
    int32_t position;       /* where its K/V is written: block positions / KV_BLOCK_TOKENS of its table */
    int32_t visible_end;    /* positions before this are visible; position + 1 unless the rows of an image see each other */
    uint16_t table;         /* index into step.tables */
    uint8_t returns;        /* enum row_return */
    uint8_t top_k;          /* for ROW_RETURN_TOP_K: 1..EXECUTOR_MAX_TOP_K */
    const float *embedding; /* NULL, or n_embd floats that replace the token's hidden state */
};

struct block_table {
    const int32_t *blocks; /* blocks[i] holds positions i*KV_BLOCK_TOKENS ... ; every position < visible_end has one */
    int32_t n_blocks;
};

/* Rows of one table must be in ascending order of position and next to each other. */
struct step {
    const struct step_row *rows;
    int n_rows; /* 1..EXECUTOR_MAX_ROWS */
    const struct block_table *tables;
    int n_tables;
};

struct token_logit {
    int32_t token;
    float logit;
};

/* Pointers stay valid until the next call on the executor. */
struct row_result {
    struct token_logit best;       /* BEST, TOP_K */
    const struct token_logit *top; /* TOP_K: top_k entries */
    int n_top;
    const float *logits; /* LOGITS: n_vocab floats */
    const float *hidden; /* HIDDEN: n_embd floats */
};

struct executor;

struct executor_interface {
    /* Runs one step. results has step->n_rows entries; those of rows that return nothing are zeroed.
     * On failure the step can be run again: a step is idempotent. */
    enum npu_status (*step)(struct executor *, const struct step *, struct row_result *results, struct npu_error *);
    /* Copies whole KV blocks (all layers) between the pool and host memory, block_bytes each, or inside the pool. */
    enum npu_status (*read_block)(struct executor *, int32_t block, void *to, struct npu_error *);
    enum npu_status (*write_block)(struct executor *, int32_t block, const void *from, struct npu_error *);
    enum npu_status (*copy_block)(struct executor *, int32_t from, int32_t to, struct npu_error *);
    void (*destroy)(struct executor *);
    /* May be NULL. See executor_prefetch_tokens. */
    void (*prefetch)(struct executor *, const int32_t *tokens, int n);
    /* May be NULL. Any thread: how often steps changed over to one op a launch since the start. */
    uint64_t (*launch_switches)(const struct executor *);
};

/* The head of every implementation. Read-only for callers, constant after creation. */
struct executor {
    const struct executor_interface *interface;
    const struct model *model;
    int32_t n_blocks;    /* KV blocks in the pool, numbered from 0 */
    size_t block_bytes;  /* of one block, all layers */
    int32_t n_vocab;
    int32_t n_embd;
    int32_t max_context; /* positions per table */
    int max_rows;        /* rows per step, at most EXECUTOR_MAX_ROWS */
    int max_tables;      /* tables per step */
    int max_returning;   /* rows per step that may return something */
    uint64_t numerics;   /* names the arithmetic: kernels, driver, CPU features, KV type; K/V of another id differs in bits */
};

enum npu_status executor_step(struct executor *executor, const struct step *step, struct row_result *results,
                              struct npu_error *error);
enum npu_status executor_read_block(struct executor *executor, int32_t block, void *to, struct npu_error *error);
enum npu_status executor_write_block(struct executor *executor, int32_t block, const void *from, struct npu_error *error);
enum npu_status executor_copy_block(struct executor *executor, int32_t from, int32_t to, struct npu_error *error);
/* Tells that these tokens will be in steps to come, so that what a step needs of a slow place (rows of a table in the
 * mapped file) is there by then. Advice: the first few hundred count, tokens out of range do not, results never change.
 * Returns at once. */
void executor_prefetch_tokens(struct executor *executor, const int32_t *tokens, int n);
uint64_t executor_launch_switches(const struct executor *executor); /* 0 where there is one way to launch only */
void executor_destroy(struct executor *executor); /* NULL is fine */

#endif
