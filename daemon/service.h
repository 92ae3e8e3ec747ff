/* The API over HTTP: GET /health, GET /v1/models, POST /v1/completions. Requests become generations of the engine, its
 * events become answers. Thread: the loop's. */
#ifndef DAEMON_SERVICE_H
#define DAEMON_SERVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct engine;
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
    int32_t context; /* positions of one session */
    int32_t max_prompt_tokens; /* at most context; less when the KV cache is smaller than one context */
    uint64_t numerics; /* for system_fingerprint */
};

/* Borrowed until the service is idle after service_close. */
void service_set_model(struct service *service, const struct service_model *model);

/* Once the HTTP server has stopped: calls on_idle when no request is left in the engine or the worker pool (perhaps at
 * once). */
void service_close(struct service *service, void (*on_idle)(void *context), void *context);

/* Of an idle service. NULL is fine. */
void service_destroy(struct service *service);

#endif
