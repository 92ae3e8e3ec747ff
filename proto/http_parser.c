#include "proto/http_parser.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum stage {
    STAGE_HEAD,
    STAGE_BODY,
    STAGE_DONE,
    STAGE_FAILED,
};

enum {
    MAX_EMPTY_LINES = 4, /* before a request line: RFC 9112, 2.2 asks to skip at least one */
    FIRST_BODY_BYTES = 16 * 1024,
    KEPT_BYTES = 4 * 1024, /* buffers up to this size are kept between the requests of a connection */
};

static enum http_parser_result fail(struct http_parser *parser, enum api_error_kind kind, const char *message)
{
    parser->stage = STAGE_FAILED;
    if (parser->error.kind == API_ERROR_NONE)
        api_error_set(&parser->error, kind, NULL, "%s", message);
    return HTTP_PARSER_ERROR;
}

/* Callbacks of llhttp return HPE_USER after this; the error is already noted. */
static int refuse(struct http_parser *parser, enum api_error_kind kind, const char *message)
{
    fail(parser, kind, message);
    return HPE_USER;
}

/* ---- head ---- */

/* The whole head lies in one buffer, so every slice comes in one piece and may be cut with a NUL once llhttp is
 * through. */
static int on_url(llhttp_t *llhttp, const char *at, size_t length)
{
    struct http_parser *parser = llhttp->data;
    if (parser->head.target != NULL)
        return refuse(parser, API_ERROR_MALFORMED, "the request line could not be read");
    parser->head.target = at;
    parser->target_length = length;
    return 0;
}

static int on_header_field(llhttp_t *llhttp, const char *at, size_t length)
{
    struct http_parser *parser = llhttp->data;
    if (parser->stage != STAGE_HEAD) { /* a trailer field: dropped, and nothing after it is trusted */
        parser->reusable = false;
        return 0;
    }
    struct http_head *head = &parser->head;
    if (head->n_headers == HTTP_MAX_HEADERS)
        return refuse(parser, API_ERROR_HEADER_TOO_LARGE, "more than 256 header fields");
    head->headers[head->n_headers].name = at;
    head->headers[head->n_headers].value = NULL;
    parser->name_length[head->n_headers] = (uint32_t)length;
    parser->value_length[head->n_headers] = 0;
    head->n_headers++;
    return 0;
}

static int on_header_value(llhttp_t *llhttp, const char *at, size_t length)
{
    struct http_parser *parser = llhttp->data;
    struct http_head *head = &parser->head;
    if (parser->stage != STAGE_HEAD)
        return 0;
    if (head->n_headers == 0 || head->headers[head->n_headers - 1].value != NULL)
        return refuse(parser, API_ERROR_MALFORMED, "a header field could not be read");
    head->headers[head->n_headers - 1].value = at;
    parser->value_length[head->n_headers - 1] = (uint32_t)length;
    return 0;
}

static int on_headers_complete(llhttp_t *llhttp)
{
    struct http_parser *parser = llhttp->data;
    struct http_head *head = &parser->head;
    /* An offer to change the protocol is declined by going on in this one; CONNECT is refused by whoever routes. */
    llhttp->upgrade = 0;
    head->minor = llhttp->http_minor;
    head->keep_alive = llhttp_should_keep_alive(llhttp) != 0;
    head->chunked = (llhttp->flags & F_CHUNKED) != 0;
    head->content_length = head->chunked ? 0 : llhttp->content_length;
    head->has_length = (llhttp->flags & (F_CHUNKED | F_CONTENT_LENGTH)) != 0;
    parser->headers_complete = true;
    return 0;
}

/* ---- body ---- */

static bool reserve_body(struct http_parser *parser, size_t length)
{
    size_t needed = parser->body_length + length + 1;
    if (needed <= parser->body_capacity)
        return true;
    size_t capacity = parser->body_capacity != 0 ? parser->body_capacity : FIRST_BODY_BYTES;
    while (capacity < needed)
        capacity *= 2;
    if (capacity > parser->body_limit)
        capacity = parser->body_limit + 1;
    struct http_budget *budget = parser->body_budget;
    if (budget != NULL && capacity - parser->body_capacity > budget->limit - budget->used) {
        fail(parser, API_ERROR_OVERLOADED, "too many request bodies at once; try again later");
        return false;
    }
    char *grown = realloc(parser->body, capacity);
    if (grown == NULL) {
        fail(parser, API_ERROR_OUT_OF_MEMORY, "not enough memory for the request body");
        return false;
    }
    if (budget != NULL)
        budget->used += capacity - parser->body_capacity;
    parser->body = grown;
    parser->body_capacity = capacity;
    return true;
}

