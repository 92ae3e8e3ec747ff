/* /v1/sessions: questions to the engine about sessions, and its answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/engine.h"
#include "daemon/service_internal.h"
#include "proto/session_request.h"
#include "proto/session_response.h"

/* Of an export: pieces are taken from the engine while less than this waits for the client. */
enum {
    EXPORT_QUEUED_BYTES = 256 * 1024,
};

/* One request, from the handler to the engine's answer. */
struct session_call {
    struct service *service;
    struct http_request *http; /* NULL once answered or the client is gone */
    bool begun; /* an export is being streamed */
    bool piece_waits; /* for the client to read; the engine waits for us */
};

static void end(struct session_call *call, struct engine_request *request)
{
    struct service *service = call->service;
    engine_request_destroy(request);
    free(call);
    service_request_done(service);
}

/* ---- answers ---- */

static const char *state_of(const struct session_description *session)
{
    if (session->busy)
        return "busy";
    if (session->resident)
        return "resident";
    return session->on_disk ? "on_disk" : "evicted";
}

static struct response_session to_response(const struct session_description *session)
{
    return (struct response_session){.id = session->id,
                                     .key = session->key,
                                     .state = state_of(session),
                                     .tokens = session->n_tokens,
                                     .resident_tokens = session->n_resident,
                                     .blocks_own = session->blocks_own,
                                     .blocks_shared = session->blocks_shared,
                                     .bytes = session->bytes,
                                     .on_disk = session->on_disk,
                                     .pinned = session->pinned,
                                     .imported = session->imported,
                                     .turns = session->turns,
                                     .created = session->created_s,
                                     .last_used = session->used_s};
}

static void send_list(struct http_request *http, const struct engine_request *request)
{
    struct response_session *sessions = calloc((size_t)request->n_sessions + 1, sizeof *sessions);
    size_t length = 0;
    char *text = NULL;
    if (sessions != NULL) {
        for (int i = 0; i < request->n_sessions; i++)
            sessions[i] = to_response(&request->sessions[i]);
        text = session_list_json(sessions, request->n_sessions, &length);
        free(sessions);
    }
    service_send_json(http, text, length);
}

static void send_refusal(struct http_request *http, const struct engine_request *request)
{
    enum api_error_kind kind = API_ERROR_INTERNAL;
    switch (request->answer) {
    case ENGINE_ANSWER_UNKNOWN:
        kind = API_ERROR_NOT_FOUND;
        break;
    case ENGINE_ANSWER_BUSY:
        kind = API_ERROR_CONFLICT;
        break;
    case ENGINE_ANSWER_REFUSED: /* pins are refused because of other pins */
        kind = request->verb == ENGINE_PIN_SESSION ? API_ERROR_CONFLICT : API_ERROR_INVALID_VALUE;
        break;
    case ENGINE_ANSWER_NOT_STORED:
        kind = API_ERROR_NOT_STORED;
        break;
    default:
        break;
    }
    struct api_error error;
    api_error_set(&error, kind, NULL, "%s", request->message);
    http_response_send_error(http, &error);
}

static void send_answer(struct session_call *call, const struct engine_request *request)
{
    struct http_request *http = call->http;
    call->http = NULL;
    if (call->begun && request->answer == ENGINE_ANSWER_OK) {
        http_response_end(http);
    } else if (call->begun) {
        log_warning(call->service->log, "export of session %s broken off: %s", request->session, request->message);
        http_response_abort(http);
    } else if (request->answer != ENGINE_ANSWER_OK) {
        send_refusal(http, request);
    } else if (request->verb == ENGINE_DELETE_SESSION) {
        size_t length;
        char *text = session_deleted_json(request->session, &length);
        service_send_json(http, text, length);
    } else if (request->verb == ENGINE_LIST_SESSIONS && request->session[0] == '\0') {
        send_list(http, request);
    } else {
        struct response_session session = to_response(&request->sessions[0]);
        size_t length;
        char *text = session_response_json(&session, &length);
        service_send_json(http, text, length);
    }
}

