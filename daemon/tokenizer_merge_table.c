/* The merges that a BPE model lists, found by the two tokens that they join. */
#include "daemon/tokenizer_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "npu/gguf.h"

#define MERGES_KEY "tokenizer.ggml.merges"

struct merge_slot {
    int32_t left, right; /* left is -1 in a free slot */
    uint32_t rank;
    int32_t merged;
};

static struct merge_slot *find_slot(const struct merge_table *table, int32_t left, int32_t right)
{
    uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(hash >> 32) & table->mask;
    while (table->slots[at].left >= 0 && (table->slots[at].left != left || table->slots[at].right != right))
        at = (at + 1) & table->mask;
    return &table->slots[at];
}

bool merge_table_find(const void *context, const struct merge_work *work, int32_t left, int32_t right,
                      struct merge_candidate *candidate)
{
    if (work->symbols[left].token < 0)
        return false;
    const struct merge_slot *slot = find_slot(context, work->symbols[left].token, work->symbols[right].token);
    if (slot->left < 0)
        return false;
    candidate->priority = slot->rank;
    candidate->merged = slot->merged;
    return true;
}

/* "left right", both in written form: the first space that is not the first character parts them. */
static bool parse_merge(const struct vocabulary *vocabulary, merge_decoder *decode, const char *written, size_t length,
                        char *scratch, struct merge_slot *ret_merge)
{
    const char *space = length > 1 ? memchr(written + 1, ' ', length - 1) : NULL;
    size_t left_bytes, right_bytes;
    if (space == NULL)
        return false;
    size_t left_length = (size_t)(space - written);
    if (!decode(written, left_length, scratch, &left_bytes) ||
        !decode(space + 1, length - left_length - 1, scratch + left_bytes, &right_bytes))
        return false;
    ret_merge->left = vocabulary_find(vocabulary, scratch, left_bytes);
    ret_merge->right = vocabulary_find(vocabulary, scratch + left_bytes, right_bytes);
    ret_merge->merged = vocabulary_find(vocabulary, scratch, left_bytes + right_bytes);
    return ret_merge->left >= 0 && ret_merge->right >= 0 && ret_merge->merged >= 0;
}

/* Makes an empty table for n merges. */
static enum npu_status allocate(struct merge_table *table, int64_t n, struct npu_error *error)
{
    size_t n_slots = 16;
    while (n_slots < (size_t)n + (size_t)n / 4)
        n_slots *= 2;
    table->mask = (uint32_t)(n_slots - 1);
    table->slots = malloc(n_slots * sizeof *table->slots);
    if (table->slots == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for %" PRId64 " merges", n);
    for (size_t i = 0; i < n_slots; i++)
        table->slots[i].left = -1;
    return NPU_OK;
}

enum npu_status merge_table_load(struct merge_table *table, const struct gguf_file *file,
                                 const struct vocabulary *vocabulary, merge_decoder *decode, struct npu_error *error)
{
    int64_t n;
    size_t longest = 0, length;
    const char *written;
    const struct gguf_array *merges = gguf_find_array(file, MERGES_KEY, &n);
    if (merges == NULL || n > INT32_MAX / 2)
        return npu_error_set(error, NPU_ERROR_INPUT, "%s: " MERGES_KEY " is missing, or not an array of strings",
                             gguf_path(file));
    for (int64_t i = 0; i < n; i++) {
        if (!gguf_array_string_at(merges, i, &written, &length))
            return npu_error_set(error, NPU_ERROR_INPUT, "%s: " MERGES_KEY " is not an array of strings",
                                 gguf_path(file));
        longest = length > longest ? length : longest;
    }
    enum npu_status status = allocate(table, n, error);
    if (status != NPU_OK)
        return status;
    char *scratch = malloc(longest + 1);
    if (scratch == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a merge of %zu bytes", longest);
    for (int64_t i = 0; status == NPU_OK && i < n; i++) {
        struct merge_slot merge = {.rank = (uint32_t)i};
        gguf_array_string_at(merges, i, &written, &length);
        if (parse_merge(vocabulary, decode, written, length, scratch, &merge)) {
            struct merge_slot *slot = find_slot(table, merge.left, merge.right);
            if (slot->left < 0)
                *slot = merge;
        } else {
            status = npu_error_set(error, NPU_ERROR_INPUT,
                                   "%s: " MERGES_KEY ": merge %" PRId64 " '%.*s' is not two tokens of the vocabulary "
                                   "that make a third",
                                   gguf_path(file), i, length < 64 ? (int)length : 64, written);
        }
    }
    free(scratch);
    return status;
}

void merge_table_free(struct merge_table *table)
{
    free(table->slots);
}
