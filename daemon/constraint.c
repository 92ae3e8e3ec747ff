#include "daemon/constraint.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct constraint_source {
    atomic_int n_users;
    struct text_constraint *text; /* never changed */
};

static struct constraint *out_of_memory(struct text_error *error)
{
    error->status = TEXT_MEMORY;
    snprintf(error->message, sizeof error->message, "no memory for a constraint");
    return NULL;
}

static struct constraint *create(struct constraint_source *source, int32_t n_tokens, struct text_error *error)
{
    struct constraint *constraint = calloc(1, sizeof *constraint);
    if (constraint == NULL)
        return out_of_memory(error);
    atomic_fetch_add(&source->n_users, 1);
    constraint->source = source;
    constraint->n_tokens = n_tokens;
    return constraint;
}

static void release(struct constraint_source *source)
{
    if (atomic_fetch_sub(&source->n_users, 1) > 1)
        return;
    text_constraint_destroy(source->text);
    free(source);
}

struct constraint *constraint_create(const struct text_vocabulary *vocabulary, int32_t n_tokens,
                                     enum text_grammar_kind kind, const char *text, size_t length,
                                     struct text_error *error)
{
    struct constraint_source *source = calloc(1, sizeof *source);
    if (source == NULL)
        return out_of_memory(error);
    atomic_init(&source->n_users, 1);
    struct constraint *constraint = NULL;
    if (text_constraint_create(&source->text, vocabulary, kind, text, length, error) == TEXT_OK)
        constraint = create(source, n_tokens, error);
    release(source);
    return constraint;
}

struct constraint *constraint_repeat(const struct constraint *constraint, struct text_error *error)
{
    return create(constraint->source, constraint->n_tokens, error);
}

void constraint_destroy(struct constraint *constraint)
{
    if (constraint == NULL)
        return;
    release(constraint->source);
    text_constraint_destroy(constraint->text);
    free(constraint->mask.bits);
    free(constraint);
}

/* What a constraint has of its own. */
static bool has_begun(struct constraint *constraint)
{
    if (constraint->failed || constraint->text != NULL)
        return !constraint->failed;
    constraint->mask.n_tokens = constraint->n_tokens;
    constraint->mask.bits = calloc((size_t)constraint->n_tokens / 32 + 1, sizeof *constraint->mask.bits);
    if (constraint->mask.bits == NULL)
        out_of_memory(&constraint->error);
    constraint->failed =
        constraint->mask.bits == NULL ||
        text_constraint_fork(&constraint->text, constraint->source->text, &constraint->error) != TEXT_OK;
    return !constraint->failed;
}

void constraint_compute_mask(struct constraint *constraint)
{
    if (has_begun(constraint))
        constraint->failed = text_constraint_allowed(constraint->text, constraint->mask.bits, &constraint->is_complete,
                                                     &constraint->error) != TEXT_OK;
}

bool constraint_commit(struct constraint *constraint, int32_t token)
{
    constraint->work = CONSTRAINT_STALE;
    if (has_begun(constraint))
        constraint->failed =
            text_constraint_commit(constraint->text, token, &constraint->is_complete, &constraint->error) != TEXT_OK;
    return !constraint->failed;
}
