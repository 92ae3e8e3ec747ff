/* POST /v1/completions and /v1/prefill: from an HTTP request to generations, and from their events to an answer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "daemon/engine.h"
#include "daemon/service_internal.h"
#include "proto/sse.h"

/* Of a stream that its client does not read: generating pauses above the one and goes on below the other. A client that
 * takes too long for that is given up by the HTTP server. */
enum {
    PAUSE_QUEUED_BYTES = 256 * 1024,
    RESUME_QUEUED_BYTES = 64 * 1024,
};

static void set_id(char *id, size_t capacity, const char *prefix)
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

static struct response_head response_head(const struct completion *completion)
{
    return (struct response_head){.id = completion->id,
                                  .created = completion->created_s,
                                  .model = completion->service->model_name,
                                  .fingerprint = completion->service->fingerprint};
}

/* ---- sums over choices ---- */

static struct response_cache describe_cache(const struct cache_report *report)
{
    struct response_cache cache = {.source = cache_source_name(report->source),
                                   .miss = cache_miss_name(report->miss),
                                   .cached = report->n_cached,
                                   .restored = report->n_restored,
                                   .differs_at = report->miss == CACHE_MISS_DIFFERS ? report->differs_at : -1,
                                   .restore_ms = report->restore_ms,
                                   .recompute_ms = report->recompute_ms};
    if (report->session_id != 0)
        session_id_format(cache.session, report->session_id);
    if (report->source_id != 0)
        session_id_format(cache.from, report->source_id);
    return cache;
}

/* A prompt is counted once, however many choices it has. */
static void sum_up(const struct completion *completion, struct response_usage *usage, struct response_timings *timings)
{
    memset(usage, 0, sizeof *usage);
    memset(timings, 0, sizeof *timings);
    for (int i = 0; i < completion->n_choices; i++) {
        const struct generation_usage *own = &completion->choices[i].usage;
        if (i % completion->request.n == 0) {
            usage->prompt_tokens += own->prompt_tokens;
            usage->cached_tokens += own->cached_tokens;
        }
        usage->completion_tokens += own->completion_tokens;
        timings->prompt_n += own->prompt_tokens - own->cached_tokens;
        timings->cached_n += own->cached_tokens;
        timings->predicted_n += own->completion_tokens;
        /* Choices run side by side. */
        if (own->prompt_ms > timings->prompt_ms)
            timings->prompt_ms = own->prompt_ms;
        if (own->predicted_ms > timings->predicted_ms)
            timings->predicted_ms = own->predicted_ms;
        completion->caches[i] = describe_cache(&own->cache);
    }
    timings->caches = completion->caches;
    timings->n_caches = completion->n_choices;
}

/* Of a request that came to its end by itself. */
static enum request_outcome natural_outcome(const struct completion *completion)
{
    if (completion->endpoint == ENDPOINT_PREFILL)
        return OUTCOME_PREFILLED;
    for (int i = 0; i < completion->n_choices; i++) {
        if (completion->choices[i].reason != FINISH_STOP)
            return OUTCOME_LENGTH;
    }
    return OUTCOME_STOP;
}

static void log_request(const struct completion *completion)
{
    struct response_usage usage;
    struct response_timings timings;
    sum_up(completion, &usage, &timings);
    double first_ms = -1;
    for (int i = 0; i < completion->n_choices; i++) {
        const struct generation_usage *own = &completion->choices[i].usage;
        if (own->completion_tokens > 0 && (first_ms < 0 || own->first_token_ms < first_ms))
            first_ms = own->first_token_ms;
    }
    char first[32] = "no token", rate[32] = "- tok/s";
    if (first_ms >= 0)
        snprintf(first, sizeof first, "first token %.1f ms", first_ms);
    if (timings.predicted_n > 1 && timings.predicted_ms > 0)
        snprintf(rate, sizeof rate, "%.1f tok/s", (double)(timings.predicted_n - 1) * 1000 / timings.predicted_ms);
    log_info(completion->service->log,
             "%s: %" PRId64 " prompt tokens, %" PRId64 " cached, %" PRId64 " generated, %s, %s, %.0f ms in all, %s",
             completion->id, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, first, rate,
             (double)(uv_hrtime() - completion->started_ns) / 1e6, request_outcome_words(completion->outcome));
}

