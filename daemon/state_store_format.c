#include "daemon/state_store_format.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/utf8.h"

enum {
    FORMAT_VERSION = 1,
    ORIGIN_VERSION = 2, /* of manifests that end with an origin */
};

static const char manifest_magic[8] = "npudses\n", block_magic[8] = "npudblk\n", end_magic[8] = "npudend\n";

enum {
    FLAG_PINNED = 1,
    FLAG_KEPT = 2,
    FLAG_NAMED = 4,
    ALL_FLAGS = FLAG_PINNED | FLAG_KEPT | FLAG_NAMED,
};

/* Then: key_bytes of the key, tokens, hashes, with ORIGIN_VERSION the origin, without padding. */
struct manifest_header {
    char magic[8];
    uint32_t version, flags;
    struct state_identity identity;
    uint64_t id;
    int64_t created_us, used_us;
    uint64_t prompt_ns;
    uint32_t turns, n_tokens, n_blocks, key_bytes;
    uint64_t body_checksum;
    uint64_t checksum; /* of this header up to here */
};
static_assert(sizeof(struct manifest_header) == 112, "written to files as it is");

struct block_header {
    char magic[8];
    uint32_t version, n_tokens;
    struct state_identity identity;
    struct state_hash hash;
    uint64_t body_checksum;
    uint64_t checksum; /* of this header up to here */
};
static_assert(sizeof(struct block_header) == STATE_BLOCK_HEADER_BYTES, "written to files as it is");

struct end_record {
    char magic[8];
    uint64_t n_blocks;
    uint64_t reserved;
    uint64_t checksum;
};
static_assert(sizeof(struct end_record) == STATE_END_BYTES, "written to files as it is");

bool state_hash_equal(struct state_hash a, struct state_hash b)
{
    return a.low == b.low && a.high == b.high;
}

struct state_hash state_hash_root(const struct state_identity *identity, uint64_t origin)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(identity, sizeof *identity, origin);
    return (struct state_hash){hash.low64, hash.high64};
}

struct state_hash state_hash_block(struct state_hash parent, const int32_t *tokens, int32_t n_tokens)
{
    XXH128_hash_t own = XXH3_128bits_withSeed(tokens, (size_t)n_tokens * sizeof *tokens, parent.low);
    uint64_t parts[4] = {parent.low, parent.high, own.low64, own.high64};
    XXH128_hash_t hash = XXH3_128bits(parts, sizeof parts);
    return (struct state_hash){hash.low64, hash.high64};
}

void state_manifest_clear(struct state_manifest *manifest)
{
    free(manifest->key);
    free(manifest->tokens);
    free(manifest->hashes);
    memset(manifest, 0, sizeof *manifest);
}

int32_t state_block_tokens(const struct state_identity *identity, int32_t n_tokens, int32_t index)
{
    int64_t left = n_tokens - (int64_t)index * identity->block_tokens;
    return left < (int64_t)identity->block_tokens ? (int32_t)left : (int32_t)identity->block_tokens;
}

/* Of everything before the checksum, which is the last field of every header. */
static uint64_t header_checksum(const void *header, size_t bytes)
{
    return XXH3_64bits(header, bytes - sizeof(uint64_t));
}

/* --- manifests ---------------------------------------------------------------------------------------------------- */

static size_t origin_bytes(const struct manifest_header *header)
{
    return header->version == ORIGIN_VERSION ? sizeof(uint64_t) : 0;
}

void *state_manifest_encode(const struct state_manifest *manifest, size_t *ret_bytes)
{
    struct manifest_header header = {
        .version = manifest->origin != 0 ? ORIGIN_VERSION : FORMAT_VERSION,
        .flags = (manifest->pinned ? FLAG_PINNED : 0u) | (manifest->kept ? FLAG_KEPT : 0u) |
                 (manifest->key != NULL ? FLAG_NAMED : 0u),
        .identity = manifest->identity,
        .id = manifest->id,
        .created_us = manifest->created_us,
        .used_us = manifest->used_us,
        .prompt_ns = manifest->prompt_ns,
        .turns = manifest->turns,
        .n_tokens = (uint32_t)manifest->n_tokens,
        .n_blocks = (uint32_t)manifest->n_blocks,
        .key_bytes = manifest->key != NULL ? (uint32_t)strlen(manifest->key) : 0,
    };
    memcpy(header.magic, manifest_magic, sizeof header.magic);
    size_t token_bytes = (size_t)manifest->n_tokens * sizeof *manifest->tokens;
    size_t hash_bytes = (size_t)manifest->n_blocks * sizeof *manifest->hashes;
    size_t body = header.key_bytes + token_bytes + hash_bytes + origin_bytes(&header);
    char *bytes = malloc(sizeof header + body);
    if (bytes == NULL)
        return NULL;
    char *at = bytes + sizeof header;
    if (header.key_bytes > 0)
        memcpy(at, manifest->key, header.key_bytes);
    if (token_bytes > 0)
        memcpy(at + header.key_bytes, manifest->tokens, token_bytes);
    if (hash_bytes > 0)
        memcpy(at + header.key_bytes + token_bytes, manifest->hashes, hash_bytes);
    memcpy(at + header.key_bytes + token_bytes + hash_bytes, &manifest->origin, origin_bytes(&header));
    header.body_checksum = XXH3_64bits(at, body);
    header.checksum = header_checksum(&header, sizeof header);
    memcpy(bytes, &header, sizeof header);
    *ret_bytes = sizeof header + body;
    return bytes;
}

