/* The API over HTTP: GET /health, /metrics and /v1/models, POST /v1/completions, /v1/prefill and /v1/embeddings, chats,
 * responses, and /v1/sessions.
 * Requests become generations of the engine, or questions to it; its events become answers. Thread: the loop's. */
#ifndef DAEMON_SERVICE_H
#define DAEMON_SERVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "npu/pooling.h"

struct chat_format;
struct engine;
struct executor;
struct http_server;
struct log;
struct service;
struct tokenizer;

/* Routes are added to the server, which must be stopped before the service is destroyed. Until service_set_model
 * everything but /health answers 503. model_name and log are borrowed. NULL when memory is out. */
struct service *service_create(uv_loop_t *loop, struct http_server *server, const char *model_name,
                               const struct log *log);

struct service_model {
    struct engine *engine;
    const struct tokenizer *tokenizer;
    const struct chat_format *chat_format;
    int32_t context; /* positions of one session */
    int32_t max_prompt_tokens; /* at most context; less when the KV cache is smaller than one context */
    enum pooling pooling; /* that the model was trained for; POOLING_NONE: its file does not say */
    bool has_state_dir; /* what is stored goes there, too */
    const struct executor *executor; /* its constants, and what any thread may ask of it */
    const char *device, *platform, *driver; /* for /metrics */
};

/* Borrowed until the service is idle after service_close. False when memory is out. */
bool service_set_model(struct service *service, const struct service_model *model);

/* Counts an answer of the HTTP server, for /metrics: for http_server_options.on_response. */
void service_count_response(struct service *service, int status);

/* Once the HTTP server has stopped: calls on_idle when no request is left in the engine or the worker pool (perhaps at
 * once). */
void service_close(struct service *service, void (*on_idle)(void *context), void *context);

/* Of an idle service. NULL is fine. */
void service_destroy(struct service *service);

#endif