static void on_done(struct engine_request *request, void *context)
{
    struct session_call *call = context;
    if (request->answer == ENGINE_ANSWER_FAILED || request->answer == ENGINE_ANSWER_NOT_STORED)
        log_warning(call->service->log, "session request failed: %s", request->message);
    if (call->http != NULL)
        send_answer(call, request);
    end(call, request);
}

/* ---- asking ---- */

static void send_out_of_memory(struct http_request *http)
{
    struct api_error error;
    api_error_set(&error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
    http_response_send_error(http, &error);
}

static void on_gone(void *context)
{
    struct session_call *call = ((struct engine_request *)context)->context;
    call->http = NULL;
    if (!call->piece_waits)
        return;
    call->piece_waits = false;
    engine_export_next(call->service->model.engine, context, false);
}

/* A request to the engine about the session that the path names, if it names one. NULL: answered already. */
static struct engine_request *create_request(struct service *service, struct http_request *http, enum engine_verb verb)
{
    if (!service_check_ready(service, http))
        return NULL;
    const char *id = http_request_parameter(http, "id");
    struct engine_request *request = engine_request_create(verb);
    if (request == NULL) {
        send_out_of_memory(http);
        return NULL;
    }
    if (id != NULL && (id[0] == '\0' || strlen(id) >= sizeof request->session)) {
        struct api_error error;
        api_error_set(&error, API_ERROR_NOT_FOUND, NULL, "there is no session %.100s", id);
        http_response_send_error(http, &error);
        engine_request_destroy(request);
        return NULL;
    }
    if (id != NULL)
        strcpy(request->session, id);
    return request;
}

/* Takes the request. */
static void ask(struct service *service, struct http_request *http, struct engine_request *request)
{
    struct session_call *call = calloc(1, sizeof *call);
    if (call == NULL) {
        engine_request_destroy(request);
        send_out_of_memory(http);
        return;
    }
    call->service = service;
    call->http = http;
    request->on_done = on_done;
    request->context = call;
    service_request_begun(service);
    http_request_set_on_gone(http, on_gone, request);
    engine_ask(service->model.engine, request);
}

static void handle(struct http_request *http, struct service *service, enum engine_verb verb)
{
    struct engine_request *request = create_request(service, http, verb);
    if (request != NULL)
        ask(service, http, request);
}

static void handle_list(struct http_request *http, void *service)
{
    handle(http, service, ENGINE_LIST_SESSIONS);
}

static void handle_delete(struct http_request *http, void *service)
{
    handle(http, service, ENGINE_DELETE_SESSION);
}

static void handle_pin(struct http_request *http, void *service)
{
    handle(http, service, ENGINE_PIN_SESSION);
}

static void handle_unpin(struct http_request *http, void *service)
{
    handle(http, service, ENGINE_UNPIN_SESSION);
}

static void handle_save(struct http_request *http, void *service)
{
    handle(http, service, ENGINE_SAVE_SESSION);
}

/* ---- with a body ---- */

static bool read_body(struct http_request *http, struct session_request_fields *fields)
{
    size_t length;
    char *body = http_request_take_body(http, &length);
    if (body == NULL) {
        send_out_of_memory(http);
        return false;
    }
    struct api_error error;
    bool ok = session_request_decode(fields, body, length, &error);
    free(body);
    if (!ok)
        http_response_send_error(http, &error);
    return ok;
}

static void handle_fork(struct http_request *http, void *service)
{
    struct engine_request *request = create_request(service, http, ENGINE_FORK_SESSION);
    struct session_request_fields fields;
    if (request == NULL)
        return;
    if (!read_body(http, &fields)) {
        engine_request_destroy(request);
        return;
    }
    request->n_tokens = fields.tokens;
    request->key = fields.key;
    ask(service, http, request);
}

static void handle_truncate(struct http_request *http, void *service)
{
    struct engine_request *request = create_request(service, http, ENGINE_TRUNCATE_SESSION);
    struct session_request_fields fields;
    if (request == NULL)
        return;
    if (!read_body(http, &fields)) {
        engine_request_destroy(request);
        return;
    }
    request->n_tokens = fields.tokens;
    session_request_clear(&fields);
    if (request->n_tokens == 0) {
        struct api_error error;
        api_error_set(&error, API_ERROR_MISSING_PARAMETER, "tokens",
                      "tokens is required: how many of the session's tokens to keep");
        http_response_send_error(http, &error);
        engine_request_destroy(request);
        return;
    }
    ask(service, http, request);
}

static void handle_import(struct http_request *http, void *service)
{
    struct engine_request *request = create_request(service, http, ENGINE_IMPORT_SESSION);
    struct api_error error;
    if (request == NULL)
        return;
    if (!session_request_decode_key(&request->key, http_request_query(http), &error)) {
        http_response_send_error(http, &error);
        engine_request_destroy(request);
        return;
    }
    request->data = http_request_take_body(http, &request->data_length);
    if (request->data == NULL) {
        engine_request_destroy(request);
        send_out_of_memory(http);
        return;
    }
    ask(service, http, request);
}

/* ---- export ---- */

static void on_drained(void *context)
{
    struct engine_request *request = context;
    struct session_call *call = request->context;
    call->piece_waits = false;
    engine_export_next(call->service->model.engine, request, true);
}

static void on_piece(struct engine_request *request, const void *bytes, size_t length, void *context)
{
    struct session_call *call = context;
    struct engine *engine = call->service->model.engine;
    if (call->http == NULL) {
        engine_export_next(engine, request, false);
        return;
    }
    if (!call->begun) {
        char disposition[96];
        snprintf(disposition, sizeof disposition, "attachment; filename=\"session-%s.npud\"", request->session);
        http_response_add_header(call->http, "Content-Disposition", disposition);
        http_response_begin(call->http, 200, "application/octet-stream");
        call->begun = true;
    }
    http_response_write(call->http, bytes, length);
    call->piece_waits = http_response_on_drained(call->http, EXPORT_QUEUED_BYTES, on_drained, request);
    if (!call->piece_waits)
        engine_export_next(engine, request, true);
}

static void handle_export(struct http_request *http, void *service)
{
    struct engine_request *request = create_request(service, http, ENGINE_EXPORT_SESSION);
    if (request == NULL)
        return;
    request->on_piece = on_piece;
    ask(service, http, request);
}

bool session_service_add_routes(struct service *service)
{
    static const struct {
        const char *method, *path;
        enum http_body body;
        http_handler handler;
    } routes[] = {
        {"GET", "/v1/sessions", HTTP_BODY_NONE, handle_list},
        {"POST", "/v1/sessions/import", HTTP_BODY_FILE, handle_import},
        {"GET", "/v1/sessions/{id}", HTTP_BODY_NONE, handle_list},
        {"DELETE", "/v1/sessions/{id}", HTTP_BODY_NONE, handle_delete},
        {"POST", "/v1/sessions/{id}/fork", HTTP_BODY_OPTIONAL_JSON, handle_fork},
        {"POST", "/v1/sessions/{id}/truncate", HTTP_BODY_JSON, handle_truncate},
        {"POST", "/v1/sessions/{id}/pin", HTTP_BODY_NONE, handle_pin},
        {"POST", "/v1/sessions/{id}/unpin", HTTP_BODY_NONE, handle_unpin},
        {"POST", "/v1/sessions/{id}/save", HTTP_BODY_NONE, handle_save},
        {"GET", "/v1/sessions/{id}/export", HTTP_BODY_NONE, handle_export},
    };
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!http_server_route(service->server, routes[i].method, routes[i].path, routes[i].body, routes[i].handler,
                               service))
            return false;
    }
    return true;
}
