/* Rows of a table that is too big to copy, read ahead by threads of its own: a row that is not in memory yet costs a step
 * the wait for that row at most, and nothing where it was asked for early enough. Keeps a bounded number of rows as they
 * stand in the table.
 *
 * Thread: one caller. Owns its threads and copies; read's context must outlive it. */
#ifndef NPU_OPENCL_LOOKUP_READER_H
#define NPU_OPENCL_LOOKUP_READER_H

#include <stddef.h>
#include <stdint.h>

#include "npu/error.h"

struct lookup_reader;

struct lookup_reader_options {
    /* Copies a token's row (row_bytes) to `to`; may block. Called from several threads at once. */
    void (*read)(void *context, int32_t token, void *to);
    void *context;
    size_t row_bytes;
    int capacity; /* rows that are kept */
    int max_rows; /* rows of a step; with n_threads at most capacity */
    int n_threads;
};

enum npu_status lookup_reader_create(struct lookup_reader **ret_reader, const struct lookup_reader_options *options,
                                     struct npu_error *error);
void lookup_reader_destroy(struct lookup_reader *reader); /* NULL is fine; waits for reads that are under way */

/* These rows are about to be used: reads them in the background. At most half of the capacity is taken, the rest of the
 * tokens is left out. Never waits for a read. */
void lookup_reader_ask(struct lookup_reader *reader, const int32_t *tokens, int n);

/* The rows of a step, n at most max_rows: waits for those that are not there, which are read before any that were only
 * asked for. rows stay valid until the next call. Returns how many were not there. */
int lookup_reader_hold(struct lookup_reader *reader, const int32_t *tokens, int n, const void **rows);

#endif
