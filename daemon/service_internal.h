/* What the files of the service share. Not for others. */
#ifndef DAEMON_SERVICE_INTERNAL_H
#define DAEMON_SERVICE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/choice.h"
#include "daemon/log.h"
#include "daemon/service.h"
#include "proto/completion_request.h"
#include "proto/http_server.h"

struct service {
    uv_loop_t *loop;
    const char *model_name;
    const struct log *log;
    int64_t started_s; /* since 1970 */
    bool ready;
    struct service_model model;
    size_t max_piece_bytes; /* of one token: tells prompts that are far too long without tokenizing them */
    char fingerprint[64];
    int n_active;
    void (*on_idle)(void *context);
    void *idle_context;
};

/* One request of POST /v1/completions, from its body to its last event. */
struct completion {
    struct service *service;
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
    int n_choices, n_running;
    bool stream_begun, paused;
    const char *outcome; /* for the log, when it is not the finish reason */
};

/* completion_prepare.c; on a worker thread: body to request, prompts to tokens, choices with generations that are ready
 * to submit. False: completion->error is set. */
bool completion_prepare(struct completion *completion);
void completion_clear(struct completion *completion);

/* completion_service.c */
void completion_service_handle(struct http_request *request, void *service);

/* service.c */
void service_request_done(struct service *service);

#endif
