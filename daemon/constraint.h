/* What the text of a generation must match: a grammar at some point of the text, and the tokens that may come next.
 *
 * One thread at a time, but for what mask_worker.h says. */
#ifndef DAEMON_CONSTRAINT_H
#define DAEMON_CONSTRAINT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/sampler.h"
#include "npu/error.h"
#include "proto/text_library.h"

enum constraint_work {
    CONSTRAINT_STALE, /* the mask is of an earlier point */
    CONSTRAINT_QUEUED,
    CONSTRAINT_RUNNING,
    CONSTRAINT_READY,
};

struct constraint_source;

struct constraint {
    struct constraint_source *source; /* what several have in common: the grammar at its beginning */
    struct text_constraint *text; /* owned; copied from the source when it is needed: it may take megabytes */
    int32_t n_tokens;
    struct token_mask mask; /* owned; valid when READY and not failed */
    bool is_complete; /* only the end may follow */
    bool failed; /* for ever; error says why */
    struct text_error error;
    /* The mask worker's. */
    enum constraint_work work;
    struct constraint *next;
};

/* Compiles a grammar; see text_constraint_create for kinds, limits and messages. NULL: error is set. */
struct constraint *constraint_create(const struct text_vocabulary *vocabulary, int32_t n_tokens,
                                     enum text_grammar_kind kind, const char *text, size_t length,
                                     struct text_error *error);
/* Another one of the same grammar, at its beginning; from then on the two may be on different threads. Cheap until its
 * first mask. NULL: error is set. */
struct constraint *constraint_repeat(const struct constraint *constraint, struct text_error *error);
void constraint_destroy(struct constraint *constraint); /* NULL is fine */

/* Sets mask and is_complete, or failed. */
void constraint_compute_mask(struct constraint *constraint);

/* The token, one of the mask's, has come. False: it failed. */
bool constraint_commit(struct constraint *constraint, int32_t token);

#endif
