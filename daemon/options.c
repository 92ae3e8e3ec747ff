#include "daemon/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http_cors.h"

enum option_kind {
    OPTION_TEXT, /* const char * */
    OPTION_INTEGER, /* int64_t */
    OPTION_SIZE, /* uint64_t, with K, M, G or T for powers of 1024 */
    OPTION_CHOICE, /* int: the index of the word */
    OPTION_FLAG, /* bool */
    OPTION_ORIGINS, /* struct option_list, one more each time */
};

struct option_row {
    const char *name;
    enum option_kind kind;
    size_t offset;
    const char *value; /* in the help text; for a choice the words themselves, separated by '|' */
    int64_t minimum, maximum;
    const char *help;
};

#define AT(field) offsetof(struct daemon_options, field)

static const struct option_row rows[] = {
    {"--model", OPTION_TEXT, AT(model), "FILE", 0, 0, "the model, a GGUF file (required)"},
    {"--listen", OPTION_TEXT, AT(listen), "ADDRESS:PORT|unix:PATH", 0, 0,
     "where to serve HTTP (default 127.0.0.1:8080; IPv6 in brackets)"},
    {"--api-key-file", OPTION_TEXT, AT(api_key_file), "FILE", 0, 0,
     "serve only those who show one of its keys (one a line); read again at SIGHUP\n(default: everybody)"},
    {"--cors-origin", OPTION_ORIGINS, AT(cors_origins), "ORIGIN", 0, 0,
     "whose web pages may read answers, e.g. https://example.org, or * for all;\nmay be repeated (default: none)"},
    {"--device", OPTION_TEXT, AT(device), "SELECTOR", 0, 0,
     "index, or text in the platform's or device's name, see npuctl devices\n"
     "(default: the first GPU or accelerator, else the CPU)"},
    {"--context", OPTION_INTEGER, AT(context), "TOKENS", 32, INT32_MAX,
     "context of one session (default: the smaller of the model's and 4096)"},
    {"--parallel", OPTION_INTEGER, AT(parallel), "N", 1, 256, "generations that run at once (default 8)"},
    {"--kv-memory", OPTION_SIZE, AT(kv_memory_bytes), "SIZE", 1 << 20, INT64_MAX,
     "memory for the KV cache, e.g. 512M or 2G\n(default: context times parallel, if memory allows)"},
    {"--kv-type", OPTION_CHOICE, AT(kv_type), "f16|f32", 0, 0, "precision of the KV cache (default f16)"},
    {"--queue", OPTION_INTEGER, AT(queue), "N", 1, 65536,
     "requests that may wait; more are answered with 429 (default 64)"},
    {"--step-target-ms", OPTION_INTEGER, AT(step_target_ms), "MS", 1, 10000,
     "time that a step may take while tokens are streamed (default 50)"},
    {"--client-timeout", OPTION_INTEGER, AT(client_timeout_s), "SECONDS", 1, 3600,
     "how long a client may leave its answer unread (default 30)"},
    {"--state-dir", OPTION_TEXT, AT(state_dir), "DIR", 0, 0,
     "where sessions survive eviction and restart (default: $STATE_DIRECTORY,\nelse nothing is written)"},
    {"--state-max", OPTION_SIZE, AT(state_max_bytes), "SIZE", 1 << 20, INT64_MAX,
     "bound for the files there; the oldest sessions go first (default 2G)"},
    {"--checkpoint-interval", OPTION_INTEGER, AT(checkpoint_interval_s), "SECONDS", 0, 86400,
     "how often idle sessions that changed are written; 0: only when they are\nevicted and at the end (default 60)"},
    {"--cache-dir", OPTION_TEXT, AT(cache_dir), "DIR", 0, 0,
     "compiled kernels (default: $CACHE_DIRECTORY, else $XDG_CACHE_HOME/npud,\nelse ~/.cache/npud)"},
    {"--self-check", OPTION_CHOICE, AT(self_check), "off|quick|full", 0, 0,
     "compare the device with the reference at start (default quick)"},
    {"--model-alias", OPTION_TEXT, AT(model_alias), "NAME", 0, 0,
     "the model's name in answers (default: the file's name)"},
    {"--chat-template", OPTION_TEXT, AT(chat_template), "FILE", 0, 0,
     "how chats are written, a Jinja template (default: the model's own)"},
    {"--log-level", OPTION_CHOICE, AT(log_level), "error|warning|info|debug", 0, 0, "(default info)"},
    {"--help", OPTION_FLAG, AT(help), NULL, 0, 0, "print this"},
    {"--version", OPTION_FLAG, AT(version), NULL, 0, 0, "print the version"},
};

enum {
    N_ROWS = sizeof rows / sizeof rows[0],
};

static bool parse_integer(const char *text, int64_t minimum, int64_t maximum, int64_t *ret_value)
{
    size_t length = strlen(text);
    if (length == 0 || length > 18 || strspn(text, "0123456789") != length)
        return false;
    *ret_value = strtoll(text, NULL, 10);
    return *ret_value >= minimum && *ret_value <= maximum;
}

static bool parse_size(const char *text, int64_t minimum, int64_t maximum, uint64_t *ret_value)
{
    static const char suffixes[] = "KMGT";
    size_t n_digits = strspn(text, "0123456789");
    if (n_digits == 0 || n_digits > 18)
        return false;
    uint64_t value = strtoull(text, NULL, 10);
    const char *suffix = text + n_digits;
    if (*suffix != '\0') {
        const char *found = strchr(suffixes, *suffix >= 'a' ? *suffix - 'a' + 'A' : *suffix);
        if (found == NULL || suffix[1] != '\0')
            return false;
        int shift = 10 * (int)(found - suffixes + 1);
        if (value > (uint64_t)INT64_MAX >> shift)
            return false;
        value <<= shift;
    }
    *ret_value = value;
    return value >= (uint64_t)minimum && value <= (uint64_t)maximum;
}

