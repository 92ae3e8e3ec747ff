#include "daemon/kv_pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum block_state {
    BLOCK_FREE,
    BLOCK_PRIVATE,
    BLOCK_FULL,
};

struct block {
    uint64_t prefix_hash; /* full: of the origin and all tokens up to the end of this block */
    uint64_t origin; /* full */
    uint32_t references, holds, pins;
    int32_t parent; /* full */
    int32_t first_child; /* full: newest of the full blocks behind this one */
    int32_t previous_sibling, next_sibling; /* full: in the parent's list of children */
    int32_t next_in_bucket; /* full */
    int32_t older, newer; /* full and unreferenced: neighbours by last use */
    int32_t next_free; /* free */
    uint8_t state;
};

struct kv_pool {
    struct block *blocks;
    int32_t *tokens; /* KV_BLOCK_TOKENS of each full block */
    int32_t *buckets;
    uint32_t bucket_mask;
    int32_t first_free;
    int32_t oldest, newest; /* unreferenced full blocks by last use */
    int32_t first_root; /* newest of the full blocks that start at position 0 */
    struct kv_pool_counters counters;
    void (*on_loss)(void *context, int32_t block); /* or NULL */
    void *loss_context;
};

enum npu_status kv_pool_create(struct kv_pool **ret_pool, int32_t n_blocks, struct npu_error *error)
{
    if (n_blocks < 1)
        return npu_error_set(error, NPU_ERROR_INPUT, "the KV pool needs at least one block, got %d", n_blocks);
    uint32_t n_buckets = 1;
    while (n_buckets < (uint32_t)n_blocks)
        n_buckets *= 2;
    struct kv_pool *pool = calloc(1, sizeof *pool);
    if (pool != NULL) {
        pool->blocks = calloc((size_t)n_blocks, sizeof *pool->blocks);
        pool->tokens = calloc((size_t)n_blocks, KV_BLOCK_TOKENS * sizeof *pool->tokens);
        pool->buckets = malloc(n_buckets * sizeof *pool->buckets);
    }
    if (pool == NULL || pool->blocks == NULL || pool->tokens == NULL || pool->buckets == NULL) {
        kv_pool_destroy(pool);
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the table of %d KV blocks", n_blocks);
    }
    for (uint32_t i = 0; i < n_buckets; i++)
        pool->buckets[i] = KV_NO_BLOCK;
    pool->bucket_mask = n_buckets - 1;
    pool->oldest = pool->newest = pool->first_root = KV_NO_BLOCK;
    pool->first_free = KV_NO_BLOCK;
    for (int32_t i = n_blocks - 1; i >= 0; i--) {
        pool->blocks[i].next_free = pool->first_free;
        pool->first_free = i;
    }
    pool->counters.total = pool->counters.free = n_blocks;
    *ret_pool = pool;
    return NPU_OK;
}

void kv_pool_destroy(struct kv_pool *pool)
{
    if (pool == NULL)
        return;
    free(pool->blocks);
    free(pool->tokens);
    free(pool->buckets);
    free(pool);
}

static struct block *block_at(const struct kv_pool *pool, int32_t block)
{
    assert(block >= 0 && block < pool->counters.total);
    return &pool->blocks[block];
}

static int32_t *tokens_at(const struct kv_pool *pool, int32_t block)
{
    return pool->tokens + (size_t)block * KV_BLOCK_TOKENS;
}

