#include "proto/embedding_response.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Thousands of vectors of thousands of numbers: written straight, without a tree of JSON values. */

static void write_numbers(FILE *stream, const float *values, int n)
{
    fputc('[', stream);
    for (int i = 0; i < n; i++) {
        char number[32];
        /* Nine digits tell every float from every other. Locales write other decimal points; the daemon sets none. */
        int length = snprintf(number, sizeof number, "%s%.9g", i > 0 ? "," : "", (double)values[i]);
        fwrite(number, 1, (size_t)length, stream);
    }
    fputc(']', stream);
}

static unsigned byte_of(const float *values, size_t index)
{
    uint32_t bits;
    memcpy(&bits, &values[index / 4], sizeof bits);
    return bits >> (8 * (index % 4)) & 0xff;
}

/* RFC 4648, 4. */
static void write_base64(FILE *stream, const float *values, int n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t length = (size_t)n * sizeof *values;
    fputc('"', stream);
    for (size_t i = 0; i < length; i += 3) {
        unsigned bits = byte_of(values, i) << 16;
        bits |= i + 1 < length ? byte_of(values, i + 1) << 8 : 0;
        bits |= i + 2 < length ? byte_of(values, i + 2) : 0;
        char quad[4] = {digits[bits >> 18], digits[bits >> 12 & 63], i + 1 < length ? digits[bits >> 6 & 63] : '=',
                        i + 2 < length ? digits[bits & 63] : '='};
        fwrite(quad, 1, sizeof quad, stream);
    }
    fputc('"', stream);
}

char *embedding_response_json(const struct embedding_response *response, size_t *ret_length)
{
    char *text = NULL, *model = NULL;
    json_t *name = json_string(response->model);
    if (name != NULL)
        model = json_dumps(name, JSON_ENCODE_ANY);
    json_decref(name);
    FILE *stream = model != NULL ? open_memstream(&text, ret_length) : NULL;
    if (stream == NULL) {
        free(model);
        return NULL;
    }
    fputs("{\"object\":\"list\",\"data\":[", stream);
    for (int i = 0; i < response->n; i++) {
        fprintf(stream, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i > 0 ? "," : "", i);
        if (response->base64)
            write_base64(stream, response->embeddings[i], response->dimensions);
        else
            write_numbers(stream, response->embeddings[i], response->dimensions);
        fputc('}', stream);
    }
    fprintf(stream, "],\"model\":%s,\"usage\":{\"prompt_tokens\":%" PRId64 ",\"total_tokens\":%" PRId64 "}}", model,
            response->prompt_tokens, response->prompt_tokens);
    free(model);
    bool failed = ferror(stream) != 0;
    if (fclose(stream) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
