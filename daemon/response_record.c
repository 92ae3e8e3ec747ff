#include "daemon/response_record.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    FORMAT_VERSION = 1,
    N_TEXTS = 4,
};

static const char record_magic[8] = "npudrsp\n";

/* Then: tokens, and the texts, without padding. */
struct record_header {
    char magic[8];
    uint32_t version, n_tokens;
    struct response_id id;
    uint64_t model;
    uint32_t lengths[N_TEXTS]; /* response, input, messages, history */
    uint64_t body_checksum;
    uint64_t checksum; /* of this header up to here */
};
static_assert(sizeof(struct record_header) == 72, "written to files as it is");

/* ---- ids ---- */

struct response_id response_id_create(void)
{
    struct timespec now;
    struct response_id id;
    clock_gettime(CLOCK_REALTIME, &now);
    id.created_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    if (getrandom(&id.random, sizeof id.random, 0) != sizeof id.random) /* the time tells most of them apart */
        id.random = (uint64_t)now.tv_nsec;
    return id;
}

void response_id_format(char text[RESPONSE_ID_BYTES], const struct response_id *id)
{
    snprintf(text, RESPONSE_ID_BYTES, "resp_%016" PRIx64 "%016" PRIx64, (uint64_t)id->created_us, id->random);
}

static bool parse_number(const char *text, uint64_t *ret_number)
{
    uint64_t number = 0;
    for (int i = 0; i < 16; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        number = number << 4 | (uint64_t)digit;
    }
    *ret_number = number;
    return true;
}

bool response_id_parse(struct response_id *id, const char *text)
{
    static const char *const prefixes[] = {"resp_", "msg_", "rs_", "fc_"};
    const char *digits = NULL;
    uint64_t created;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(text, prefixes[i], strlen(prefixes[i])) == 0)
            digits = text + strlen(prefixes[i]);
    if (digits == NULL || strspn(digits, "0123456789abcdef") != strlen(digits) || strlen(digits) < RESPONSE_ID_DIGITS ||
        (text[2] == 's' && strlen(digits) != RESPONSE_ID_DIGITS) || !parse_number(digits, &created) ||
        !parse_number(digits + 16, &id->random))
        return false;
    id->created_us = (int64_t)created;
    return true;
}

bool response_id_equal(const struct response_id *a, const struct response_id *b)
{
    return a->created_us == b->created_us && a->random == b->random;
}

/* ---- records ---- */

static uint64_t header_checksum(const struct record_header *header)
{
    return XXH3_64bits(header, sizeof *header - sizeof header->checksum);
}

void *response_record_encode(const struct response_record *record, size_t *ret_bytes)
{
    const struct response_text *texts[N_TEXTS] = {&record->response, &record->input, &record->messages,
                                                  &record->history};
    struct record_header header = {
        .version = FORMAT_VERSION, .n_tokens = record->n_tokens, .id = record->id, .model = record->model};
    memcpy(header.magic, record_magic, sizeof header.magic);
    size_t token_bytes = record->n_tokens * sizeof *record->tokens, body = token_bytes;
    for (int i = 0; i < N_TEXTS; i++) {
        if (texts[i]->length > UINT32_MAX)
            return NULL;
        header.lengths[i] = (uint32_t)texts[i]->length;
        body += texts[i]->length;
    }
    char *bytes = malloc(sizeof header + body), *at = bytes + sizeof header + token_bytes;
    if (bytes == NULL)
        return NULL;
    if (token_bytes > 0)
        memcpy(bytes + sizeof header, record->tokens, token_bytes);
    for (int i = 0; i < N_TEXTS; at += texts[i]->length, i++)
        if (texts[i]->length > 0)
            memcpy(at, texts[i]->text, texts[i]->length);
    header.body_checksum = XXH3_64bits(bytes + sizeof header, body);
    header.checksum = header_checksum(&header);
    memcpy(bytes, &header, sizeof header);
    *ret_bytes = sizeof header + body;
    return bytes;
}

static enum npu_status check_header(const struct record_header *header, struct npu_error *error)
{
    if (memcmp(header->magic, record_magic, sizeof header->magic) != 0)
        return npu_error_set(error, NPU_ERROR_INPUT, "it is not a stored response");
    if (header->version != FORMAT_VERSION)
        return npu_error_set(error, NPU_ERROR_INPUT, "it has format version %u, this npud reads %d", header->version,
                             FORMAT_VERSION);
    if (header->checksum != header_checksum(header))
        return npu_error_set(error, NPU_ERROR_INPUT, "the checksum of its head is wrong");
    return NPU_OK;
}

enum npu_status response_record_decode(struct response_record *record, const void *bytes, size_t n,
                                       struct npu_error *error)
{
    struct record_header header;
    if (n < sizeof header)
        return npu_error_set(error, NPU_ERROR_INPUT, "it is cut short: %zu bytes, the head alone has %zu", n,
                             sizeof header);
    memcpy(&header, bytes, sizeof header);
    enum npu_status status = check_header(&header, error);
    if (status != NPU_OK)
        return status;
    const char *body = (const char *)bytes + sizeof header;
    uint64_t body_bytes = (uint64_t)header.n_tokens * sizeof *record->tokens, at = body_bytes;
    for (int i = 0; i < N_TEXTS; i++)
        body_bytes += header.lengths[i];
    if (n - sizeof header != body_bytes)
        return npu_error_set(error, NPU_ERROR_INPUT, "it has %zu bytes, not %" PRIu64, n, body_bytes + sizeof header);
    if (header.body_checksum != XXH3_64bits(body, body_bytes))
        return npu_error_set(error, NPU_ERROR_INPUT, "its checksum is wrong");
    *record = (struct response_record){.id = header.id, .n_tokens = header.n_tokens, .model = header.model};
    record->tokens = (const int32_t *)(const void *)body;
    struct response_text *texts[N_TEXTS] = {&record->response, &record->input, &record->messages, &record->history};
    for (int i = 0; i < N_TEXTS; at += header.lengths[i], i++)
        *texts[i] = (struct response_text){body + at, header.lengths[i]};
    return NPU_OK;
}
