#include "daemon/constraint.h"

#include <stdio.h>
#include <stdlib.h>

static struct constraint *create(int32_t n_tokens, struct text_error *error)
{
    struct constraint *constraint = calloc(1, sizeof *constraint);
    uint32_t *bits = calloc((size_t)n_tokens / 32 + 1, sizeof *bits);
    if (constraint == NULL || bits == NULL) {
        free(constraint);
        free(bits);
        error->status = TEXT_MEMORY;
        snprintf(error->message, sizeof error->message, "no memory for a constraint");
        return NULL;
    }
    constraint->mask = (struct token_mask){bits, n_tokens};
    return constraint;
}

struct constraint *constraint_create(const struct text_vocabulary *vocabulary, int32_t n_tokens,
                                     enum text_grammar_kind kind, const char *text, size_t length,
                                     struct text_error *error)
{
    struct constraint *constraint = create(n_tokens, error);
    if (constraint != NULL &&
        text_constraint_create(&constraint->text, vocabulary, kind, text, length, error) != TEXT_OK) {
        constraint_destroy(constraint);
        return NULL;
    }
    return constraint;
}

struct constraint *constraint_fork(const struct constraint *constraint, struct text_error *error)
{
    struct constraint *fork = create(constraint->mask.n_tokens, error);
    if (fork != NULL && text_constraint_fork(&fork->text, constraint->text, error) != TEXT_OK) {
        constraint_destroy(fork);
        return NULL;
    }
    return fork;
}

void constraint_destroy(struct constraint *constraint)
{
    if (constraint == NULL)
        return;
    text_constraint_destroy(constraint->text);
    free(constraint->mask.bits);
    free(constraint);
}

void constraint_compute_mask(struct constraint *constraint)
{
    constraint->failed =
        constraint->failed || text_constraint_allowed(constraint->text, constraint->mask.bits, &constraint->is_complete,
                                                      &constraint->error) != TEXT_OK;
}

bool constraint_commit(struct constraint *constraint, int32_t token)
{
    constraint->work = CONSTRAINT_STALE;
    constraint->failed = constraint->failed || text_constraint_commit(constraint->text, token, &constraint->is_complete,
                                                                      &constraint->error) != TEXT_OK;
    return !constraint->failed;
}
