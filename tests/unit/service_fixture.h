/* The service over HTTP with a fake engine, whose events and answers the test writes, and a fake tokenizer: one token a
 * byte. For one test program: included by its only source. Everything that the service calls of the engine is here, so that
 * the linker has no reason to take the real one. */
#ifndef TESTS_UNIT_SERVICE_FIXTURE_H
#define TESTS_UNIT_SERVICE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine.h"
#include "daemon/engine_metrics.h"
#include "daemon/log.h"
#include "daemon/service.h"
#include "npu/executor.h"
#include "proto/http_server.h"
#include "tests/unit/http_client.h"

enum {
    FAKE_VOCABULARY = 256
};

static inline const char *fake_piece(int32_t token, size_t *length)
{
    static char bytes[FAKE_VOCABULARY][2];
    bytes[token][0] = (char)token;
    *length = 1;
    return bytes[token];
}

#include "tests/unit/fake_tokenizer.h"

enum {
    CONTEXT = 64,
    MAX_GENERATIONS = 1100,
    MAX_REQUESTS = 64,
};

/* ---- fakes ---- */

struct engine {
    struct generation *submitted[MAX_GENERATIONS]; /* NULL once finished */
    bool cancelled[MAX_GENERATIONS];
    int n_submitted, n_cancelled, n_paused;
    struct engine_request *asked[MAX_REQUESTS]; /* NULL once answered */
    int n_asked;
    int n_pieces_taken; /* engine_export_next with go_on */
    bool export_given_up;
    struct engine_metrics metrics;
};

void engine_submit(struct engine *engine, struct generation *generation)
{
    assert_in_range(engine->n_submitted, 0, MAX_GENERATIONS - 1);
    engine->submitted[engine->n_submitted++] = generation;
}

void engine_cancel(struct engine *engine, struct generation *generation)
{
    for (int i = 0; i < engine->n_submitted; i++) {
        if (engine->submitted[i] == generation && !engine->cancelled[i]) {
            engine->cancelled[i] = true;
            engine->n_cancelled++;
        }
    }
}

void engine_pause(struct engine *engine, struct generation *generation, bool paused)
{
    assert_non_null(generation);
    engine->n_paused += paused ? 1 : -1;
}

struct engine_request *engine_request_create(enum engine_verb verb)
{
    struct engine_request *request = calloc(1, sizeof *request);
    request->verb = verb;
    return request;
}

void engine_request_destroy(struct engine_request *request)
{
    for (int i = 0; request != NULL && i < request->n_sessions; i++)
        free(request->sessions[i].key);
    if (request != NULL) {
        free(request->sessions);
        free(request->key);
        free(request->data);
    }
    free(request);
}

void session_id_format(char text[SESSION_ID_BYTES], uint64_t id)
{
    snprintf(text, SESSION_ID_BYTES, "%016llx", (unsigned long long)id);
}

void engine_ask(struct engine *engine, struct engine_request *request)
{
    assert_in_range(engine->n_asked, 0, MAX_REQUESTS - 1);
    engine->asked[engine->n_asked++] = request;
}

void engine_export_next(struct engine *engine, struct engine_request *request, bool go_on)
{
    assert_non_null(request);
    engine->n_pieces_taken += go_on;
    engine->export_given_up |= !go_on;
}

void engine_metrics_get(struct engine *engine, struct engine_metrics *metrics)
{
    *metrics = engine->metrics;
}

/* ---- fixture ---- */

struct fixture {
    uv_loop_t loop;
    struct http_server *server;
    struct service *service;
    struct engine engine;
    struct log log;
    int log_ends[2];
    bool has_state_dir; /* to be set before make_ready */
    bool http_stopped, idle;
};

static char received[HTTP_CLIENT_BYTES];

static inline void turn(struct fixture *f)
{
    uv_run(&f->loop, UV_RUN_NOWAIT);
}

static inline void on_response(const char *method, const char *path, int status, void *context)
{
    struct fixture *f = context;
    assert_true(method != NULL && path != NULL);
    service_count_response(f->service, status);
}

static inline int setup_with(void **state, uint64_t write_timeout_ms)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct http_server_options options;
    char message[256];
    http_server_options_init(&options);
    options.write_timeout_ms = write_timeout_ms;
    options.on_response = on_response;
    options.context = f;
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->server = http_server_create(&f->loop, &options);
    assert_int_equal(pipe(f->log_ends), 0);
    f->log = (struct log){.level = LOG_LEVEL_INFO, .descriptor = f->log_ends[1]};
    f->service = service_create(&f->loop, f->server, "test-model", &f->log);
    assert_non_null(f->service);
    assert_true(http_server_listen(f->server, "127.0.0.1:0", message, sizeof message));
    *state = f;
    return 0;
}

static inline int setup(void **state)
{
    return setup_with(state, 60 * 1000);
}

static inline void make_ready_with(struct fixture *f, const struct chat_format *chat_format)
{
    static const struct executor_interface interface = {0};
    static const struct executor executor = {
        .interface = &interface, .n_embd = 2, .n_blocks = 4, .block_bytes = 4096, .numerics = 0x1234};
    struct service_model model = {.engine = &f->engine,
                                  .chat_format = chat_format,
                                  .context = CONTEXT,
                                  .max_prompt_tokens = CONTEXT,
                                  .has_state_dir = f->has_state_dir,
                                  .executor = &executor,
                                  .device = "a \"device\"",
                                  .platform = "a platform",
                                  .driver = "1.2"};
    assert_true(service_set_model(f->service, &model));
}

