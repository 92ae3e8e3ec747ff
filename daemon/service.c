#include "daemon/service.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "daemon/chat_history.h"
#include "daemon/response_store.h"
#include "daemon/stored_responses.h"
#include "daemon/grammar_compiler.h"
#include "daemon/service_internal.h"
#include "daemon/tokenizer.h"
#include "npu/executor.h"
#include "npu/gguf.h"
#include "npu/model.h"
#include "proto/openapi.h"

enum {
    CHAT_HISTORY_BYTES = 64 << 20,
    STORED_RESPONSES_BYTES = 64 << 20, /* in memory */
};

bool service_check_ready(struct service *service, struct http_request *request)
{
    if (service->ready)
        return true;
    struct api_error error;
    api_error_set(&error, API_ERROR_LOADING, NULL, "the model is still being loaded");
    http_response_add_header(request, "Retry-After", "1");
    http_response_send_error(request, &error);
    return false;
}

void service_set_id(char *id, size_t capacity, const char *prefix)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
    unsigned char random[24];
    if (getrandom(random, sizeof random, 0) != sizeof random) /* an id need not be a secret */
        memset(random, 0, sizeof random);
    size_t n = (size_t)snprintf(id, capacity, "%s", prefix);
    for (size_t i = 0; i < sizeof random && n + 1 < capacity; i++)
        id[n++] = digits[random[i] % 32];
    id[n] = '\0';
}

void service_send_json(struct http_request *request, char *text, size_t length)
{
    if (text == NULL) {
        struct api_error error;
        api_error_set(&error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the answer");
        http_response_send_error(request, &error);
        return;
    }
    http_response_send(request, 200, "application/json", text, length);
    free(text);
}

static void send_value(struct http_request *request, json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    service_send_json(request, text, text != NULL ? strlen(text) : 0);
}

static void handle_health(struct http_request *request, void *context)
{
    if (service_check_ready(context, request))
        send_value(request, json_pack("{s:s}", "status", "ok"));
}

static json_t *model_value(const struct service *service)
{
    return json_pack("{s:s, s:s, s:I, s:s}", "id", service->model_name, "object", "model", "created",
                     (json_int_t)service->started_s, "owned_by", "npud");
}

static void handle_models(struct http_request *request, void *context)
{
    if (service_check_ready(context, request))
        send_value(request, json_pack("{s:s, s:[o]}", "object", "list", "data", model_value(context)));
}

static void handle_model(struct http_request *request, void *context)
{
    const struct service *service = context;
    const char *id = http_request_parameter(request, "model");
    if (!service_check_ready(context, request))
        return;
    if (strcmp(id, service->model_name) == 0) {
        send_value(request, model_value(service));
        return;
    }
    struct api_error error;
    api_error_set(&error, API_ERROR_MODEL_NOT_FOUND, "model", "there is no model %.200s here, but %.200s", id,
                  service->model_name);
    http_response_send_error(request, &error);
}

static void handle_completions(struct http_request *request, void *context)
{
    if (service_check_ready(context, request))
        answer_begin(request, context, &completion_form);
}

static void handle_prefill(struct http_request *request, void *context)
{
    if (service_check_ready(context, request))
        answer_begin(request, context, &prefill_form);
}

static void handle_chat(struct http_request *request, void *context)
{
    if (service_check_ready(context, request))
        answer_begin(request, context, &chat_form);
}

static void handle_responses(struct http_request *request, void *context)
{
    if (service_check_ready(context, request))
        answer_begin(request, context, &responses_form);
}

static void handle_embeddings(struct http_request *request, void *context)
{
    if (service_check_ready(context, request))
        answer_begin(request, context, &embedding_form);
}

static void handle_metrics(struct http_request *request, void *context)
{
    if (service_check_ready(context, request))
        metrics_service_handle(request, context);
}

static void handle_openapi(struct http_request *request, void *context)
{
    (void)context;
    http_response_send(request, 200, "application/yaml", openapi_yaml, openapi_yaml_length); /* RFC 9512 */
}

static bool add_routes(struct service *service)
{
    static const struct {
        const char *method, *path;
        enum http_body body;
        http_handler handler;
    } routes[] = {
        {"GET", "/health", HTTP_BODY_NONE, handle_health},
        {"GET", "/metrics", HTTP_BODY_NONE, handle_metrics},
        {"GET", "/openapi.yaml", HTTP_BODY_NONE, handle_openapi},
        {"GET", "/v1/models", HTTP_BODY_NONE, handle_models},
        {"GET", "/v1/models/{model}", HTTP_BODY_NONE, handle_model},
        {"POST", "/v1/completions", HTTP_BODY_JSON, handle_completions},
        {"POST", "/v1/prefill", HTTP_BODY_JSON, handle_prefill},
        {"POST", "/v1/chat/completions", HTTP_BODY_JSON, handle_chat},
        {"POST", "/v1/responses", HTTP_BODY_JSON, handle_responses},
        {"POST", "/v1/embeddings", HTTP_BODY_JSON, handle_embeddings},
    };
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!http_server_route(service->server, routes[i].method, routes[i].path, routes[i].body, routes[i].handler,
                               service))
            return false;
    }
    return stored_responses_add_routes(service) && text_service_add_routes(service) &&
           session_service_add_routes(service);
}