static void set_outcome(struct completion *completion, enum request_outcome outcome)
{
    completion->outcome = outcome;
    completion->has_outcome = true;
}

static void destroy(struct completion *completion)
{
    struct service *service = completion->service;
    service->requests[completion->endpoint][completion->outcome]++;
    completion_clear(completion);
    free(completion);
    service_request_done(service);
}

/* ---- ending early ---- */

static void cancel_running(struct completion *completion)
{
    for (int i = 0; i < completion->n_choices; i++) {
        struct choice *choice = &completion->choices[i];
        if (completion->n_running > 0 && !choice->finished && choice->generation != NULL)
            engine_cancel(completion->service->model.engine, choice->generation);
    }
}

static void on_gone(void *context)
{
    struct completion *completion = context;
    bool unread = http_request_was_unread(completion->http);
    completion->http = NULL;
    set_outcome(completion, unread ? OUTCOME_CLIENT_UNREAD : OUTCOME_CLIENT_GONE);
    if (completion->working)
        uv_cancel((uv_req_t *)&completion->work);
    else
        cancel_running(completion);
}

/* Tells the client, in whatever way is left, and stops what still runs. retry_after_ms 0: trying again is of no use. */
static void fail(struct completion *completion, const struct api_error *error, uint32_t retry_after_ms,
                 enum request_outcome outcome)
{
    struct http_request *http = completion->http;
    completion->http = NULL;
    set_outcome(completion, outcome);
    if (http != NULL && !completion->stream_begun) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%u", (retry_after_ms + 999) / 1000);
        if (retry_after_ms > 0)
            http_response_add_header(http, "Retry-After", seconds);
        http_response_send_error(http, error);
    } else if (http != NULL) {
        size_t length;
        char *frame = completion_error_frame(error, &length);
        if (frame != NULL) {
            http_response_write(http, frame, length);
            free(frame);
            http_response_end(http);
        } else {
            http_response_abort(http);
        }
    }
    cancel_running(completion);
}