static enum npu_status check_manifest_header(const struct manifest_header *header, struct npu_error *error)
{
    const struct state_identity *identity = &header->identity;
    if (memcmp(header->magic, manifest_magic, sizeof header->magic) != 0)
        return npu_error_set(error, NPU_ERROR_INPUT, "it is not a saved session");
    if (header->version != FORMAT_VERSION && header->version != ORIGIN_VERSION)
        return npu_error_set(error, NPU_ERROR_INPUT, "it has format version %u, this npud reads %d and %d",
                             header->version, FORMAT_VERSION, ORIGIN_VERSION);
    if (header->checksum != header_checksum(header, sizeof *header))
        return npu_error_set(error, NPU_ERROR_INPUT, "the checksum of its head is wrong");
    if (identity->block_tokens < 1 || identity->block_tokens > 1 << 16 || identity->n_vocab < 1 ||
        identity->n_vocab > INT32_MAX || header->n_tokens < 1 || header->n_tokens > STATE_MAX_TOKENS ||
        header->n_blocks > (header->n_tokens + identity->block_tokens - 1) / identity->block_tokens ||
        header->key_bytes > STATE_MAX_KEY_BYTES || (header->flags & ~(uint32_t)ALL_FLAGS) != 0 ||
        (header->key_bytes > 0 && (header->flags & FLAG_NAMED) == 0) || header->id == 0)
        return npu_error_set(error, NPU_ERROR_INPUT, "its head has numbers that cannot be");
    return NPU_OK;
}

/* Tokens are some, and the hashes are theirs. */
static enum npu_status check_manifest_body(const struct state_manifest *manifest, struct npu_error *error)
{
    for (int32_t i = 0; i < manifest->n_tokens; i++)
        if (manifest->tokens[i] < 0 || (uint32_t)manifest->tokens[i] >= manifest->identity.n_vocab)
            return npu_error_set(error, NPU_ERROR_INPUT, "token %d is %d; the vocabulary has %u", i,
                                 manifest->tokens[i], manifest->identity.n_vocab);
    struct state_hash hash = state_hash_root(&manifest->identity, manifest->origin);
    const int32_t *tokens = manifest->tokens;
    for (int32_t i = 0; i < manifest->n_blocks; i++) {
        int32_t n = state_block_tokens(&manifest->identity, manifest->n_tokens, i);
        hash = state_hash_block(hash, tokens, n);
        if (!state_hash_equal(hash, manifest->hashes[i]))
            return npu_error_set(error, NPU_ERROR_INPUT, "block %d is not that of its tokens", i);
        tokens += n;
    }
    return NPU_OK;
}

static enum npu_status take_manifest_body(struct state_manifest *manifest, const struct manifest_header *header,
                                          const char *body, struct npu_error *error)
{
    size_t token_bytes = header->n_tokens * sizeof *manifest->tokens;
    size_t hash_bytes = header->n_blocks * sizeof *manifest->hashes;
    bool named = (header->flags & FLAG_NAMED) != 0;
    manifest->tokens = malloc(token_bytes);
    manifest->hashes = malloc(hash_bytes + 1);
    manifest->key = named ? malloc(header->key_bytes + 1) : NULL;
    if (manifest->tokens == NULL || manifest->hashes == NULL || (named && manifest->key == NULL))
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for a session of %u tokens", header->n_tokens);
    if (named) {
        memcpy(manifest->key, body, header->key_bytes);
        manifest->key[header->key_bytes] = '\0';
        if (strlen(manifest->key) != header->key_bytes)
            return npu_error_set(error, NPU_ERROR_INPUT, "its key has a zero byte");
        if (!utf8_is_valid(manifest->key, header->key_bytes))
            return npu_error_set(error, NPU_ERROR_INPUT, "its key is not valid UTF-8");
    }
    memcpy(manifest->tokens, body + header->key_bytes, token_bytes);
    memcpy(manifest->hashes, body + header->key_bytes + token_bytes, hash_bytes);
    memcpy(&manifest->origin, body + header->key_bytes + token_bytes + hash_bytes, origin_bytes(header));
    if (header->version == ORIGIN_VERSION && manifest->origin == 0)
        return npu_error_set(error, NPU_ERROR_INPUT, "it is said to be an import and does not say which");
    return check_manifest_body(manifest, error);
}