static bool parse_choice(const char *text, const char *words, int *ret_value)
{
    size_t length = strlen(text);
    for (int index = 0;; index++) {
        size_t word_length = strcspn(words, "|");
        if (word_length == length && memcmp(words, text, length) == 0) {
            *ret_value = index;
            return true;
        }
        if (words[word_length] == '\0')
            return false;
        words += word_length + 1;
    }
}

static bool add_origin(struct option_list *list, const struct option_row *row, const char *text, char *message,
                       size_t message_bytes)
{
    if (!http_cors_is_origin(text)) {
        snprintf(message, message_bytes,
                 "%s must be * or like https://example.org or http://localhost:3000, not '%.100s'", row->name, text);
        return false;
    }
    if (list->n == OPTION_LIST_MAX) {
        snprintf(message, message_bytes, "%s may be given at most %d times", row->name, OPTION_LIST_MAX);
        return false;
    }
    list->values[list->n++] = text;
    return true;
}

static bool set_value(struct daemon_options *options, const struct option_row *row, const char *text, char *message,
                      size_t message_bytes)
{
    void *field = (char *)options + row->offset;
    switch (row->kind) {
    case OPTION_TEXT:
        if (text[0] != '\0') {
            *(const char **)field = text;
            return true;
        }
        snprintf(message, message_bytes, "%s must not be empty", row->name);
        return false;
    case OPTION_INTEGER:
        if (parse_integer(text, row->minimum, row->maximum, field))
            return true;
        snprintf(message, message_bytes, "%s must be a number from %" PRId64 " to %" PRId64 ", not '%.100s'", row->name,
                 row->minimum, row->maximum, text);
        return false;
    case OPTION_SIZE:
        if (parse_size(text, row->minimum, row->maximum, field))
            return true;
        snprintf(message, message_bytes, "%s must be at least %" PRId64 " bytes, written like 512M or 2G, not '%.100s'",
                 row->name, row->minimum, text);
        return false;
    case OPTION_CHOICE:
        if (parse_choice(text, row->value, field))
            return true;
        snprintf(message, message_bytes, "%s must be one of %s, not '%.100s'", row->name, row->value, text);
        return false;
    case OPTION_ORIGINS:
        return add_origin(field, row, text, message, message_bytes);
    default:
        snprintf(message, message_bytes, "%s takes no value", row->name);
        return false;
    }
}

/* The row that argument names, alone or before '='; *ret_value is what follows the '=', or NULL. */
static const struct option_row *find_row(const char *argument, const char **ret_value)
{
    size_t length = strcspn(argument, "=");
    *ret_value = argument[length] == '=' ? argument + length + 1 : NULL;
    for (int i = 0; i < N_ROWS; i++) {
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, argument, length) == 0)
            return &rows[i];
    }
    return NULL;
}

bool options_parse(struct daemon_options *options, int n_arguments, char *const *arguments, char *message,
                   size_t message_bytes)
{
    *options = (struct daemon_options){
        .listen = "127.0.0.1:8080",
        .parallel = 8,
        .self_check = 1,
        .log_level = LOG_LEVEL_INFO,
        .step_target_ms = 50,
        .queue = 64,
        .client_timeout_s = 30,
        .state_max_bytes = 2ull << 30,
        .checkpoint_interval_s = 60,
    };
    for (int i = 1; i < n_arguments; i++) {
        const char *value;
        const struct option_row *row = find_row(arguments[i], &value);
        if (row == NULL) {
            snprintf(message, message_bytes, "unknown %s '%.100s'; see npud --help",
                     arguments[i][0] == '-' ? "option" : "argument", arguments[i]);
            return false;
        }
        if (row->kind == OPTION_FLAG && value == NULL) {
            *(bool *)((char *)options + row->offset) = true;
            continue;
        }
        if (value == NULL && i + 1 == n_arguments) {
            snprintf(message, message_bytes, "%s needs a value: %s", row->name, row->value);
            return false;
        }
        if (value == NULL)
            value = arguments[++i];
        if (!set_value(options, row, value, message, message_bytes))
            return false;
    }
    if (options->model == NULL && !options->help && !options->version) {
        snprintf(message, message_bytes, "--model FILE is required; see npud --help");
        return false;
    }
    return true;
}

char *options_help(void)
{
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    if (stream == NULL)
        return NULL;
    fputs("usage: npud --model FILE [options]\n"
          "Serves a language model over HTTP: POST /v1/chat/completions, /v1/completions, /v1/embeddings\n"
          "and /v1/prefill, /v1/sessions, GET /v1/models, /metrics and /health.\n\n",
          stream);
    for (int i = 0; i < N_ROWS; i++) {
        fprintf(stream, "  %s%s%s\n", rows[i].name, rows[i].value != NULL ? " " : "",
                rows[i].value != NULL ? rows[i].value : "");
        for (const char *line = rows[i].help; *line != '\0';) {
            size_t line_length = strcspn(line, "\n");
            fprintf(stream, "        %.*s\n", (int)line_length, line);
            line += line_length + (line[line_length] == '\n');
        }
    }
    if (fclose(stream) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
