/* The pool of KV blocks: who holds which block, and which block holds the K/V of which token prefix.
 *
 * A block is free, private (being filled by its one owner) or full. Full blocks are immutable, reference counted, and
 * form a tree: a full block is known by the full block before it and its own KV_BLOCK_TOKENS tokens, so its place in the
 * tree names the whole token prefix. They are found by a chained hash; the ids are compared too. A full block that nobody
 * references stays findable until it is the least recently used and its memory is needed.
 *
 * Every origin of K/V has a tree of its own: KV_ORIGIN_HERE for what was computed here, another number for each import.
 * Blocks of one origin are never found in the name of another.
 *
 * A reference to a full block must go with references to all blocks before it, and references are given back from the
 * last block to the first; so a block outlives those that follow it.
 *
 * Pure bookkeeping: the K/V itself lies in the executor. All calls O(1) but where said. Thread: one (the engine's). */
#ifndef DAEMON_KV_POOL_H
#define DAEMON_KV_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "npu/error.h"
#include "npu/executor.h"

enum {
    KV_NO_BLOCK = -1, /* as a parent: the block starts at position 0; as an answer: there is none */
    KV_ORIGIN_HERE = 0,
};

struct kv_pool;

enum npu_status kv_pool_create(struct kv_pool **ret_pool, int32_t n_blocks, struct npu_error *error);
void kv_pool_destroy(struct kv_pool *pool); /* NULL is fine */

/* A private block with one reference; takes the least recently used unreferenced full block when none is free.
 * KV_NO_BLOCK when all are referenced. */
int32_t kv_pool_acquire(struct kv_pool *pool);

/* One more reference to a full block. */
void kv_pool_retain(struct kv_pool *pool, int32_t block);

/* One reference less. After the last one a private block is free, a full block is the most recently used unreferenced. */
void kv_pool_release(struct kv_pool *pool, int32_t block);

/* Like release, but a full block that nobody references any more is freed at once, with every block that follows it:
 * none of them is found again. O(blocks freed). */
void kv_pool_forget(struct kv_pool *pool, int32_t block);

/* The private block now holds the K/V of these KV_BLOCK_TOKENS tokens, behind parent (a full block of the same origin or
 * KV_NO_BLOCK), and becomes full. When the pool has that very block already, the caller's reference moves to it and the private block is
 * freed; the answer is the block to go on with. A private block that is sealed may not be held or pinned. */
int32_t kv_pool_seal(struct kv_pool *pool, int32_t block, uint64_t origin, int32_t parent, const int32_t *tokens);

/* The full block with these KV_BLOCK_TOKENS tokens behind parent (of the same origin, or KV_NO_BLOCK), or KV_NO_BLOCK. Takes
 * no reference. */
int32_t kv_pool_lookup(const struct kv_pool *pool, uint64_t origin, int32_t parent, const int32_t *tokens);

/* The full blocks of an origin that follow parent, the newest first; KV_NO_BLOCK ends. At position 0 the blocks of other
 * origins are passed over one by one. */
int32_t kv_pool_first_child(const struct kv_pool *pool, uint64_t origin, int32_t parent);
int32_t kv_pool_next_sibling(const struct kv_pool *pool, int32_t block);
const int32_t *kv_pool_tokens(const struct kv_pool *pool, int32_t block); /* of a full block: KV_BLOCK_TOKENS */

/* Marks on referenced blocks that count how much memory is spoken for; both may be put on a block many times.
 * Held: used by a generation under way. Pinned: kept by a pinned session. */
void kv_pool_hold(struct kv_pool *pool, int32_t block);
void kv_pool_unhold(struct kv_pool *pool, int32_t block);
void kv_pool_pin(struct kv_pool *pool, int32_t block);
void kv_pool_unpin(struct kv_pool *pool, int32_t block);
bool kv_pool_is_held(const struct kv_pool *pool, int32_t block); /* held or pinned */
bool kv_pool_is_pinned(const struct kv_pool *pool, int32_t block);
bool kv_pool_is_free(const struct kv_pool *pool, int32_t block);
bool kv_pool_is_shared(const struct kv_pool *pool, int32_t block); /* by two references or more */

/* Told of each full block that nobody references before its memory is given to something else, and the block is not found
 * any more. It may not change the pool. */
void kv_pool_set_on_loss(struct kv_pool *pool, void (*on_loss)(void *context, int32_t block), void *context);

struct kv_pool_counters {
    int32_t total;
    int32_t free; /* hold nothing */
    int32_t cached; /* full, findable, referenced by nobody */
    int32_t used; /* referenced; free + cached + used == total */
    int32_t shared; /* of the used ones: referenced more than once */
    int32_t held; /* of the used ones: held or pinned; the others can be had by evicting idle sessions */
    int32_t pinned; /* of the used ones: pinned */
    uint64_t reclaimed; /* cached blocks given up for new ones, ever */
    uint64_t duplicates; /* private blocks that turned out to be in the pool already, ever */
};
struct kv_pool_counters kv_pool_count(const struct kv_pool *pool);

/* For tests: every list, link and counter agrees with every other. O(blocks). */
bool kv_pool_is_consistent(const struct kv_pool *pool);

#endif
