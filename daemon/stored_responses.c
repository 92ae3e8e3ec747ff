#include "daemon/stored_responses.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/engine.h"
#include "daemon/service_internal.h"
#include "proto/responses_output.h"
#include "proto/responses_request.h"

/* ---- the state folder ---- */

/* A question to the engine about one. */
struct response_question {
    struct service *service;
    struct response_id id;
    stored_response_taker *take;
    void *context;
};

/* NULL: no memory. data is copied. */
static struct engine_request *create_request(enum engine_verb verb, const struct response_id *id,
                                             const struct response_bytes *data)
{
    struct engine_request *request = engine_request_create(verb);
    if (request == NULL)
        return NULL;
    request->response = *id;
    if (data != NULL) {
        request->data_length = data->length;
        request->data = malloc(data->length);
        if (request->data == NULL) {
            engine_request_destroy(request);
            return NULL;
        }
        memcpy(request->data, data->bytes, data->length);
    }
    return request;
}

static void ask(struct service *service, struct engine_request *request,
                void (*on_done)(struct engine_request *request, void *context), void *context)
{
    request->on_done = on_done;
    request->context = context;
    service_request_begun(service);
    engine_ask(service->model.engine, request);
}

static void warn(const struct service *service, const struct response_id *id, const char *where, const char *why)
{
    char text[RESPONSE_ID_BYTES];
    response_id_format(text, id);
    log_warning(service->log, "%s is not stored%s: %s", text, where, why);
}

static void on_put(struct engine_request *request, void *context)
{
    struct service *service = context;
    if (request->answer != ENGINE_ANSWER_OK)
        warn(service, &request->response, " on disk", request->message);
    engine_request_destroy(request);
    service_request_done(service);
}

static void put_on_disk(struct service *service, const struct response_id *id, const struct response_bytes *bytes)
{
    struct engine_request *request = create_request(ENGINE_PUT_RESPONSE, id, bytes);
    if (request != NULL)
        ask(service, request, on_put, service);
    else
        warn(service, id, " on disk", "no memory");
}

void stored_responses_put(struct service *service, const struct response_id *id, void *bytes, size_t length)
{
    struct response_bytes *created = bytes != NULL ? response_bytes_create(bytes, length) : NULL;
    if (created == NULL) {
        warn(service, id, "", "no memory");
        return;
    }
    response_store_put(service->stored, id, created);
    if (service->model.has_state_dir)
        put_on_disk(service, id, created);
    response_bytes_release(created);
}

static void on_read(struct engine_request *request, void *context)
{
    struct response_question *question = context;
    struct service *service = question->service;
    struct response_bytes *bytes = NULL;
    if (request->answer == ENGINE_ANSWER_OK) {
        bytes = response_bytes_create(request->data, request->data_length);
        request->data = NULL;
    }
    question->take(question->context, bytes);
    free(question);
    engine_request_destroy(request);
    service_request_done(service);
}

void stored_responses_fetch(struct service *service, const struct response_id *id, stored_response_taker *take,
                            void *context)
{
    struct response_bytes *bytes = response_store_get(service->stored, id);
    struct engine_request *request = NULL;
    struct response_question *question = NULL;
    if (bytes == NULL && service->model.has_state_dir) {
        request = create_request(ENGINE_READ_RESPONSE, id, NULL);
        question = malloc(sizeof *question);
    }
    if (request == NULL || question == NULL) {
        engine_request_destroy(request);
        free(question);
        take(context, bytes);
        return;
    }
    *question = (struct response_question){service, *id, take, context};
    ask(service, request, on_read, question);
}

/* ---- over HTTP ---- */

/* One request. */
struct stored_call {
    struct service *service;
    struct http_request *http; /* NULL when the client is gone */
    bool was_in_memory; /* and is deleted */
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

/* NULL: answered already. */
static struct stored_call *begin_call(struct http_request *http, struct service *service)
{
    struct stored_call *call = malloc(sizeof *call);
    if (call == NULL) {
        service_send_json(http, NULL, 0);
        return NULL;
    }
    *call = (struct stored_call){.service = service, .http = http};
    service_request_begun(service);
    http_request_set_on_gone(http, on_gone, call);
    return call;
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
    struct stored_call *call = begin_call(http, context);
    if (call != NULL)
        stored_responses_fetch(context, &id, send_stored, call);
}

static void send_deleted(struct stored_call *call, bool deleted)
{
    if (call->http != NULL) {
        const char *id = http_request_parameter(call->http, "id");
        size_t length = 0;
        char *json = deleted ? responses_deleted_json(id, &length) : NULL;
        if (deleted)
            service_send_json(call->http, json, length);
        else
            send_not_found(call->http, id);
    }
    service_request_done(call->service);
    free(call);
}

static void on_deleted(struct engine_request *request, void *context)
{
    struct stored_call *call = context;
    struct service *service = call->service;
    send_deleted(call, call->was_in_memory || request->answer == ENGINE_ANSWER_OK);
    engine_request_destroy(request);
    service_request_done(service);
}

static void handle_delete(struct http_request *http, void *context)
{
    struct service *service = context;
    struct response_id id;
    struct engine_request *request = NULL;
    if (!read_id(http, service, &id))
        return;
    if (service->model.has_state_dir && (request = create_request(ENGINE_DELETE_RESPONSE, &id, NULL)) == NULL) {
        service_send_json(http, NULL, 0);
        return;
    }
    struct stored_call *call = begin_call(http, service);
    if (call == NULL) {
        engine_request_destroy(request);
        return;
    }
    call->was_in_memory = response_store_remove(service->stored, &id);
    if (request != NULL)
        ask(service, request, on_deleted, call);
    else
        send_deleted(call, call->was_in_memory);
}

bool stored_responses_add_routes(struct service *service)
{
    return http_server_route(service->server, "GET", "/v1/responses/{id}", HTTP_BODY_NONE, handle_get, service) &&
           http_server_route(service->server, "DELETE", "/v1/responses/{id}", HTTP_BODY_NONE, handle_delete, service);
}
