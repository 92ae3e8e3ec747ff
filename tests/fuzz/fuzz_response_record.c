/* Any bytes as a stored response: a record that is within them, or an error. Checksums are put right, so that what is
 * behind them is reached. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/response_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    HEADER_BYTES = 72, /* the last 16 are the checksums of the body and of the head */
};

static void require(bool condition)
{
    if (!condition)
        abort();
}

static uint64_t sum(const struct response_text *text)
{
    uint64_t total = 0;
    for (size_t i = 0; i < text->length; i++)
        total += (unsigned char)text->text[i];
    return total;
}

static void decode(const void *bytes, size_t n)
{
    struct response_record record;
    struct npu_error error;
    if (response_record_decode(&record, bytes, n, &error) != NPU_OK) {
        require(error.message[0] != '\0');
        return;
    }
    uint64_t total = sum(&record.response) + sum(&record.input) + sum(&record.messages) + sum(&record.history);
    for (uint32_t i = 0; i < record.n_tokens; i++)
        total += (uint32_t)record.tokens[i];
    size_t n_again;
    void *again = response_record_encode(&record, &n_again);
    require(again != NULL && n_again == n && memcmp(again, bytes, n) == 0 && total + 1 > 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *bytes = malloc(size > 0 ? size : 1);
    require(bytes != NULL);
    memcpy(bytes, data, size);
    decode(bytes, size);
    if (size >= HEADER_BYTES) {
        uint32_t version = 1;
        memcpy(bytes, "npudrsp\n", 8);
        memcpy(bytes + 8, &version, sizeof version);
        uint64_t checksum = XXH3_64bits(bytes + HEADER_BYTES, size - HEADER_BYTES);
        memcpy(bytes + HEADER_BYTES - 16, &checksum, sizeof checksum);
        checksum = XXH3_64bits(bytes, HEADER_BYTES - 8);
        memcpy(bytes + HEADER_BYTES - 8, &checksum, sizeof checksum);
        decode(bytes, size);
    }
    struct response_id id;
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    if (response_id_parse(&id, text)) {
        char formatted[RESPONSE_ID_BYTES];
        response_id_format(formatted, &id);
        require(strncmp(strchr(text, '_'), strchr(formatted, '_'), 33) == 0);
    }
    free(text);
    free(bytes);
    return 0;
}
