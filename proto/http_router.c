#include "proto/http_router.h"

#include <stdlib.h>
#include <string.h>

bool http_router_add(struct http_router *router, const struct http_route *route)
{
    struct http_route *grown = realloc(router->routes, (size_t)(router->n_routes + 1) * sizeof *grown);
    if (grown == NULL)
        return false;
    grown[router->n_routes++] = *route;
    router->routes = grown;
    return true;
}

void http_router_clear(struct http_router *router)
{
    free(router->routes);
    router->routes = NULL;
    router->n_routes = 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* One path segment, percent-decoded; false when it is malformed, holds a control character or is too long. */
static bool decode_segment(const char *segment, size_t length, char *out, size_t capacity)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)segment[i];
        if (c == '%') {
            int high = length - i > 2 ? hex_digit(segment[i + 1]) : -1;
            int low = length - i > 2 ? hex_digit(segment[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = (unsigned char)(high * 16 + low);
            i += 2;
        }
        if (c < 0x20 || c == 0x7f || n + 1 >= capacity)
            return false;
        out[n++] = (char)c;
    }
    out[n] = '\0';
    return true;
}

static bool match_pattern(const char *pattern, const char *path, struct http_match *match)
{
    match->n_parameters = 0;
    for (;;) {
        if (*pattern == '\0' || *path == '\0')
            return *pattern == *path;
        /* Both stand at a '/'. */
        pattern++;
        path++;
        size_t pattern_length = strcspn(pattern, "/"), path_length = strcspn(path, "/");
        char segment[HTTP_MAX_PARAMETER_BYTES];
        if (!decode_segment(path, path_length, segment, sizeof segment))
            return false;
        if (pattern[0] == '{') {
            if (path_length == 0 || match->n_parameters == HTTP_MAX_PARAMETERS)
                return false;
            struct http_parameter *parameter = &match->parameters[match->n_parameters++];
            size_t name_length = pattern_length - 2;
            if (name_length >= sizeof parameter->name)
                return false;
            memcpy(parameter->name, pattern + 1, name_length);
            parameter->name[name_length] = '\0';
            strcpy(parameter->value, segment);
        } else if (strlen(segment) != pattern_length || memcmp(segment, pattern, pattern_length) != 0) {
            return false;
        }
        pattern += pattern_length;
        path += path_length;
    }
}

/* A pattern without parameters: no other pattern means this path then, whatever its methods. */
static bool has_literal(const struct http_router *router, const char *path)
{
    struct http_match match = {0};
    for (int i = 0; i < router->n_routes; i++)
        if (match_pattern(router->routes[i].pattern, path, &match) && match.n_parameters == 0)
            return true;
    return false;
}

static void allow(struct http_match *match, const char *method)
{
    size_t length = strlen(match->allow);
    /* Method names hold no other method's name, so a plain search tells whether it is there already. */
    if (strstr(match->allow, method) != NULL || length + strlen(method) + 3 > sizeof match->allow)
        return;
    if (length > 0) {
        strcpy(match->allow + length, ", ");
        length += 2;
    }
    strcpy(match->allow + length, method);
}

void http_router_find(const struct http_router *router, const char *method, const char *path, struct http_match *match)
{
    memset(match, 0, sizeof *match);
    bool any_path = strcmp(path, "*") == 0, literal = !any_path && has_literal(router, path);
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    struct http_match candidate = {0};
    for (int i = 0; i < router->n_routes; i++) {
        const struct http_route *route = &router->routes[i];
        if (!any_path && !match_pattern(route->pattern, path, &candidate))
            continue;
        if (literal && candidate.n_parameters > 0)
            continue;
        match->path_known = true;
        allow(match, route->method);
        if (strcmp(route->method, "GET") == 0)
            allow(match, "HEAD");
        if (!any_path && match->route == NULL && strcmp(route->method, wanted) == 0) {
            match->route = route;
            match->n_parameters = candidate.n_parameters;
            memcpy(match->parameters, candidate.parameters, sizeof match->parameters);
        }
    }
    if (match->path_known)
        allow(match, "OPTIONS");
}
