/* Paths and methods to handlers. Thread: the loop's. */
#ifndef PROTO_HTTP_ROUTER_H
#define PROTO_HTTP_ROUTER_H

#include <stdbool.h>

#include "proto/http_server.h"

enum {
    HTTP_MAX_PARAMETERS = 4,
    HTTP_MAX_PARAMETER_BYTES = 256, /* a file's name, which a model's may be */
};

struct http_route {
    const char *method, *pattern;
    enum http_body body;
    http_handler handler;
    void *context;
};

struct http_router {
    struct http_route *routes;
    int n_routes;
};

struct http_parameter {
    char name[32];
    char value[HTTP_MAX_PARAMETER_BYTES]; /* percent-decoded */
};

struct http_match {
    const struct http_route *route; /* NULL: none */
    bool path_known; /* another method is served at this path */
    char allow[96]; /* the methods served at this path, for Allow */
    struct http_parameter parameters[HTTP_MAX_PARAMETERS];
    int n_parameters;
};

bool http_router_add(struct http_router *router, const struct http_route *route);
void http_router_clear(struct http_router *router);

/* Finds the route of method (HEAD: that of GET) and path (percent-encoded, or "*", which every route matches). */
void http_router_find(const struct http_router *router, const char *method, const char *path, struct http_match *match);

#endif