static inline void make_ready(struct fixture *f)
{
    make_ready_with(f, NULL);
}

static inline void on_http_stopped(void *context)
{
    ((struct fixture *)context)->http_stopped = true;
}

static inline void on_idle(void *context)
{
    ((struct fixture *)context)->idle = true;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    http_server_stop(f->server, 0, on_http_stopped, f);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_true(f->http_stopped);
    for (int i = 0; i < f->engine.n_submitted; i++)
        assert_null(f->engine.submitted[i]); /* the test has finished every generation */
    for (int i = 0; i < f->engine.n_asked; i++)
        assert_null(f->engine.asked[i]); /* and answered every request */
    service_close(f->service, on_idle, f);
    assert_true(f->idle);
    service_destroy(f->service);
    http_server_destroy(f->server);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    close(f->log_ends[0]);
    close(f->log_ends[1]);
    free(f);
    return 0;
}

static inline int post_to(struct fixture *f, const char *path, const char *body)
{
    int client = http_client_connect(&f->loop, http_server_address(f->server, 0));
    char *text = malloc(strlen(body) + 256);
    int n = sprintf(text,
                    "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                    "Content-Length: %zu\r\n\r\n%s",
                    path, strlen(body), body);
    http_client_send(&f->loop, client, text, (size_t)n);
    free(text);
    return client;
}

static inline int post(struct fixture *f, const char *body)
{
    return post_to(f, "/v1/completions", body);
}

/* Without a body. */
static inline int send_request(struct fixture *f, const char *method, const char *path)
{
    int client = http_client_connect(&f->loop, http_server_address(f->server, 0));
    char text[512];
    int n = snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: x\r\n\r\n", method, path);
    http_client_send(&f->loop, client, text, (size_t)n);
    return client;
}

static inline const char *receive(struct fixture *f, int client, const char *until)
{
    http_client_receive(&f->loop, client, until, received);
    if (until != NULL && strstr(received, until) == NULL)
        fail_msg("expected %s\ngot %.2000s", until, received);
    return received;
}

static inline void wait_submitted(struct fixture *f, int n)
{
    uint64_t deadline = uv_hrtime() + 10ull * 1000 * 1000 * 1000;
    while (f->engine.n_submitted < n) {
        assert_true(uv_hrtime() < deadline);
        turn(f);
    }
}

static inline void wait_cancelled(struct fixture *f, int n)
{
    uint64_t deadline = uv_hrtime() + 10ull * 1000 * 1000 * 1000;
    while (f->engine.n_cancelled < n) {
        assert_true(uv_hrtime() < deadline);
        turn(f);
    }
}

static inline struct engine_request *wait_asked(struct fixture *f, int n)
{
    uint64_t deadline = uv_hrtime() + 10ull * 1000 * 1000 * 1000;
    while (f->engine.n_asked < n) {
        assert_true(uv_hrtime() < deadline);
        turn(f);
    }
    return f->engine.asked[n - 1];
}

/* The answer to the last request. */
static inline void reply(struct fixture *f, enum engine_answer answer, const char *message)
{
    struct engine_request *request = f->engine.asked[f->engine.n_asked - 1];
    assert_non_null(request);
    f->engine.asked[f->engine.n_asked - 1] = NULL;
    request->answer = answer;
    snprintf(request->message, sizeof request->message, "%s", message);
    request->on_done(request, request->context);
}

static inline void reply_with_session(struct fixture *f, const struct session_description *session)
{
    struct engine_request *request = f->engine.asked[f->engine.n_asked - 1];
    request->sessions = calloc(1, sizeof *request->sessions);
    request->sessions[0] = *session;
    request->n_sessions = 1;
    reply(f, ENGINE_ANSWER_OK, "");
}

static inline void deliver(struct fixture *f, int index, struct generation_event *event)
{
    struct generation *generation = f->engine.submitted[index];
    assert_non_null(generation);
    event->generation = generation;
    if (event->finished)
        f->engine.submitted[index] = NULL;
    generation->on_event(event, generation->context);
}

/* Text that came with one token for each of its bytes. */
static inline void say(struct fixture *f, int index, const char *text, uint32_t text_start)
{
    struct generation_event *event = calloc(1, sizeof *event);
    event->text = strdup(text);
    event->text_length = strlen(text);
    event->n_tokens = (int)strlen(text);
    event->tokens = calloc(strlen(text) + 1, sizeof *event->tokens);
    for (int i = 0; i < event->n_tokens; i++)
        event->tokens[i] = (struct generation_token){.token = (unsigned char)text[i],
                                                     .has_logprob = true,
                                                     .logprob = -0.5f,
                                                     .text_start = text_start + (uint32_t)i,
                                                     .text_length = 1};
    deliver(f, index, event);
}

static inline void finish(struct fixture *f, int index, enum finish_reason reason, const char *message)
{
    struct generation_event *event = calloc(1, sizeof *event);
    event->text = calloc(1, 1);
    event->finished = true;
    event->reason = reason;
    snprintf(event->message, sizeof event->message, "%s", message);
    event->usage = (struct generation_usage){.prompt_tokens = f->engine.n_submitted > 0 ? 3 : 0,
                                             .cached_tokens = 2,
                                             .completion_tokens = 5,
                                             .prompt_ms = 2,
                                             .predicted_ms = 8,
                                             .first_token_ms = 4.5};
    deliver(f, index, event);
}

static inline const char *read_log(struct fixture *f)
{
    static char text[4096];
    ssize_t n = read(f->log_ends[0], text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = '\0';
    return text;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