static enum http_parser_result refuse_long_body(struct http_parser *parser)
{
    api_error_set(&parser->error, API_ERROR_BODY_TOO_LARGE, NULL, "the request body may have at most %zu bytes",
                  parser->body_limit);
    return fail(parser, API_ERROR_BODY_TOO_LARGE, "");
}

static int on_body(llhttp_t *llhttp, const char *at, size_t length)
{
    struct http_parser *parser = llhttp->data;
    if (length > parser->body_limit - parser->body_length) {
        refuse_long_body(parser);
        return HPE_USER;
    }
    if (!reserve_body(parser, length))
        return HPE_USER;
    memcpy(parser->body + parser->body_length, at, length);
    parser->body_length += length;
    parser->body[parser->body_length] = '\0';
    return 0;
}

/* Refused before any of it is read. */
static int on_chunk_header(llhttp_t *llhttp)
{
    struct http_parser *parser = llhttp->data;
    if (llhttp->content_length <= parser->body_limit - parser->body_length)
        return 0;
    refuse_long_body(parser);
    return HPE_USER;
}

/* Proxies have disagreed about where a chunk with an extension ends. */
static int on_chunk_extension(llhttp_t *llhttp, const char *at, size_t length)
{
    struct http_parser *parser = llhttp->data;
    (void)at;
    (void)length;
    parser->reusable = false;
    return 0;
}

static int on_message_complete(llhttp_t *llhttp)
{
    struct http_parser *parser = llhttp->data;
    parser->message_complete = true;
    return HPE_PAUSED;
}

static void release_body(struct http_parser *parser)
{
    if (parser->body_budget != NULL)
        parser->body_budget->used -= parser->body_capacity;
    free(parser->body);
    parser->body = NULL;
    parser->body_capacity = 0;
    parser->body_length = 0;
}

/* ---- life ---- */

void http_parser_init(struct http_parser *parser, const struct http_parser_limits *limits, struct http_budget *budget)
{
    memset(parser, 0, sizeof *parser);
    parser->limits = *limits;
    parser->budget = budget;
    parser->body_budget = budget;
    llhttp_settings_init(&parser->settings);
    parser->settings.on_url = on_url;
    parser->settings.on_header_field = on_header_field;
    parser->settings.on_header_value = on_header_value;
    parser->settings.on_headers_complete = on_headers_complete;
    parser->settings.on_body = on_body;
    parser->settings.on_chunk_header = on_chunk_header;
    parser->settings.on_chunk_extension_name = on_chunk_extension;
    parser->settings.on_message_complete = on_message_complete;
    http_parser_next(parser);
}

void http_parser_clear(struct http_parser *parser)
{
    release_body(parser);
    free(parser->head_text);
    parser->head_text = NULL;
    parser->head_capacity = 0;
}

void http_parser_next(struct http_parser *parser)
{
    release_body(parser);
    if (parser->head_capacity > KEPT_BYTES) {
        free(parser->head_text);
        parser->head_text = NULL;
        parser->head_capacity = 0;
    }
    memset(&parser->head, 0, sizeof parser->head);
    memset(&parser->error, 0, sizeof parser->error);
    /* Afresh for each request: llhttp carries nothing over from one to the next. */
    llhttp_init(&parser->llhttp, HTTP_REQUEST, &parser->settings);
    parser->llhttp.data = parser;
    parser->stage = STAGE_HEAD;
    parser->reusable = true;
    parser->body_limit = parser->limits.body_bytes;
    parser->body_budget = parser->budget;
    parser->head_length = parser->line_length = parser->target_length = parser->framing_bytes = 0;
    parser->n_lines = parser->n_empty_lines = 0;
    parser->after_cr = parser->headers_complete = parser->message_complete = false;
}

