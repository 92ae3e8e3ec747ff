/* Any bytes as an HTTP connection: nothing crashes, and how the bytes are cut must not change what is read. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/http_parser.h"
#include "proto/http_router.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    LOG_BYTES = 256 * 1024,
};

struct log {
    char text[LOG_BYTES];
    size_t length;
};

static void note(struct log *log, const char *what, const char *text)
{
    int n = snprintf(log->text + log->length, LOG_BYTES - log->length, "%s=%s\n", what, text != NULL ? text : "-");
    log->length += (size_t)n;
    if (log->length >= LOG_BYTES)
        log->length = LOG_BYTES - 1;
}

static void note_head(struct log *log, const struct http_head *head)
{
    note(log, "method", head->method);
    note(log, "path", head->path);
    note(log, "query", head->query);
    for (int i = 0; i < head->n_headers; i++)
        note(log, head->headers[i].name, head->headers[i].value);
    struct http_route routes[] = {{"GET", "/a/{id}", HTTP_BODY_NONE, NULL, NULL},
                                  {"POST", "/v1/completions", HTTP_BODY_JSON, NULL, NULL}};
    struct http_router router = {.routes = routes, .n_routes = 2};
    struct http_match match;
    http_router_find(&router, head->method, head->path, &match);
    note(log, "allow", match.allow);
}

static void read_connection(struct log *log, const char *data, size_t size, unsigned cut)
{
    static const struct http_parser_limits limits = {.head_bytes = 2048, .body_bytes = 4096};
    struct http_budget budget = {.limit = 1 << 20};
    struct http_parser *parser = malloc(sizeof *parser);
    if (parser == NULL)
        abort();
    http_parser_init(parser, &limits, &budget);
    log->length = 0;
    bool open = true, at_head_end = false;
    while (open && (size > 0 || at_head_end)) {
        size_t length = cut == 0 || size < cut ? size : cut, consumed = 0;
        char *piece = malloc(length + 1); /* so that a sanitizer sees a read past it */
        if (piece == NULL)
            abort();
        memcpy(piece, data, length);
        at_head_end = false;
        switch (http_parser_feed(parser, piece, length, &consumed)) {
        case HTTP_PARSER_MORE:
            if (consumed != length)
                abort();
            break;
        case HTTP_PARSER_HEAD:
            note_head(log, &parser->head);
            at_head_end = true;
            break;
        case HTTP_PARSER_DONE: {
            size_t body_length, charge;
            char *body = http_parser_take_body(parser, &body_length, &charge);
            budget.used -= charge;
            note(log, "body", body);
            free(body);
            open = parser->reusable && parser->head.keep_alive;
            http_parser_next(parser);
            break;
        }
        case HTTP_PARSER_ERROR:
            if (parser->error.kind == API_ERROR_NONE)
                abort();
            /* The kind only: with two mistakes in the bytes, their cut decides which message comes first. */
            note(log, "error", api_error_status(parser->error.kind) == 400 ? "400" : parser->error.message);
            open = false;
            break;
        }
        free(piece);
        data += consumed;
        size -= consumed;
    }
    http_parser_clear(parser);
    if (budget.used != 0)
        abort();
    free(parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct log whole, cut;
    if (size == 0)
        return 0;
    read_connection(&whole, (const char *)data + 1, size - 1, 0);
    read_connection(&cut, (const char *)data + 1, size - 1, 1 + data[0] % 64);
    if (strcmp(whole.text, cut.text) != 0)
        abort();
    return 0;
}
