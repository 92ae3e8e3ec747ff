#include "daemon/stored_responses.h"

#include <stdlib.h>

#include "daemon/service_internal.h"
#include "proto/responses_output.h"
#include "proto/responses_request.h"

void stored_responses_put(struct service *service, const struct response_id *id, void *bytes, size_t length)
{
    struct response_bytes *created = bytes != NULL ? response_bytes_create(bytes, length) : NULL;
    if (created == NULL) {
        char text[RESPONSE_ID_BYTES];
        response_id_format(text, id);
        log_warning(service->log, "%s is not stored: no memory", text);
        return;
    }
    response_store_put(service->stored, id, created);
    response_bytes_release(created);
}

void stored_responses_fetch(struct service *service, const struct response_id *id, stored_response_taker *take,
                            void *context)
{
    take(context, response_store_get(service->stored, id));
}

/* ---- over HTTP ---- */

/* One request. */
struct stored_call {
    struct service *service;
    struct http_request *http; /* NULL when the client is gone */
};

static void send_not_found(struct http_request *http, const char *id)
{
    struct api_error error;
    api_error_set(&error, API_ERROR_NOT_FOUND, NULL, "there is no response %.100s", id);
    http_response_send_error(http, &error);
}

/* False: answered already. */
static bool read_id(struct http_request *http, struct service *service, struct response_id *ret_id)
{
    const char *id = http_request_parameter(http, "id");
    if (!service_check_ready(service, http))
        return false;
    if (response_id_parse(ret_id, id) && id[0] == 'r' && id[1] == 'e')
        return true;
    send_not_found(http, id);
    return false;
}

static void on_gone(void *context)
{
    ((struct stored_call *)context)->http = NULL;
}

static void send_stored(void *context, struct response_bytes *bytes)
{
    struct stored_call *call = context;
    struct response_record record;
    struct npu_error error;
    if (call->http != NULL && bytes != NULL &&
        response_record_decode(&record, bytes->bytes, bytes->length, &error) == NPU_OK)
        http_response_send(call->http, 200, "application/json", record.response.text, record.response.length);
    else if (call->http != NULL)
        send_not_found(call->http, http_request_parameter(call->http, "id"));
    response_bytes_release(bytes);
    service_request_done(call->service);
    free(call);
}

static void handle_get(struct http_request *http, void *context)
{
    struct response_id id;
    struct api_error error;
    if (!read_id(http, context, &id))
        return;
    if (!responses_query_check(http_request_query(http), &error)) {
        http_response_send_error(http, &error);
        return;
    }
    struct stored_call *call = malloc(sizeof *call);
    if (call == NULL) {
        service_send_json(http, NULL, 0);
        return;
    }
    *call = (struct stored_call){context, http};
    service_request_begun(context);
    http_request_set_on_gone(http, on_gone, call);
    stored_responses_fetch(context, &id, send_stored, call);
}

static void handle_delete(struct http_request *http, void *context)
{
    struct service *service = context;
    struct response_id id;
    if (!read_id(http, service, &id))
        return;
    const char *text = http_request_parameter(http, "id");
    if (!response_store_remove(service->stored, &id)) {
        send_not_found(http, text);
        return;
    }
    size_t length;
    char *json = responses_deleted_json(text, &length);
    service_send_json(http, json, length);
}

bool stored_responses_add_routes(struct service *service)
{
    return http_server_route(service->server, "GET", "/v1/responses/{id}", HTTP_BODY_NONE, handle_get, service) &&
           http_server_route(service->server, "DELETE", "/v1/responses/{id}", HTTP_BODY_NONE, handle_delete, service);
}
