/* What the files of the service share. Not for others. */
#ifndef DAEMON_SERVICE_INTERNAL_H
#define DAEMON_SERVICE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/choice.h"
#include "daemon/log.h"
#include "daemon/request_outcome.h"
#include "daemon/service.h"
#include "proto/completion_request.h"
#include "proto/http_server.h"

enum service_endpoint {
    ENDPOINT_COMPLETIONS,
    ENDPOINT_PREFILL,
    N_SERVICE_ENDPOINTS,
};

struct service {
    uv_loop_t *loop;
    struct http_server *server;
    const char *model_name;
    const struct log *log;
    int64_t started_s; /* since 1970 */
    bool ready;
    struct service_model model;
    size_t max_piece_bytes; /* of one token: tells prompts that are far too long without tokenizing them */
    char fingerprint[64];
    int n_active;
    uint64_t requests[N_SERVICE_ENDPOINTS][N_REQUEST_OUTCOMES]; /* ended ones, for /metrics */
    uint64_t responses[600]; /* by HTTP status */
    void (*on_idle)(void *context);
    void *idle_context;
};

/* One request of POST /v1/completions or /v1/prefill, from its body to its last event. */
struct completion {
    struct service *service;
    enum service_endpoint endpoint;
    struct http_request *http; /* NULL once answered or the client is gone */
    char id[40];
    int64_t created_s;
    uint64_t started_ns;

    /* The worker's while working. */
    uv_work_t work;
    bool working;
    char *body; /* owned */
    size_t body_length;
    struct completion_request request;
    struct api_error error; /* kind is API_ERROR_NONE when it was well prepared */

    struct choice *choices; /* owned; n of prompt 0, n of prompt 1, ... */
    struct response_cache *caches; /* owned; what each choice found, for the answer */
    int n_choices, n_running;
    bool stream_begun, paused;
    bool has_outcome; /* else it is the finish reason */
    enum request_outcome outcome;
};

/* completion_prepare.c; on a worker thread: body to request, prompts to tokens, choices with generations that are ready
 * to submit. False: completion->error is set. */
bool completion_prepare(struct completion *completion);
void completion_clear(struct completion *completion);

/* completion_service.c */
void completion_service_handle(struct http_request *request, struct service *service, enum service_endpoint endpoint);

/* session_service.c: adds the routes under /v1/sessions; false when memory is out. */
bool session_service_add_routes(struct service *service);

/* metrics_service.c */
void metrics_service_handle(struct http_request *request, struct service *service);

/* service.c */
/* Before the model is there: false, and the request is answered. */
bool service_check_ready(struct service *service, struct http_request *request);
void service_request_begun(struct service *service);
void service_request_done(struct service *service);
/* Takes text, of length bytes; NULL: there was no memory for it. Ends the request. */
void service_send_json(struct http_request *request, char *text, size_t length);

#endif