void http_parser_set_body_limit(struct http_parser *parser, size_t bytes, struct http_budget *budget)
{
    parser->body_limit = bytes;
    parser->body_budget = budget;
}

bool http_parser_is_idle(const struct http_parser *parser)
{
    return parser->stage == STAGE_HEAD && parser->head_length == 0;
}

bool http_parser_in_head(const struct http_parser *parser)
{
    return parser->stage == STAGE_HEAD;
}

const char *http_head_find(const struct http_head *head, const char *name)
{
    for (int i = 0; i < head->n_headers; i++) {
        if (strcasecmp(head->headers[i].name, name) == 0)
            return head->headers[i].value;
    }
    return NULL;
}

char *http_parser_take_body(struct http_parser *parser, size_t *ret_length, size_t *ret_charge)
{
    char *body = parser->body;
    if (body == NULL)
        body = calloc(1, 1);
    *ret_length = parser->body_length;
    *ret_charge = parser->body_budget != NULL ? parser->body_capacity : 0;
    parser->body = NULL;
    parser->body_capacity = parser->body_length = 0;
    return body;
}

/* ---- checks of a complete head ---- */

static int count_fields(const struct http_head *head, const char *name)
{
    int n = 0;
    for (int i = 0; i < head->n_headers; i++)
        n += strcasecmp(head->headers[i].name, name) == 0;
    return n;
}

/* Cuts the slices that llhttp found out of the buffer. Every slice is followed by at least one byte of the head. */
static void terminate_slices(struct http_parser *parser)
{
    struct http_head *head = &parser->head;
    for (int i = 0; i < head->n_headers; i++) {
        struct http_header *header = &head->headers[i];
        ((char *)header->name)[parser->name_length[i]] = '\0';
        size_t length = parser->value_length[i];
        if (header->value == NULL) {
            header->value = "";
            continue;
        }
        while (length > 0 && (header->value[length - 1] == ' ' || header->value[length - 1] == '\t'))
            length--;
        ((char *)header->value)[length] = '\0';
    }
    ((char *)head->target)[parser->target_length] = '\0';
}

/* The path of an origin-form or absolute-form target (RFC 9112, 3.2). */
static bool split_target(struct http_head *head)
{
    char *path = (char *)head->target;
    if (strcmp(path, "*") == 0 && strcmp(head->method, "OPTIONS") == 0) {
        head->path = path;
        return true;
    }
    if (strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0) {
        path = strstr(path, "://") + 3;
        path += strcspn(path, "/?#");
        if (*path != '/') {
            head->path = "/";
            return *path == '\0';
        }
    }
    if (*path != '/')
        return false;
    head->path = path;
    path[strcspn(path, "#")] = '\0';
    char *question = strchr(path, '?');
    if (question != NULL) {
        *question = '\0';
        head->query = question + 1;
    }
    return true;
}

static enum http_parser_result check_head(struct http_parser *parser)
{
    struct http_head *head = &parser->head;
    head->method = llhttp_method_name((llhttp_method_t)parser->llhttp.method);
    terminate_slices(parser);
    if (parser->llhttp.http_major != 1)
        return fail(parser, API_ERROR_VERSION_NOT_SUPPORTED, "the HTTP version must be 1.1 or 1.0");
    if (strcmp(head->method, "CONNECT") == 0)
        return fail(parser, API_ERROR_NOT_IMPLEMENTED, "CONNECT is not served: this is no proxy");
    int n_hosts = count_fields(head, "host");
    if (n_hosts > 1 || (n_hosts == 0 && head->minor == 1))
        return fail(parser, API_ERROR_MALFORMED, "a request must have exactly one Host field");
    const char *coding = http_head_find(head, "transfer-encoding");
    if (coding != NULL) {
        if (head->minor == 0)
            return fail(parser, API_ERROR_MALFORMED, "Transfer-Encoding is not part of HTTP/1.0");
        if (count_fields(head, "content-length") != 0)
            return fail(parser, API_ERROR_MALFORMED, "Content-Length and Transfer-Encoding exclude each other");
        if (count_fields(head, "transfer-encoding") != 1 || strcasecmp(coding, "chunked") != 0)
            return fail(parser, API_ERROR_NOT_IMPLEMENTED, "the only Transfer-Encoding served is chunked");
        if (!head->chunked)
            return fail(parser, API_ERROR_MALFORMED, "Transfer-Encoding could not be read");
    }
    if (count_fields(head, "content-length") > 1)
        return fail(parser, API_ERROR_MALFORMED, "Content-Length is given more than once");
    if (!split_target(head))
        return fail(parser, API_ERROR_MALFORMED, "the request target must be a path that begins with '/'");
    const char *expectation = http_head_find(head, "expect");
    if (expectation != NULL && head->minor == 1) {
        if (strcasecmp(expectation, "100-continue") != 0)
            return fail(parser, API_ERROR_EXPECTATION_FAILED, "the only expectation served is 100-continue");
        head->expects_continue = true;
    }
    parser->stage = STAGE_BODY;
    return HTTP_PARSER_HEAD;
}

