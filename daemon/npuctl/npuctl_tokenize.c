#include "daemon/npuctl/npuctl_tokenize.h"

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/tokenizer.h"
#include "daemon/utf8.h"
#include "daemon/utf8_stream.h"
#include "npu/gguf.h"

static const char usage[] =
    "usage: npuctl tokenize --model FILE [options] TEXT\n"
    "Prints the tokens that the model's tokenizer makes of TEXT, one a line: id, tab, piece. TEXT - is standard "
    "input.\n"
    "  --model FILE   GGUF model\n"
    "  --no-special   add no begin or end token, and take control tokens in TEXT as ordinary text\n"
    "  --json         print one JSON array of {\"id\": N, \"piece\": TEXT}; a piece that is not UTF-8 has its "
    "\"bytes\" too\n";

struct options {
    const char *model, *text;
    bool no_special, json;
};

static bool wrong_option(const char *message)
{
    fprintf(stderr, "npuctl tokenize: %s (see npuctl tokenize --help)\n", message);
    return false;
}

/* False: a line on stderr, or help on stdout with *help set. */
static bool parse_options(struct options *options, int argc, char **argv, bool *help)
{
    enum {
        MODEL = 256,
        NO_SPECIAL,
        JSON,
        HELP,
    };
    static const struct option known[] = {
        {"model", required_argument, NULL, MODEL},
        {"no-special", no_argument, NULL, NO_SPECIAL},
        {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, HELP},
        {0},
    };
    *options = (struct options){0};
    *help = false;
    optind = 0; /* argv is the subcommand's own */
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case MODEL:
            options->model = optarg;
            break;
        case NO_SPECIAL:
            options->no_special = true;
            break;
        case JSON:
            options->json = true;
            break;
        case HELP:
            fputs(usage, stdout);
            *help = true;
            return false;
        default: /* getopt has written a line */
            return false;
        }
    }
    if (options->model == NULL)
        return wrong_option("--model FILE is missing");
    if (argc - optind != 1)
        return wrong_option("give one TEXT, in quotes, or - for standard input");
    options->text = argv[optind];
    return true;
}

static enum npu_status read_all(FILE *in, char **ret_text, size_t *ret_length, struct npu_error *error)
{
    size_t capacity = 1 << 16, length = 0;
    char *text = malloc(capacity);
    while (text != NULL) {
        length += fread(text + length, 1, capacity - length, in);
        if (length < capacity)
            break;
        char *larger = capacity <= SIZE_MAX / 2 ? realloc(text, capacity * 2) : NULL;
        if (larger == NULL)
            free(text);
        text = larger;
        capacity *= 2;
    }
    if (text == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for %zu bytes of standard input", capacity);
    if (ferror(in)) {
        free(text);
        return npu_error_set(error, NPU_ERROR_SYSTEM, "cannot read standard input");
    }
    *ret_text = text;
    *ret_length = length;
    return NPU_OK;
}

/* On one line: control characters, backslashes and bytes that are not UTF-8 as \xNN. */
static void print_piece(const char *piece, size_t length)
{
    size_t bytes;
    for (size_t at = 0; at < length; at += bytes) {
        unsigned char first = (unsigned char)piece[at];
        bool character = utf8_look(piece + at, length - at, &bytes) == UTF8_CHARACTER;
        if (character && first >= 0x20 && first != 0x7f && first != '\\') {
            fwrite(piece + at, 1, bytes, stdout);
            continue;
        }
        for (size_t i = 0; i < bytes; i++)
            printf("\\x%02x", (unsigned char)piece[at + i]);
    }
    putchar('\n');
}

static json_t *piece_as_json(int32_t token, const char *piece, size_t length)
{
    char *valid = malloc(UTF8_STREAM_OUTPUT_BYTES(length));
    if (valid == NULL)
        return NULL;
    struct utf8_stream stream;
    utf8_stream_init(&stream);
    size_t n = utf8_stream_push(&stream, piece, length, valid);
    n += utf8_stream_flush(&stream, valid + n);
    json_t *object = json_pack("{s:i, s:s%}", "id", (int)token, "piece", valid, n);
    free(valid);
    if (object == NULL || utf8_is_valid(piece, length))
        return object;
    json_t *bytes = json_array();
    bool good = bytes != NULL;
    for (size_t i = 0; good && i < length; i++)
        good = json_array_append_new(bytes, json_integer((unsigned char)piece[i])) == 0;
    if (json_object_set_new(object, "bytes", bytes) != 0 || !good) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static bool print_json(const struct tokenizer *tokenizer, const int32_t *tokens, int32_t n)
{
    json_t *array = json_array();
    bool good = array != NULL;
    for (int32_t i = 0; good && i < n; i++) {
        size_t length;
        const char *piece = tokenizer_piece(tokenizer, tokens[i], &length);
        good = json_array_append_new(array, piece_as_json(tokens[i], piece, length)) == 0;
    }
    good = good && json_dumpf(array, stdout, JSON_COMPACT) == 0 && putchar('\n') != EOF;
    json_decref(array);
    return good;
}

static enum npu_status print_tokens(const struct options *options, const struct tokenizer *tokenizer, const char *text,
                                    size_t length, struct npu_error *error)
{
    int32_t *tokens, n;
    enum npu_status status =
        tokenizer_encode(tokenizer, text, length, !options->no_special, !options->no_special, &tokens, &n, error);
    if (status != NPU_OK)
        return status;
    if (options->json && !print_json(tokenizer, tokens, n))
        status = npu_error_set(error, NPU_ERROR_SYSTEM, "cannot write the tokens as JSON");
    for (int32_t i = 0; !options->json && i < n; i++) {
        size_t bytes;
        const char *piece = tokenizer_piece(tokenizer, tokens[i], &bytes);
        printf("%d\t", tokens[i]);
        print_piece(piece, bytes);
    }
    free(tokens);
    if (status == NPU_OK && fflush(stdout) != 0)
        status = npu_error_set(error, NPU_ERROR_SYSTEM, "cannot write to standard output");
    return status;
}

int npuctl_tokenize(int argc, char **argv)
{
    struct options options;
    bool help;
    if (!parse_options(&options, argc, argv, &help))
        return help ? 0 : 2;
    struct gguf_file *file = NULL;
    struct tokenizer *tokenizer = NULL;
    char *input = NULL;
    const char *text = options.text;
    size_t length = strlen(text);
    struct npu_error error;
    enum npu_status status = gguf_open(&file, options.model, &error);
    if (status == NPU_OK)
        status = tokenizer_create(&tokenizer, file, &error);
    if (status == NPU_OK && strcmp(options.text, "-") == 0) {
        status = read_all(stdin, &input, &length, &error);
        text = input;
    }
    if (status == NPU_OK)
        status = print_tokens(&options, tokenizer, text, length, &error);
    if (status != NPU_OK)
        fprintf(stderr, "npuctl tokenize: %s\n", error.message);
    free(input);
    tokenizer_destroy(tokenizer);
    gguf_close(file);
    return status == NPU_OK ? 0 : 1;
}
