#include "daemon/chat_history.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "daemon/tokenizer.h"

enum {
    MAX_RECORDS = 4096,
};

struct record {
    struct record *previous, *next; /* the most recently used first */
    char *text;
    size_t length;
    int32_t *tokens;
    uint32_t *ends; /* by token: where its text ends; ascending while it is known, then UNKNOWN */
    int32_t n_tokens;
};

#define UNKNOWN UINT32_MAX

struct chat_history {
    const struct tokenizer *tokenizer;
    uv_mutex_t mutex;
    struct record *first, *last;
    int n_records;
    size_t bytes, max_bytes;
};

struct chat_history *chat_history_create(const struct tokenizer *tokenizer, size_t max_bytes)
{
    struct chat_history *history = calloc(1, sizeof *history);
    if (history == NULL)
        return NULL;
    history->tokenizer = tokenizer;
    history->max_bytes = max_bytes;
    if (uv_mutex_init(&history->mutex) == 0)
        return history;
    free(history);
    return NULL;
}

static size_t record_bytes(const struct record *record)
{
    return sizeof *record + record->length + (size_t)record->n_tokens * (sizeof *record->tokens + sizeof *record->ends);
}

static void free_record(struct record *record)
{
    if (record == NULL)
        return;
    free(record->text);
    free(record->tokens);
    free(record->ends);
    free(record);
}

static void unlink_record(struct chat_history *history, struct record *record)
{
    *(record->previous != NULL ? &record->previous->next : &history->first) = record->next;
    *(record->next != NULL ? &record->next->previous : &history->last) = record->previous;
}

static void link_first(struct chat_history *history, struct record *record)
{
    record->previous = NULL;
    record->next = history->first;
    *(history->first != NULL ? &history->first->previous : &history->last) = record;
    history->first = record;
}

static void forget(struct chat_history *history, struct record *record)
{
    unlink_record(history, record);
    history->n_records--;
    history->bytes -= record_bytes(record);
    free_record(record);
}

void chat_history_destroy(struct chat_history *history)
{
    if (history == NULL)
        return;
    while (history->first != NULL)
        forget(history, history->first);
    uv_mutex_destroy(&history->mutex);
    free(history);
}

/* Where each token's text ends. Some tokenizers put a space before a text that has none. */
static void find_ends(const struct tokenizer *tokenizer, const char *text, size_t text_length, const int32_t *tokens,
                      int32_t n_tokens, uint32_t *ends)
{
    size_t at = 0;
    int32_t i = 0;
    for (; i < n_tokens; i++) {
        size_t length;
        const char *piece = tokenizer_piece(tokenizer, tokens[i], &length);
        bool same = length <= text_length - at && memcmp(piece, text + at, length) == 0;
        if (!same && length > 0 && piece[0] == ' ') {
            piece++;
            length--;
            same = length <= text_length - at && memcmp(piece, text + at, length) == 0;
        }
        if (!same)
            break;
        at += length;
        ends[i] = (uint32_t)at;
    }
    for (; i < n_tokens; i++)
        ends[i] = UNKNOWN;
    if (n_tokens > 0)
        ends[n_tokens - 1] = (uint32_t)text_length; /* that much is certain */
}

