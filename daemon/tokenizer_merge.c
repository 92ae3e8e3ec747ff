/* The merging that all BPE kinds share: symbols in a linked list, candidates in a binary heap. A candidate that has been
 * overtaken by another merge is recognised when it is taken out: its two symbols no longer hold the tokens they held. */
#include "daemon/tokenizer_internal.h"

#include <stdlib.h>

enum {
    MAX_SYMBOLS = INT32_MAX / 2,
};

static void *grow(void *memory, size_t *capacity, size_t element)
{
    size_t wanted = *capacity < 64 ? 64 : *capacity * 2;
    void *larger = realloc(memory, wanted * element);
    if (larger != NULL)
        *capacity = wanted;
    return larger;
}

static enum npu_status too_long(const struct merge_work *work, struct npu_error *error)
{
    return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for merging a word of %zu symbols", work->n_symbols);
}

enum npu_status merge_work_add_symbol(struct merge_work *work, uint32_t start, int32_t token, struct npu_error *error)
{
    if (work->n_symbols == work->symbols_capacity) {
        struct merge_symbol *symbols = NULL;
        if (work->n_symbols < MAX_SYMBOLS)
            symbols = grow(work->symbols, &work->symbols_capacity, sizeof *symbols);
        if (symbols == NULL)
            return too_long(work, error);
        work->symbols = symbols;
    }
    int32_t index = (int32_t)work->n_symbols++;
    work->symbols[index] = (struct merge_symbol){.start = start, .token = token, .previous = index - 1, .next = -1};
    if (index > 0)
        work->symbols[index - 1].next = index;
    return NPU_OK;
}

static bool before(const struct merge_candidate *a, const struct merge_candidate *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->left < b->left;
}

static enum npu_status push(struct merge_work *work, const struct merge_candidate *candidate, struct npu_error *error)
{
    if (work->n_heap == work->heap_capacity) {
        struct merge_candidate *heap = grow(work->heap, &work->heap_capacity, sizeof *heap);
        if (heap == NULL)
            return too_long(work, error);
        work->heap = heap;
    }
    size_t at = work->n_heap++;
    for (size_t parent; at > 0 && before(candidate, &work->heap[parent = (at - 1) / 2]); at = parent)
        work->heap[at] = work->heap[parent];
    work->heap[at] = *candidate;
    return NPU_OK;
}

static struct merge_candidate pop(struct merge_work *work)
{
    struct merge_candidate top = work->heap[0];
    struct merge_candidate last = work->heap[--work->n_heap];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < work->n_heap; at = child) {
        if (child + 1 < work->n_heap && before(&work->heap[child + 1], &work->heap[child]))
            child++;
        if (!before(&work->heap[child], &last))
            break;
        work->heap[at] = work->heap[child];
    }
    work->heap[at] = last;
    return top;
}

static enum npu_status consider(struct merge_work *work, int32_t left, int32_t right, merge_finder *find,
                                const void *context, struct npu_error *error)
{
    struct merge_candidate candidate = {.left = left};
    if (left < 0 || right < 0 || !find(context, work, left, right, &candidate))
        return NPU_OK;
    candidate.left_token = work->symbols[left].token;
    candidate.right_token = work->symbols[right].token;
    return push(work, &candidate, error);
}

enum npu_status merge_work_run(struct merge_work *work, merge_finder *find, const void *context,
                               struct npu_error *error)
{
    enum npu_status status = NPU_OK;
    work->n_heap = 0;
    for (int32_t i = 1; status == NPU_OK && i < (int32_t)work->n_symbols; i++)
        status = consider(work, i - 1, i, find, context, error);
    while (status == NPU_OK && work->n_heap > 0) {
        struct merge_candidate candidate = pop(work);
        struct merge_symbol *left = &work->symbols[candidate.left];
        int32_t next = left->next;
        if (left->token != candidate.left_token || next < 0 || work->symbols[next].token != candidate.right_token)
            continue;
        left->token = candidate.merged;
        left->next = work->symbols[next].next;
        work->symbols[next].token = MERGE_REMOVED;
        if (left->next >= 0)
            work->symbols[left->next].previous = candidate.left;
        status = consider(work, left->previous, candidate.left, find, context, error);
        if (status == NPU_OK)
            status = consider(work, candidate.left, left->next, find, context, error);
    }
    return status;
}

void merge_work_free(struct merge_work *work)
{
    free(work->symbols);
    free(work->heap);
}
