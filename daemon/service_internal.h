/* What the files of the service share. Not for others. */
#ifndef DAEMON_SERVICE_INTERNAL_H
#define DAEMON_SERVICE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/answer.h"
#include "daemon/log.h"
#include "daemon/request_outcome.h"
#include "daemon/service.h"
#include "proto/http_server.h"

struct chat_history;
struct response_store;
struct grammar_compiler;

struct service {
    uv_loop_t *loop;
    struct http_server *server;
    const char *model_name;
    const struct log *log;
    int64_t started_s; /* since 1970 */
    bool ready;
    struct service_model model;
    struct grammar_compiler *grammars; /* owned */
    size_t max_piece_bytes; /* of one token: tells prompts that are far too long without tokenizing them */
    char fingerprint[64];
    struct chat_history *chat_history; /* owned; once there is a model */
    struct response_store *stored; /* owned; once there is a model */
    uint64_t model_identity; /* of the model file */
    int n_active;
    uint64_t requests[N_SERVICE_ENDPOINTS][N_REQUEST_OUTCOMES]; /* ended ones, for /metrics */
    uint64_t responses[600]; /* by HTTP status */
    void (*on_idle)(void *context);
    void *idle_context;
};

/* completion_service.c */
extern const struct answer_form completion_form, prefill_form;

/* chat_service.c */
extern const struct answer_form chat_form;

/* responses_service.c */
extern const struct answer_form responses_form;

/* text_service.c: /tokenize, /detokenize, and chats rendered without an answer; false when memory is out. */
bool text_service_add_routes(struct service *service);

/* embedding_service.c */
extern const struct answer_form embedding_form;

/* session_service.c: adds the routes under /v1/sessions; false when memory is out. */
bool session_service_add_routes(struct service *service);

/* metrics_service.c */
void metrics_service_handle(struct http_request *request, struct service *service);

/* answer_prepare.c: worker threads. A text of so many bytes that it cannot fit the context is refused before it is
 * tokenized. path: the field that holds it. */
bool service_check_prompt_bytes(const struct service *service, const char *path, size_t length,
                                struct api_error *error);

/* service.c */
/* Before the model is there: false, and the request is answered. */
bool service_check_ready(struct service *service, struct http_request *request);
void service_request_begun(struct service *service);
void service_request_done(struct service *service);
/* "cmpl-" and 24 random letters and digits. */
void service_set_id(char *id, size_t capacity, const char *prefix);
/* Takes text, of length bytes; NULL: there was no memory for it. Ends the request. */
void service_send_json(struct http_request *request, char *text, size_t length);

#endif
