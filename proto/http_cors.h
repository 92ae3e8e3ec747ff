/* Which web pages may read answers: cross-origin resource sharing. Source: the Fetch standard, "CORS protocol".
 * Credentials of the browser (cookies, client certificates) are never allowed: npud asks for none. */
#ifndef PROTO_HTTP_CORS_H
#define PROTO_HTTP_CORS_H

#include <stdbool.h>
#include <stddef.h>

struct http_server;

/* Whether text is "*" or an origin as browsers send it: scheme://host[:port], lower case, nothing behind it. */
bool http_cors_is_origin(const char *text);

/* From now on pages of these origins ("*": all) may read answers, and their preflight requests are answered. Borrowed; n 0:
 * none may. */
void http_server_allow_origins(struct http_server *server, const char *const *origins, int n);

#endif
