#include "proto/http_cors.h"

#include <string.h>

#include "proto/http_internal.h"

/* What answers may carry beyond the fields that pages see anyway. */
static const char exposed_fields[] = "Allow, Content-Disposition, Retry-After, WWW-Authenticate";
static const char preflight_seconds[] = "7200"; /* the longest that Chromium keeps an answer */

static bool is_port(const char *text)
{
    size_t length = strspn(text, "0123456789");
    return length >= 1 && length <= 5 && text[length] == '\0';
}

bool http_cors_is_origin(const char *text)
{
    if (strcmp(text, "*") == 0)
        return true;
    size_t scheme = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+-.");
    if (scheme == 0 || strncmp(text + scheme, "://", 3) != 0)
        return false;
    const char *host = text + scheme + 3;
    size_t length = host[0] == '[' ? strcspn(host, "]") + 1 : strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789-._~");
    if (host[0] == '[' &&
        (strspn(host + 1, "0123456789abcdef:.") + 2 != length || length < 4 || host[length - 1] != ']'))
        return false;
    return length > 0 && (host[length] == '\0' || (host[length] == ':' && is_port(host + length + 1)));
}

void http_server_allow_origins(struct http_server *server, const char *const *origins, int n)
{
    server->origins = origins;
    server->n_origins = n;
    server->any_origin = false;
    for (int i = 0; i < n; i++)
        server->any_origin |= strcmp(origins[i], "*") == 0;
}

/* The fields of a head that could not be read to its end are not there. */
static const char *field(const struct http_request *request, const char *name)
{
    const struct http_head *head = &request->connection->parser.head;
    return head->path != NULL ? http_head_find(head, name) : NULL;
}

/* What Access-Control-Allow-Origin says; NULL: nothing. */
static const char *allowed_origin(const struct http_request *request)
{
    const struct http_server *server = request->connection->server;
    const char *origin = field(request, "origin");
    if (server->any_origin)
        return origin != NULL ? "*" : NULL;
    for (int i = 0; origin != NULL && i < server->n_origins; i++) {
        if (strcmp(server->origins[i], origin) == 0)
            return server->origins[i];
    }
    return NULL;
}

void cors_add_fields(struct http_request *request)
{
    const struct http_server *server = request->connection->server;
    if (server->n_origins == 0)
        return;
    if (!server->any_origin) /* a cache must not give one origin's answer to another */
        http_response_add_header(request, "Vary", "Origin");
    const char *allowed = allowed_origin(request);
    if (allowed == NULL)
        return;
    http_response_add_header(request, "Access-Control-Allow-Origin", allowed);
    http_response_add_header(request, "Access-Control-Expose-Headers", exposed_fields);
}

void cors_add_preflight_fields(struct http_request *request)
{
    if (request->connection->server->n_origins == 0)
        return;
    http_response_add_header(request, "Vary", "Access-Control-Request-Method, Access-Control-Request-Headers");
    if (allowed_origin(request) == NULL || field(request, "access-control-request-method") == NULL)
        return;
    http_response_add_header(request, "Access-Control-Allow-Methods", request->match.allow);
    /* Clients of OpenAI's send many of their own; "*" would leave Authorization out. */
    const char *fields = field(request, "access-control-request-headers");
    if (fields != NULL && fields[0] != '\0')
        http_response_add_header(request, "Access-Control-Allow-Headers", fields);
    http_response_add_header(request, "Access-Control-Max-Age", preflight_seconds);
}
