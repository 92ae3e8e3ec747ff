/* One HTTP/1.1 request at a time from a stream of bytes that may arrive in any pieces: llhttp behind a guard.
 *
 * The guard collects the whole head (request line and header fields) before llhttp sees it and refuses what different
 * parsers read differently: line ends that are not CR LF, folded lines, NUL bytes, a body length given twice or in two
 * ways. Sources: RFC 9110, RFC 9112.
 *
 * No sockets here. Thread: whoever owns the parser. The struct must not move after http_parser_init. */
#ifndef PROTO_HTTP_PARSER_H
#define PROTO_HTTP_PARSER_H

#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/api_error.h"

enum {
    HTTP_MAX_HEADERS = 256,
};

struct http_header {
    const char *name; /* NUL-terminated, as the client wrote it */
    const char *value; /* NUL-terminated, without surrounding white space */
};

/* Valid from HTTP_PARSER_HEAD until http_parser_next. */
struct http_head {
    const char *method; /* "GET" */
    const char *target; /* as sent */
    const char *path; /* the target's path, percent-encoded as sent; "*" for OPTIONS * */
    const char *query; /* after '?', or NULL */
    int minor; /* HTTP/1.minor: 0 or 1 */
    struct http_header headers[HTTP_MAX_HEADERS];
    int n_headers;
    bool keep_alive;
    bool expects_continue;
    bool has_length; /* Content-Length or chunked: a body is declared */
    bool chunked;
    uint64_t content_length; /* of a body that is not chunked */
};

/* Bytes that many parsers hold together, so that a crowd of clients cannot exhaust memory with bodies. */
struct http_budget {
    size_t used, limit; /* bytes */
};

struct http_parser_limits {
    size_t head_bytes, body_bytes;
};

enum http_parser_result {
    HTTP_PARSER_MORE, /* everything given was consumed; feed more */
    HTTP_PARSER_HEAD, /* once a request: the head is complete; go on feeding for the body, with 0 bytes if there are no
                         more */
    HTTP_PARSER_DONE, /* the request is complete; the rest of the bytes belongs to the next one */
    HTTP_PARSER_ERROR, /* error says what; sticks until the connection ends */
};

struct http_parser {
    struct http_head head;
    char *body; /* owned; NUL-terminated; http_parser_take_body */
    size_t body_length;
    struct api_error error;
    bool reusable; /* false once the framing was unusual (trailers, chunk extensions): close after this request */

    /* private */
    llhttp_t llhttp;
    llhttp_settings_t settings;
    struct http_parser_limits limits;
    struct http_budget *budget;
    size_t body_limit; /* of this request, and where its body counts */
    struct http_budget *body_budget;
    int stage;
    char *head_text;
    size_t head_length, head_capacity, line_length, target_length;
    uint32_t name_length[HTTP_MAX_HEADERS], value_length[HTTP_MAX_HEADERS];
    int n_lines, n_empty_lines;
    bool after_cr, headers_complete, message_complete;
    size_t body_capacity, framing_bytes;
};

/* budget may be NULL. */
void http_parser_init(struct http_parser *parser, const struct http_parser_limits *limits, struct http_budget *budget);
/* Frees what the parser holds. */
void http_parser_clear(struct http_parser *parser);
/* Makes ready for the next request of the connection. */
void http_parser_next(struct http_parser *parser);

/* At HTTP_PARSER_HEAD: another limit and another budget (or NULL) for the body of this request. */
void http_parser_set_body_limit(struct http_parser *parser, size_t bytes, struct http_budget *budget);

enum http_parser_result http_parser_feed(struct http_parser *parser, const char *data, size_t length,
                                         size_t *ret_consumed);

/* Nothing of a request has arrived yet. */
bool http_parser_is_idle(const struct http_parser *parser);
/* The head is still being received (also when idle). */
bool http_parser_in_head(const struct http_parser *parser);

/* The first field with this name (case does not matter), or NULL. */
const char *http_head_find(const struct http_head *head, const char *name);

/* Hands the body (malloc'ed, never NULL after success; empty without a body) to the caller, and with it what it counts
 * in body_budget: the caller subtracts *ret_charge from it when the body is gone. NULL when memory is out. */
char *http_parser_take_body(struct http_parser *parser, size_t *ret_length, size_t *ret_charge);

#endif