struct service *service_create(uv_loop_t *loop, struct http_server *server, const char *model_name,
                               const struct log *log)
{
    struct service *service = calloc(1, sizeof *service);
    if (service == NULL)
        return NULL;
    service->loop = loop;
    service->server = server;
    service->model_name = model_name;
    service->log = log;
    service->started_s = (int64_t)time(NULL);
    service->grammars = grammar_compiler_create();
    if (service->grammars != NULL && add_routes(service))
        return service;
    grammar_compiler_destroy(service->grammars);
    free(service);
    return NULL;
}

/* The largest session file: the K/V of a whole context (of twice the precision, too, if the KV cache has room for as
 * much), its tokens, and what describes them. */
static size_t session_file_bytes(const struct service_model *model)
{
    size_t blocks = 2 * (((size_t)model->max_prompt_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS);
    if (blocks > (size_t)model->executor->n_blocks)
        blocks = (size_t)model->executor->n_blocks;
    return blocks * (model->executor->block_bytes + KV_BLOCK_TOKENS * sizeof(int32_t) + 256) + 64 * 1024;
}

bool service_set_model(struct service *service, const struct service_model *model)
{
    service->model = *model;
    service->chat_history = chat_history_create(model->tokenizer, CHAT_HISTORY_BYTES);
    service->stored = response_store_create(STORED_RESPONSES_BYTES);
    if (service->chat_history == NULL || service->stored == NULL)
        return false;
    if (model->executor->model != NULL)
        service->model_identity = gguf_identity(model->executor->model->file);
    service->max_piece_bytes = 1;
    for (int32_t token = 0; token < tokenizer_n_vocab(model->tokenizer); token++) {
        size_t length = 0;
        tokenizer_piece(model->tokenizer, token, &length);
        if (length > service->max_piece_bytes)
            service->max_piece_bytes = length;
    }
    snprintf(service->fingerprint, sizeof service->fingerprint, "npud-%s-%016llx", NPUD_VERSION,
             (unsigned long long)model->executor->numerics);
    http_server_limit_files(service->server, session_file_bytes(model));
    service->ready = true;
    return true;
}

void service_count_response(struct service *service, int status)
{
    if (status > 0 && status < (int)(sizeof service->responses / sizeof *service->responses))
        service->responses[status]++;
}

void service_request_begun(struct service *service)
{
    service->n_active++;
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
    if (service == NULL)
        return;
    grammar_compiler_destroy(service->grammars);
    chat_history_destroy(service->chat_history);
    response_store_destroy(service->stored);
    free(service);
}
