/* Stored responses as the service has them: put, brought, and over HTTP (GET and DELETE of /v1/responses/{id}).
 * Thread: the loop's. */
#ifndef DAEMON_STORED_RESPONSES_H
#define DAEMON_STORED_RESPONSES_H

#include <stdbool.h>

#include "daemon/response_store.h"

struct service;

/* Adds the routes; false when memory is out. */
bool stored_responses_add_routes(struct service *service);

/* Takes the bytes of a record; NULL: there was no memory for them. */
void stored_responses_put(struct service *service, const struct response_id *id, void *bytes, size_t length);

/* bytes: a record that has been checked, held for the callee; NULL: there is none. */
typedef void stored_response_taker(void *context, struct response_bytes *bytes);

/* Calls take once, now or later. */
void stored_responses_fetch(struct service *service, const struct response_id *id, stored_response_taker *take,
                            void *context);

#endif
