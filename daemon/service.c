#include "daemon/service.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/service_internal.h"
#include "daemon/tokenizer.h"

/* Before the model is there every route but /health answers 503. */
static bool is_ready(struct service *service, struct http_request *request)
{
    if (service->ready)
        return true;
    struct api_error error;
    api_error_set(&error, API_ERROR_LOADING, NULL, "the model is still being loaded");
    http_response_add_header(request, "Retry-After", "1");
    http_response_send_error(request, &error);
    return false;
}

static void send_json(struct http_request *request, json_t *value)
{
    char *body = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    if (body == NULL) {
        struct api_error error;
        api_error_set(&error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the answer");
        http_response_send_error(request, &error);
        return;
    }
    http_response_send(request, 200, "application/json", body, strlen(body));
    free(body);
}

static void handle_health(struct http_request *request, void *context)
{
    if (is_ready(context, request))
        send_json(request, json_pack("{s:s}", "status", "ok"));
}

static void handle_models(struct http_request *request, void *context)
{
    struct service *service = context;
    if (is_ready(service, request))
        send_json(request,
                  json_pack("{s:s, s:[{s:s, s:s, s:I, s:s}]}", "object", "list", "data", "id", service->model_name,
                            "object", "model", "created", (json_int_t)service->started_s, "owned_by", "npud"));
}

static void handle_completions(struct http_request *request, void *context)
{
    struct service *service = context;
    if (is_ready(service, request))
        completion_service_handle(request, service);
}

struct service *service_create(uv_loop_t *loop, struct http_server *server, const char *model_name,
                               const struct log *log)
{
    struct service *service = calloc(1, sizeof *service);
    if (service == NULL)
        return NULL;
    service->loop = loop;
    service->model_name = model_name;
    service->log = log;
    service->started_s = (int64_t)time(NULL);
    if (http_server_route(server, "GET", "/health", HTTP_BODY_NONE, handle_health, service) &&
        http_server_route(server, "GET", "/v1/models", HTTP_BODY_NONE, handle_models, service) &&
        http_server_route(server, "POST", "/v1/completions", HTTP_BODY_JSON, handle_completions, service))
        return service;
    free(service);
    return NULL;
}

void service_set_model(struct service *service, const struct service_model *model)
{
    service->model = *model;
    service->max_piece_bytes = 1;
    for (int32_t token = 0; token < tokenizer_n_vocab(model->tokenizer); token++) {
        size_t length = 0;
        tokenizer_piece(model->tokenizer, token, &length);
        if (length > service->max_piece_bytes)
            service->max_piece_bytes = length;
    }
    snprintf(service->fingerprint, sizeof service->fingerprint, "npud-%s-%016llx", NPUD_VERSION,
             (unsigned long long)model->numerics);
    service->ready = true;
}

void service_request_done(struct service *service)
{
    service->n_active--;
    if (service->n_active == 0 && service->on_idle != NULL)
        service->on_idle(service->idle_context);
}

void service_close(struct service *service, void (*on_idle)(void *context), void *context)
{
    if (service->n_active == 0) {
        on_idle(context);
        return;
    }
    service->on_idle = on_idle;
    service->idle_context = context;
}

void service_destroy(struct service *service)
{
    assert(service == NULL || service->n_active == 0);
    free(service);
}