enum npu_status state_manifest_decode(struct state_manifest *ret_manifest, const void *bytes, size_t n,
                                      size_t *ret_bytes, struct npu_error *error)
{
    struct manifest_header header;
    if (n < sizeof header)
        return npu_error_set(error, NPU_ERROR_INPUT, "it is cut short: %zu bytes, the head alone has %zu", n,
                             sizeof header);
    memcpy(&header, bytes, sizeof header);
    enum npu_status status = check_manifest_header(&header, error);
    if (status != NPU_OK)
        return status;
    /* The bounds above keep this far from overflow. */
    size_t body = header.key_bytes + header.n_tokens * sizeof(int32_t) + header.n_blocks * sizeof(struct state_hash) +
                  origin_bytes(&header);
    const char *at = (const char *)bytes + sizeof header;
    if (n - sizeof header < body)
        return npu_error_set(error, NPU_ERROR_INPUT, "it is cut short: %zu bytes of %zu", n, sizeof header + body);
    if (header.body_checksum != XXH3_64bits(at, body))
        return npu_error_set(error, NPU_ERROR_INPUT, "the checksum of its tokens is wrong");
    struct state_manifest manifest = {
        .identity = header.identity,
        .id = header.id,
        .pinned = (header.flags & FLAG_PINNED) != 0,
        .kept = (header.flags & FLAG_KEPT) != 0,
        .turns = header.turns,
        .created_us = header.created_us,
        .used_us = header.used_us,
        .prompt_ns = header.prompt_ns,
        .n_tokens = (int32_t)header.n_tokens,
        .n_blocks = (int32_t)header.n_blocks,
    };
    status = take_manifest_body(&manifest, &header, at, error);
    if (status != NPU_OK) {
        state_manifest_clear(&manifest);
        return status;
    }
    *ret_manifest = manifest;
    *ret_bytes = sizeof header + body;
    return NPU_OK;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

void state_block_encode(void *bytes, const struct state_identity *identity, struct state_hash hash, int32_t n_tokens)
{
    struct block_header header = {
        .version = FORMAT_VERSION,
        .n_tokens = (uint32_t)n_tokens,
        .identity = *identity,
        .hash = hash,
        .body_checksum = XXH3_64bits((const char *)bytes + sizeof header, identity->block_bytes),
    };
    memcpy(header.magic, block_magic, sizeof header.magic);
    header.checksum = header_checksum(&header, sizeof header);
    memcpy(bytes, &header, sizeof header);
}

enum npu_status state_block_check(const void *bytes, size_t n, const struct state_identity *identity,
                                  struct state_hash hash, int32_t n_tokens, struct npu_error *error)
{
    struct block_header header;
    if (n < sizeof header)
        return npu_error_set(error, NPU_ERROR_INPUT, "it is cut short: %zu bytes, the head alone has %zu", n,
                             sizeof header);
    memcpy(&header, bytes, sizeof header);
    if (memcmp(header.magic, block_magic, sizeof header.magic) != 0)
        return npu_error_set(error, NPU_ERROR_INPUT, "it is not a saved KV block");
    if (header.version != FORMAT_VERSION)
        return npu_error_set(error, NPU_ERROR_INPUT, "it has format version %u, this npud reads %d", header.version,
                             FORMAT_VERSION);
    if (header.checksum != header_checksum(&header, sizeof header))
        return npu_error_set(error, NPU_ERROR_INPUT, "the checksum of its head is wrong");
    if (memcmp(&header.identity, identity, sizeof *identity) != 0)
        return npu_error_set(error, NPU_ERROR_INPUT, "it is of another model or other numerics");
    if (!state_hash_equal(header.hash, hash) || header.n_tokens != (uint32_t)n_tokens)
        return npu_error_set(error, NPU_ERROR_INPUT, "it is of other tokens");
    if (n - sizeof header < identity->block_bytes)
        return npu_error_set(error, NPU_ERROR_INPUT, "it is cut short: %zu bytes of %zu", n,
                             sizeof header + (size_t)identity->block_bytes);
    if (header.body_checksum != XXH3_64bits((const char *)bytes + sizeof header, identity->block_bytes))
        return npu_error_set(error, NPU_ERROR_INPUT, "the checksum of its K/V is wrong");
    return NPU_OK;
}

/* --- the end of an export ----------------------------------------------------------------------------------------- */

static struct end_record end_record(int32_t n_blocks)
{
    struct end_record record = {.n_blocks = (uint64_t)n_blocks};
    memcpy(record.magic, end_magic, sizeof record.magic);
    record.checksum = header_checksum(&record, sizeof record);
    return record;
}

void state_end_encode(void *bytes, int32_t n_blocks)
{
    struct end_record record = end_record(n_blocks);
    memcpy(bytes, &record, sizeof record);
}

bool state_end_check(const void *bytes, size_t n, int32_t n_blocks)
{
    struct end_record record = end_record(n_blocks);
    return n >= sizeof record && memcmp(bytes, &record, sizeof record) == 0;
}