static void fail_for_memory(struct completion *completion)
{
    struct api_error error;
    api_error_set(&error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the answer");
    fail(completion, &error, 0, OUTCOME_OUT_OF_MEMORY);
}

/* ---- whole answers ---- */

static bool fill_choice(const struct completion *completion, struct choice *choice, struct response_choice *response,
                        size_t text_from)
{
    response->index = choice->index;
    response->text = choice->text != NULL ? choice->text + text_from : "";
    response->text_length = choice->text_length - text_from;
    response->has_logprobs = completion->request.logprobs >= 0;
    response->finish_reason = choice_finish_reason(choice);
    struct response_token *tokens;
    if (!choice_take_tokens(choice, completion->service->model.tokenizer, &tokens, &response->n_tokens))
        return false;
    response->tokens = tokens;
    return true;
}

static void send_prefilled(struct completion *completion)
{
    struct response_head head = response_head(completion);
    struct response_usage usage;
    struct response_timings timings;
    size_t length = 0;
    sum_up(completion, &usage, &timings);
    char *body = prefill_response_json(&head, completion->caches[0].session, completion->request.prompt_cache_key,
                                       &usage, &timings, &length);
    if (body == NULL) {
        fail_for_memory(completion);
        return;
    }
    struct http_request *http = completion->http;
    completion->http = NULL;
    service_send_json(http, body, length);
}

static void send_whole(struct completion *completion)
{
    struct response_choice *choices = calloc((size_t)completion->n_choices, sizeof *choices);
    char *body = NULL;
    size_t length = 0;
    bool ok = choices != NULL;
    for (int i = 0; ok && i < completion->n_choices; i++)
        ok = fill_choice(completion, &completion->choices[i], &choices[i], 0);
    if (ok) {
        struct response_head head = response_head(completion);
        struct response_usage usage;
        struct response_timings timings;
        sum_up(completion, &usage, &timings);
        body = completion_response_json(&head, choices, completion->n_choices, &usage, &timings, &length);
    }
    for (int i = 0; choices != NULL && i < completion->n_choices; i++)
        free((void *)choices[i].tokens);
    free(choices);
    if (body == NULL) {
        fail_for_memory(completion);
        return;
    }
    struct http_request *http = completion->http;
    completion->http = NULL;
    service_send_json(http, body, length);
}

/* ---- streams ---- */

static void set_paused(struct completion *completion, bool paused)
{
    completion->paused = paused;
    for (int i = 0; i < completion->n_choices; i++) {
        struct choice *choice = &completion->choices[i];
        if (!choice->finished)
            engine_pause(completion->service->model.engine, choice->generation, paused);
    }
}

static void on_drained(void *context)
{
    set_paused(context, false);
}

static void begin_stream(struct completion *completion)
{
    completion->stream_begun = true;
    http_response_add_header(completion->http, "Cache-Control", "no-cache");
    http_response_add_header(completion->http, "X-Accel-Buffering", "no"); /* proxies must not collect the stream */
    http_response_set_probe(completion->http, SSE_COMMENT);
    http_response_begin(completion->http, 200, SSE_CONTENT_TYPE);
}

/* Takes the frame. */
static bool write_frame(struct completion *completion, char *frame, size_t length)
{
    if (frame == NULL) {
        fail_for_memory(completion);
        return false;
    }
    if (!completion->stream_begun)
        begin_stream(completion);
    http_response_write(completion->http, frame, length);
    free(frame);
    if (!completion->paused && http_response_queued(completion->http) > PAUSE_QUEUED_BYTES &&
        http_response_on_drained(completion->http, RESUME_QUEUED_BYTES, on_drained, completion))
        set_paused(completion, true);
    return true;
}

/* The chunk of one event, and after the last event the end of the stream. */
static void stream_event(struct completion *completion, struct choice *choice, size_t text_from)
{
    struct response_head head = response_head(completion);
    struct response_choice response;
    struct response_usage usage;
    struct response_timings timings;
    bool with_usage = completion->request.stream.include_usage, last = completion->n_running == 0;
    if (!fill_choice(completion, choice, &response, text_from)) {
        fail_for_memory(completion);
        return;
    }
    if (last)
        sum_up(completion, &usage, &timings);
    size_t length;
    bool ok = true;
    if (response.text_length > 0 || response.n_tokens > 0 || choice->finished) {
        char *frame =
            completion_chunk_frame(&head, &response, with_usage, NULL, last && !with_usage ? &timings : NULL, &length);
        ok = write_frame(completion, frame, length);
    }
    free((void *)response.tokens);
    if (!ok || !last)
        return;
    if (with_usage) {
        char *frame = completion_chunk_frame(&head, NULL, true, &usage, &timings, &length);
        if (!write_frame(completion, frame, length))
            return;
    }
    struct http_request *http = completion->http;
    completion->http = NULL;
    http_response_write(http, SSE_DONE, strlen(SSE_DONE));
    http_response_end(http);
}

/* ---- events ---- */

static const struct {
    enum api_error_kind kind;
    enum request_outcome outcome;
} failures[] = {
    [FAILURE_NONE] = {API_ERROR_DEVICE_FAILED, OUTCOME_FAILED},
    [FAILURE_DEVICE] = {API_ERROR_DEVICE_FAILED, OUTCOME_FAILED},
    [FAILURE_MEMORY] = {API_ERROR_OUT_OF_MEMORY, OUTCOME_OUT_OF_MEMORY},
    [FAILURE_TOO_LONG] = {API_ERROR_CONTEXT_LENGTH, OUTCOME_REFUSED},
    [FAILURE_QUEUE_FULL] = {API_ERROR_QUEUE_FULL, OUTCOME_QUEUE_FULL},
    [FAILURE_WAIT] = {API_ERROR_WAIT_TOO_LONG, OUTCOME_WAIT_TOO_LONG},
    [FAILURE_TIMEOUT] = {API_ERROR_TIMED_OUT, OUTCOME_TIMED_OUT},
};

static void fail_for_event(struct completion *completion, const struct generation_event *event)
{
    struct api_error error;
    if (event->reason == FINISH_CANCELLED) {
        api_error_set(&error, API_ERROR_STOPPING, NULL, "the server is stopping");
        fail(completion, &error, 1000, OUTCOME_CANCELLED);
        return;
    }
    api_error_set(&error, failures[event->failure].kind, event->failure == FAILURE_TOO_LONG ? "prompt" : NULL, "%s",
                  event->message);
    if (api_error_status(error.kind) == 500)
        log_error(completion->service->log, "%s: %s", completion->id, event->message);
    fail(completion, &error, event->retry_after_ms, failures[event->failure].outcome);
}

static void on_event(struct generation_event *event, void *context)
{
    struct choice *choice = context;
    struct completion *completion = choice->owner;
    size_t text_from = choice->text_length;
    bool added = choice_add(choice, event, completion->request.logprobs >= 0);
    if (event->finished)
        completion->n_running--;
    if (completion->http != NULL) {
        if (!added)
            fail_for_memory(completion);
        else if (event->finished && (event->reason == FINISH_ERROR || event->reason == FINISH_CANCELLED))
            fail_for_event(completion, event);
        else if (completion->request.stream.stream)
            stream_event(completion, choice, text_from);
        else if (completion->n_running == 0 && completion->endpoint == ENDPOINT_PREFILL)
            send_prefilled(completion);
        else if (completion->n_running == 0)
            send_whole(completion);
    }
    bool finished = event->finished;
    generation_event_destroy(event);
    if (!finished)
        return;
    generation_destroy(choice->generation);
    choice->generation = NULL;
    if (completion->n_running == 0) {
        if (!completion->has_outcome)
            completion->outcome = natural_outcome(completion);
        log_request(completion);
        destroy(completion);
    }
}

/* ---- beginning ---- */

static void prepare(uv_work_t *work)
{
    struct completion *completion = work->data;
    completion->error.kind = API_ERROR_NONE;
    completion_prepare(completion);
}

static void on_prepared(uv_work_t *work, int status)
{
    struct completion *completion = work->data;
    completion->working = false;
    free(completion->body);
    completion->body = NULL;
    if (completion->http == NULL || status != 0) { /* the client left, or the work was cancelled for that reason */
        set_outcome(completion, OUTCOME_CLIENT_GONE);
        log_info(completion->service->log, "%s: client gone before it began", completion->id);
        destroy(completion);
        return;
    }
    if (completion->error.kind != API_ERROR_NONE) {
        struct api_error error = completion->error;
        log_info(completion->service->log, "%s: refused, %d: %s", completion->id, api_error_status(error.kind),
                 error.message);
        fail(completion, &error, 0, api_error_status(error.kind) < 500 ? OUTCOME_REFUSED : OUTCOME_OUT_OF_MEMORY);
        destroy(completion);
        return;
    }
    completion->n_running = completion->n_choices;
    for (int i = 0; i < completion->n_choices; i++) {
        struct choice *choice = &completion->choices[i];
        choice->generation->on_event = on_event;
        choice->generation->context = choice;
        engine_submit(completion->service->model.engine, choice->generation);
    }
}

void completion_service_handle(struct http_request *request, struct service *service, enum service_endpoint endpoint)
{
    struct completion *completion = calloc(1, sizeof *completion);
    struct api_error error;
    api_error_set(&error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
    if (completion == NULL) {
        http_response_send_error(request, &error);
        return;
    }
    completion->service = service;
    completion->endpoint = endpoint;
    completion->http = request;
    completion->created_s = (int64_t)time(NULL);
    completion->started_ns = uv_hrtime();
    set_id(completion->id, sizeof completion->id, endpoint == ENDPOINT_PREFILL ? "prefill-" : "cmpl-");
    service_request_begun(service);
    completion->body = http_request_take_body(request, &completion->body_length);
    completion->work.data = completion;
    if (completion->body == NULL || uv_queue_work(service->loop, &completion->work, prepare, on_prepared) != 0) {
        fail(completion, &error, 0, OUTCOME_OUT_OF_MEMORY);
        destroy(completion);
        return;
    }
    completion->working = true;
    http_request_set_on_gone(request, on_gone, completion);
}
