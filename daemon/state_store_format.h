/* The bytes of saved sessions: manifests, block files and exports, with their checksums.
 *
 * A manifest is a session: its tokens and the hashes of the blocks that hold their K/V. A block file is the K/V of one
 * block. Its hash is chained: it names the model, the numerics, the origin and every token up to the block's end. An export
 * is a manifest without an origin (whoever takes it in gives it one), block files one after the other, and an end record.
 *
 * A manifest with an origin has version 2, all other files version 1.
 *
 * Numbers are in the byte order of the machine, as the K/V is; a file of the other order does not have the magic number.
 * Pure; any thread. */
#ifndef DAEMON_STATE_STORE_FORMAT_H
#define DAEMON_STATE_STORE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npu/error.h"

/* What K/V depends on besides the tokens. */
struct state_identity {
    uint64_t model; /* of the model file */
    uint64_t numerics; /* executor.numerics */
    uint64_t block_bytes;
    uint32_t block_tokens;
    uint32_t n_vocab;
};

struct state_hash {
    uint64_t low, high;
};

bool state_hash_equal(struct state_hash a, struct state_hash b);
struct state_hash state_hash_root(const struct state_identity *identity, uint64_t origin);
struct state_hash state_hash_block(struct state_hash parent, const int32_t *tokens, int32_t n_tokens);

enum {
    STATE_BLOCK_HEADER_BYTES = 80,
    STATE_END_BYTES = 32,
    STATE_MAX_TOKENS = 1 << 24, /* of a session */
    STATE_MAX_KEY_BYTES = 1 << 16,
};

struct state_manifest {
    struct state_identity identity;
    uint64_t id;
    uint64_t
        origin; /* of the K/V: 0: computed by who saved it; else the import that it, or what it depends on, came with */
    char *key; /* or NULL, UTF-8; owned */
    bool pinned;
    bool kept; /* saved by request: worth saving again */
    uint32_t turns;
    int64_t created_us, used_us; /* since 1970 */
    uint64_t prompt_ns; /* measured time to compute a token of a prompt; 0: unknown */
    int32_t *tokens; /* n_tokens, owned */
    int32_t n_tokens;
    /* n_blocks, owned: block_tokens tokens each, the last one what is left of them. They may cover fewer tokens than there
     * are. */
    struct state_hash *hashes;
    int32_t n_blocks;
};

void state_manifest_clear(struct state_manifest *manifest);

/* The tokens of block index, of a history of n_tokens. */
int32_t state_block_tokens(const struct state_identity *identity, int32_t n_tokens, int32_t index);

/* malloc'ed bytes of the manifest; NULL: no memory. */
void *state_manifest_encode(const struct state_manifest *manifest, size_t *ret_bytes);

/* Takes a manifest from the first of n bytes and says how many it is. NPU_ERROR_INPUT: truncated, damaged, another version;
 * NPU_ERROR_MEMORY. */
enum npu_status state_manifest_decode(struct state_manifest *ret_manifest, const void *bytes, size_t n,
                                      size_t *ret_bytes, struct npu_error *error);

/* Writes the header in front of block_bytes of K/V that already stand at bytes + STATE_BLOCK_HEADER_BYTES. */
void state_block_encode(void *bytes, const struct state_identity *identity, struct state_hash hash, int32_t n_tokens);

/* Checks that the first of n bytes are this block's file. NPU_ERROR_INPUT says what is wrong. */
enum npu_status state_block_check(const void *bytes, size_t n, const struct state_identity *identity,
                                  struct state_hash hash, int32_t n_tokens, struct npu_error *error);

/* The end of an export with so many blocks. */
void state_end_encode(void *bytes, int32_t n_blocks);
bool state_end_check(const void *bytes, size_t n, int32_t n_blocks);

#endif