static struct record *create_record(const struct tokenizer *tokenizer, const char *text, size_t length,
                                    const int32_t *tokens, int32_t n_tokens)
{
    struct record *record = calloc(1, sizeof *record);
    if (record == NULL)
        return NULL;
    record->length = length;
    record->n_tokens = n_tokens;
    record->text = malloc(length);
    record->tokens = malloc((size_t)n_tokens * sizeof *record->tokens);
    record->ends = malloc((size_t)n_tokens * sizeof *record->ends);
    if (record->text == NULL || record->tokens == NULL || record->ends == NULL) {
        free_record(record);
        return NULL;
    }
    memcpy(record->text, text, length);
    memcpy(record->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    find_ends(tokenizer, text, length, tokens, n_tokens, record->ends);
    return record;
}

void chat_history_add(struct chat_history *history, const char *text, size_t length, const int32_t *tokens,
                      int32_t n_tokens)
{
    if (length == 0 || n_tokens == 0 || length >= UNKNOWN)
        return;
    struct record *added = create_record(history->tokenizer, text, length, tokens, n_tokens);
    if (added == NULL)
        return;
    uv_mutex_lock(&history->mutex);
    struct record *next, *record = history->first;
    for (; record != NULL; record = next) {
        next = record->next;
        if (record->length <= length && memcmp(record->text, text, record->length) == 0)
            forget(history, record);
    }
    link_first(history, added);
    history->n_records++;
    history->bytes += record_bytes(added);
    while (history->last != NULL && (history->bytes > history->max_bytes || history->n_records > MAX_RECORDS))
        forget(history, history->last);
    uv_mutex_unlock(&history->mutex);
}

static size_t common_length(const char *a, const char *b, size_t limit)
{
    size_t n = 0;
    while (n + 64 <= limit && memcmp(a + n, b + n, 64) == 0)
        n += 64;
    while (n < limit && a[n] == b[n])
        n++;
    return n;
}

static struct record *longest_common(const struct chat_history *history, const char *text, size_t length,
                                     size_t *ret_common)
{
    struct record *best = NULL;
    *ret_common = 0;
    for (struct record *record = history->first; record != NULL; record = record->next) {
        size_t common = common_length(record->text, text, record->length < length ? record->length : length);
        if (common <= *ret_common)
            continue;
        best = record;
        *ret_common = common;
    }
    return best;
}

/* Where the record's tokens [0, n_said) may take the place of the prompt's [0, n_given). */
struct splice {
    int32_t n_said, n_given;
};

static bool ends_before(const struct record *record, int32_t token, uint32_t end)
{
    return record->ends[token] == UNKNOWN ? end >= record->length : record->ends[token] < end;
}

/* The last place up to common bytes where a token ends on both sides beside a control token: there the tokenizer starts
 * anew. Nothing is gained by a place before the first difference. */
static struct splice find_splice(const struct chat_history *history, const struct record *record, size_t common,
                                 const int32_t *given, const uint32_t *ends, int32_t n_given)
{
    struct splice splice = {0, 0};
    int32_t said = 0;
    for (int32_t i = 0; i < n_given && ends[i] <= common; i++) {
        while (said < record->n_tokens - 1 && ends_before(record, said, ends[i]))
            said++;
        bool beside_control = tokenizer_is_control(history->tokenizer, given[i]) ||
                              (i + 1 < n_given && tokenizer_is_control(history->tokenizer, given[i + 1]));
        if (record->ends[said] == ends[i] && beside_control)
            splice = (struct splice){said + 1, i + 1};
    }
    return splice;
}

static bool is_worth_it(const struct record *record, const struct splice *splice, const int32_t *given)
{
    return splice->n_said > 0 && (splice->n_said != splice->n_given ||
                                  memcmp(record->tokens, given, (size_t)splice->n_said * sizeof *given) != 0);
}

static bool replace(const struct record *record, const struct splice *splice, int32_t **tokens, int32_t *n_tokens)
{
    int32_t n_rest = *n_tokens - splice->n_given;
    int32_t *joined = malloc((size_t)(splice->n_said + n_rest + 1) * sizeof *joined);
    if (joined == NULL)
        return false;
    memcpy(joined, record->tokens, (size_t)splice->n_said * sizeof *joined);
    memcpy(joined + splice->n_said, *tokens + splice->n_given, (size_t)n_rest * sizeof *joined);
    free(*tokens);
    *tokens = joined;
    *n_tokens = splice->n_said + n_rest;
    return true;
}

int32_t chat_history_apply(struct chat_history *history, const char *text, size_t length, int32_t **tokens,
                           int32_t *n_tokens)
{
    uint32_t *ends = length < UNKNOWN ? malloc(((size_t)*n_tokens + 1) * sizeof *ends) : NULL;
    if (ends == NULL)
        return 0;
    find_ends(history->tokenizer, text, length, *tokens, *n_tokens, ends);
    int32_t n_said = 0;
    uv_mutex_lock(&history->mutex);
    size_t common;
    struct record *record = longest_common(history, text, length, &common);
    if (record != NULL) {
        unlink_record(history, record);
        link_first(history, record);
        struct splice splice = find_splice(history, record, common, *tokens, ends, *n_tokens);
        n_said = splice.n_said;
        if (is_worth_it(record, &splice, *tokens) && !replace(record, &splice, tokens, n_tokens))
            n_said = 0;
    }
    uv_mutex_unlock(&history->mutex);
    free(ends);
    return n_said;
}