/* A well-formed request line with a method that llhttp does not know is not the client's grammar mistake. */
static bool has_unknown_method(const char *head_text)
{
    size_t length = strspn(head_text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_abcdefghijklmnopqrstuvwxyz");
    return length > 0 && head_text[length] == ' ' && (head_text[length + 1] == '/' || head_text[length + 1] == '*');
}

static enum http_parser_result parse_head(struct http_parser *parser)
{
    if (strncmp(parser->head_text, "PRI * HTTP/2.0\r\n", 16) == 0)
        return fail(parser, API_ERROR_VERSION_NOT_SUPPORTED, "the HTTP version must be 1.1 or 1.0");
    int n_spaces = 0;
    for (const char *c = parser->head_text; *c != '\r'; c++)
        n_spaces += *c == ' ';
    if (n_spaces > 2) /* llhttp skips some, others take them for part of the target */
        return fail(parser, API_ERROR_MALFORMED, "malformed request line");
    llhttp_errno_t result = llhttp_execute(&parser->llhttp, parser->head_text, parser->head_length);
    if (parser->error.kind != API_ERROR_NONE)
        return HTTP_PARSER_ERROR;
    if (result == HPE_INVALID_VERSION || result == HPE_PAUSED_H2_UPGRADE)
        return fail(parser, API_ERROR_VERSION_NOT_SUPPORTED, "the HTTP version must be 1.1 or 1.0");
    if (result == HPE_INVALID_METHOD && has_unknown_method(parser->head_text))
        return fail(parser, API_ERROR_NOT_IMPLEMENTED, "this method is not known here");
    if (result != HPE_OK && !(result == HPE_PAUSED && parser->message_complete)) {
        api_error_set(&parser->error, API_ERROR_MALFORMED, NULL, "malformed request head: %s",
                      llhttp_get_error_reason(&parser->llhttp) != NULL ? llhttp_get_error_reason(&parser->llhttp)
                                                                       : llhttp_errno_name(result));
        return fail(parser, API_ERROR_MALFORMED, "");
    }
    if (!parser->headers_complete || parser->head.target == NULL || parser->body_length > 0)
        return fail(parser, API_ERROR_MALFORMED, "malformed request head");
    return check_head(parser);
}

static bool append_head(struct http_parser *parser, char c)
{
    if (parser->head_length + 1 >= parser->head_capacity) { /* one byte stays for the final NUL */
        size_t capacity = parser->head_capacity != 0 ? parser->head_capacity * 2 : 1024;
        char *grown = realloc(parser->head_text, capacity);
        if (grown == NULL)
            return false;
        parser->head_text = grown;
        parser->head_capacity = capacity;
    }
    parser->head_text[parser->head_length++] = c;
    return true;
}

/* The guard: line ends, folding and NUL bytes. Sets *ret_complete at the empty line that ends the head. */
static enum http_parser_result guard_byte(struct http_parser *parser, char c, bool *ret_complete)
{
    if (parser->after_cr) {
        if (c != '\n')
            return fail(parser, API_ERROR_MALFORMED, "malformed request head: a CR must be followed by LF");
        parser->after_cr = false;
        if (parser->line_length == 0) {
            if (parser->n_lines > 0) {
                *ret_complete = true;
            } else {
                if (++parser->n_empty_lines > MAX_EMPTY_LINES)
                    return fail(parser, API_ERROR_MALFORMED, "too many empty lines before the request line");
                parser->head_length = 0; /* dropped */
                return HTTP_PARSER_MORE;
            }
        }
        parser->n_lines++;
        parser->line_length = 0;
    } else if (c == '\r') {
        parser->after_cr = true;
    } else if (c == '\n') {
        return fail(parser, API_ERROR_MALFORMED, "malformed request head: lines must end with CR LF");
    } else if (c == '\0') {
        return fail(parser, API_ERROR_MALFORMED, "malformed request head: it holds a NUL byte");
    } else {
        if (parser->line_length == 0) {
            if (parser->n_lines == 0 && !((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')))
                return fail(parser, API_ERROR_MALFORMED, "this is not an HTTP request");
            if (parser->n_lines > 0 && (c == ' ' || c == '\t'))
                return fail(parser, API_ERROR_MALFORMED, "malformed request head: header fields must not be folded");
            if (parser->n_lines > 0 && c == ':')
                return fail(parser, API_ERROR_MALFORMED, "malformed request head: a header field has no name");
        }
        parser->line_length++;
    }
    if (parser->head_length >= parser->limits.head_bytes) {
        bool in_request_line = parser->n_lines == 0;
        return fail(parser, in_request_line ? API_ERROR_TARGET_TOO_LONG : API_ERROR_HEADER_TOO_LARGE,
                    in_request_line ? "the request line is too long" : "the request's header fields are too long");
    }
    if (!append_head(parser, c))
        return fail(parser, API_ERROR_OUT_OF_MEMORY, "not enough memory for the request head");
    return HTTP_PARSER_MORE;
}

static enum http_parser_result feed_head(struct http_parser *parser, const char *data, size_t length,
                                         size_t *ret_consumed)
{
    for (size_t i = 0; i < length; i++) {
        bool complete = false;
        if (guard_byte(parser, data[i], &complete) == HTTP_PARSER_ERROR)
            return HTTP_PARSER_ERROR;
        if (complete) {
            *ret_consumed = i + 1;
            parser->head_text[parser->head_length] = '\0';
            return parse_head(parser);
        }
    }
    *ret_consumed = length;
    return HTTP_PARSER_MORE;
}

static enum http_parser_result feed_body(struct http_parser *parser, const char *data, size_t length,
                                         size_t *ret_consumed)
{
    if (parser->head.content_length > parser->body_limit)
        return refuse_long_body(parser);
    if (length > 0 && !parser->message_complete) {
        size_t body_before = parser->body_length;
        llhttp_errno_t result = llhttp_execute(&parser->llhttp, data, length);
        if (parser->error.kind != API_ERROR_NONE)
            return HTTP_PARSER_ERROR;
        if (result == HPE_OK) {
            *ret_consumed = length;
        } else if (result == HPE_PAUSED && parser->message_complete) {
            *ret_consumed = (size_t)(llhttp_get_error_pos(&parser->llhttp) - data);
        } else {
            api_error_set(&parser->error, API_ERROR_MALFORMED, NULL, "malformed request body: %s",
                          llhttp_get_error_reason(&parser->llhttp) != NULL ? llhttp_get_error_reason(&parser->llhttp)
                                                                           : llhttp_errno_name(result));
            return fail(parser, API_ERROR_MALFORMED, "");
        }
        parser->framing_bytes += *ret_consumed - (parser->body_length - body_before);
        /* Chunk sizes, extensions and trailers cost no memory, but they must come to an end. */
        if (parser->framing_bytes > parser->limits.head_bytes + parser->body_limit)
            return fail(parser, API_ERROR_MALFORMED, "the chunks of the request body are mostly framing");
    }
    if (!parser->message_complete)
        return HTTP_PARSER_MORE;
    parser->stage = STAGE_DONE;
    return HTTP_PARSER_DONE;
}

enum http_parser_result http_parser_feed(struct http_parser *parser, const char *data, size_t length,
                                         size_t *ret_consumed)
{
    *ret_consumed = 0;
    switch (parser->stage) {
    case STAGE_HEAD:
        return feed_head(parser, data, length, ret_consumed);
    case STAGE_BODY:
        return feed_body(parser, data, length, ret_consumed);
    case STAGE_DONE:
        return HTTP_PARSER_DONE;
    default:
        return HTTP_PARSER_ERROR;
    }
}