static uint64_t prefix_hash(const struct kv_pool *pool, uint64_t origin, int32_t parent, const int32_t *tokens)
{
    uint64_t hash = parent == KV_NO_BLOCK ? 0x243f6a8885a308d3u ^ origin : pool->blocks[parent].prefix_hash;
    for (int i = 0; i < KV_BLOCK_TOKENS; i++) {
        hash = (hash ^ (uint32_t)tokens[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

static int32_t find(const struct kv_pool *pool, uint64_t hash, uint64_t origin, int32_t parent, const int32_t *tokens)
{
    int32_t i = pool->buckets[hash & pool->bucket_mask];
    for (; i != KV_NO_BLOCK; i = pool->blocks[i].next_in_bucket) {
        const struct block *b = &pool->blocks[i];
        if (b->prefix_hash == hash && b->origin == origin && b->parent == parent &&
            memcmp(tokens_at(pool, i), tokens, KV_BLOCK_TOKENS * sizeof *tokens) == 0)
            break;
    }
    return i;
}

static int32_t *children_of(struct kv_pool *pool, int32_t parent)
{
    return parent == KV_NO_BLOCK ? &pool->first_root : &pool->blocks[parent].first_child;
}

static void lru_append(struct kv_pool *pool, int32_t block)
{
    struct block *b = &pool->blocks[block];
    b->older = pool->newest;
    b->newer = KV_NO_BLOCK;
    *(pool->newest == KV_NO_BLOCK ? &pool->oldest : &pool->blocks[pool->newest].newer) = block;
    pool->newest = block;
    pool->counters.cached++;
}

static void lru_remove(struct kv_pool *pool, int32_t block)
{
    struct block *b = &pool->blocks[block];
    *(b->older == KV_NO_BLOCK ? &pool->oldest : &pool->blocks[b->older].newer) = b->newer;
    *(b->newer == KV_NO_BLOCK ? &pool->newest : &pool->blocks[b->newer].older) = b->older;
    pool->counters.cached--;
}

static void push_free(struct kv_pool *pool, int32_t block)
{
    struct block *b = &pool->blocks[block];
    b->state = BLOCK_FREE;
    b->next_free = pool->first_free;
    pool->first_free = block;
    pool->counters.free++;
}

/* Takes an unreferenced full block without children out of the index. */
static void free_leaf(struct kv_pool *pool, int32_t block)
{
    struct block *b = &pool->blocks[block];
    assert(b->state == BLOCK_FULL && b->references == 0 && b->first_child == KV_NO_BLOCK);
    if (pool->on_loss != NULL)
        pool->on_loss(pool->loss_context, block);
    int32_t *link = &pool->buckets[b->prefix_hash & pool->bucket_mask];
    while (*link != block)
        link = &pool->blocks[*link].next_in_bucket;
    *link = b->next_in_bucket;
    *(b->previous_sibling == KV_NO_BLOCK ? children_of(pool, b->parent)
                                         : &pool->blocks[b->previous_sibling].next_sibling) = b->next_sibling;
    if (b->next_sibling != KV_NO_BLOCK)
        pool->blocks[b->next_sibling].previous_sibling = b->previous_sibling;
    lru_remove(pool, block);
    push_free(pool, block);
}

/* Those that follow an unreferenced block are unreferenced too: free them from the leaves up. */
static void free_subtree(struct kv_pool *pool, int32_t top)
{
    int32_t block = top;
    for (;;) {
        int32_t child = pool->blocks[block].first_child;
        if (child != KV_NO_BLOCK) {
            block = child;
            continue;
        }
        int32_t parent = pool->blocks[block].parent;
        free_leaf(pool, block);
        if (block == top)
            return;
        block = parent;
    }
}

int32_t kv_pool_acquire(struct kv_pool *pool)
{
    if (pool->first_free == KV_NO_BLOCK) {
        if (pool->oldest == KV_NO_BLOCK)
            return KV_NO_BLOCK;
        pool->counters.reclaimed++;
        free_subtree(pool, pool->oldest);
    }
    int32_t block = pool->first_free;
    struct block *b = &pool->blocks[block];
    pool->first_free = b->next_free;
    pool->counters.free--;
    pool->counters.used++;
    *b = (struct block){.references = 1, .state = BLOCK_PRIVATE, .parent = KV_NO_BLOCK, .first_child = KV_NO_BLOCK};
    return block;
}

void kv_pool_retain(struct kv_pool *pool, int32_t block)
{
    struct block *b = block_at(pool, block);
    assert(b->state == BLOCK_FULL);
    if (b->references == 0) {
        lru_remove(pool, block);
        pool->counters.used++;
    } else if (b->references == 1) {
        pool->counters.shared++;
    }
    b->references++;
}

void kv_pool_release(struct kv_pool *pool, int32_t block)
{
    struct block *b = block_at(pool, block);
    assert(b->state != BLOCK_FREE && b->references > 0);
    b->references--;
    if (b->references == 1)
        pool->counters.shared--;
    if (b->references > 0)
        return;
    assert(b->holds == 0 && b->pins == 0);
    pool->counters.used--;
    if (b->state == BLOCK_PRIVATE)
        push_free(pool, block);
    else
        lru_append(pool, block);
}

void kv_pool_forget(struct kv_pool *pool, int32_t block)
{
    kv_pool_release(pool, block);
    const struct block *b = &pool->blocks[block];
    if (b->state == BLOCK_FULL && b->references == 0)
        free_subtree(pool, block);
}

int32_t kv_pool_seal(struct kv_pool *pool, int32_t block, uint64_t origin, int32_t parent, const int32_t *tokens)
{
    struct block *b = block_at(pool, block);
    assert(b->state == BLOCK_PRIVATE && b->references == 1 && b->holds == 0 && b->pins == 0);
    assert(parent == KV_NO_BLOCK ||
           (block_at(pool, parent)->state == BLOCK_FULL && pool->blocks[parent].origin == origin));
    uint64_t hash = prefix_hash(pool, origin, parent, tokens);
    int32_t same = find(pool, hash, origin, parent, tokens);
    if (same != KV_NO_BLOCK) {
        kv_pool_retain(pool, same);
        kv_pool_release(pool, block);
        pool->counters.duplicates++;
        return same;
    }
    memcpy(tokens_at(pool, block), tokens, KV_BLOCK_TOKENS * sizeof *tokens);
    b->state = BLOCK_FULL;
    b->prefix_hash = hash;
    b->origin = origin;
    b->parent = parent;
    b->first_child = KV_NO_BLOCK;
    b->next_in_bucket = pool->buckets[hash & pool->bucket_mask];
    pool->buckets[hash & pool->bucket_mask] = block;
    int32_t *children = children_of(pool, parent);
    b->previous_sibling = KV_NO_BLOCK;
    b->next_sibling = *children;
    if (*children != KV_NO_BLOCK)
        pool->blocks[*children].previous_sibling = block;
    *children = block;
    return block;
}

int32_t kv_pool_lookup(const struct kv_pool *pool, uint64_t origin, int32_t parent, const int32_t *tokens)
{
    return find(pool, prefix_hash(pool, origin, parent, tokens), origin, parent, tokens);
}

/* The first of block and its siblings that is of this origin. */
static int32_t of_origin(const struct kv_pool *pool, uint64_t origin, int32_t block)
{
    while (block != KV_NO_BLOCK && pool->blocks[block].origin != origin)
        block = pool->blocks[block].next_sibling;
    return block;
}

int32_t kv_pool_first_child(const struct kv_pool *pool, uint64_t origin, int32_t parent)
{
    return of_origin(pool, origin, parent == KV_NO_BLOCK ? pool->first_root : block_at(pool, parent)->first_child);
}

int32_t kv_pool_next_sibling(const struct kv_pool *pool, int32_t block)
{
    const struct block *b = block_at(pool, block);
    return of_origin(pool, b->origin, b->next_sibling);
}

const int32_t *kv_pool_tokens(const struct kv_pool *pool, int32_t block)
{
    assert(block_at(pool, block)->state == BLOCK_FULL);
    return tokens_at(pool, block);
}

void kv_pool_hold(struct kv_pool *pool, int32_t block)
{
    struct block *b = block_at(pool, block);
    assert(b->references > 0);
    if (b->holds++ == 0 && b->pins == 0)
        pool->counters.held++;
}

void kv_pool_unhold(struct kv_pool *pool, int32_t block)
{
    struct block *b = block_at(pool, block);
    assert(b->holds > 0);
    if (--b->holds == 0 && b->pins == 0)
        pool->counters.held--;
}

void kv_pool_pin(struct kv_pool *pool, int32_t block)
{
    struct block *b = block_at(pool, block);
    assert(b->references > 0);
    if (b->pins++ > 0)
        return;
    pool->counters.pinned++;
    if (b->holds == 0)
        pool->counters.held++;
}

void kv_pool_unpin(struct kv_pool *pool, int32_t block)
{
    struct block *b = block_at(pool, block);
    assert(b->pins > 0);
    if (--b->pins > 0)
        return;
    pool->counters.pinned--;
    if (b->holds == 0)
        pool->counters.held--;
}

bool kv_pool_is_held(const struct kv_pool *pool, int32_t block)
{
    const struct block *b = block_at(pool, block);
    return b->holds > 0 || b->pins > 0;
}

bool kv_pool_is_pinned(const struct kv_pool *pool, int32_t block)
{
    return block_at(pool, block)->pins > 0;
}

bool kv_pool_is_free(const struct kv_pool *pool, int32_t block)
{
    return block_at(pool, block)->state == BLOCK_FREE;
}

bool kv_pool_is_shared(const struct kv_pool *pool, int32_t block)
{
    return block_at(pool, block)->references > 1;
}

void kv_pool_set_on_loss(struct kv_pool *pool, void (*on_loss)(void *context, int32_t block), void *context)
{
    pool->on_loss = on_loss;
    pool->loss_context = context;
}

struct kv_pool_counters kv_pool_count(const struct kv_pool *pool)
{
    return pool->counters;
}

static bool block_is_consistent(const struct kv_pool *pool, int32_t block)
{
    const struct block *b = &pool->blocks[block];
    if (b->state == BLOCK_FREE)
        return true;
    if (b->references == 0 && (b->holds > 0 || b->pins > 0 || b->state == BLOCK_PRIVATE))
        return false;
    if (b->state == BLOCK_PRIVATE)
        return b->references == 1;
    if (find(pool, b->prefix_hash, b->origin, b->parent, tokens_at(pool, block)) != block)
        return false;
    if (b->parent != KV_NO_BLOCK) {
        const struct block *parent = &pool->blocks[b->parent];
        if (parent->state != BLOCK_FULL || parent->origin != b->origin ||
            (b->references > 0 && parent->references == 0))
            return false;
    }
    if (prefix_hash(pool, b->origin, b->parent, tokens_at(pool, block)) != b->prefix_hash)
        return false;
    int32_t first = b->parent == KV_NO_BLOCK ? pool->first_root : pool->blocks[b->parent].first_child;
    return b->previous_sibling == KV_NO_BLOCK ? first == block
                                              : pool->blocks[b->previous_sibling].next_sibling == block;
}

bool kv_pool_is_consistent(const struct kv_pool *pool)
{
    struct kv_pool_counters seen = pool->counters;
    seen.free = seen.cached = seen.used = seen.shared = seen.held = seen.pinned = 0;
    for (int32_t i = 0; i < pool->counters.total; i++) {
        const struct block *b = &pool->blocks[i];
        if (!block_is_consistent(pool, i))
            return false;
        seen.free += b->state == BLOCK_FREE;
        seen.cached += b->state == BLOCK_FULL && b->references == 0;
        seen.used += b->state != BLOCK_FREE && b->references > 0;
        seen.shared += b->state != BLOCK_FREE && b->references > 1;
        seen.held += b->state != BLOCK_FREE && (b->holds > 0 || b->pins > 0);
        seen.pinned += b->state != BLOCK_FREE && b->pins > 0;
    }
    int32_t n_free = 0, n_cached = 0;
    for (int32_t i = pool->first_free; i != KV_NO_BLOCK && n_free <= seen.total; i = pool->blocks[i].next_free)
        n_free += pool->blocks[i].state == BLOCK_FREE;
    for (int32_t i = pool->oldest; i != KV_NO_BLOCK && n_cached <= seen.total; i = pool->blocks[i].newer)
        n_cached += pool->blocks[i].state == BLOCK_FULL && pool->blocks[i].references == 0;
    return n_free == seen.free && n_cached == seen.cached && memcmp(&seen, &pool->counters, sizeof seen) == 0;
}
