/* From an HTTP request to generations, and from their events to an answer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/answer.h"
#include "daemon/engine.h"
#include "daemon/service_internal.h"
#include "proto/sse.h"

/* Of a stream that its client does not read: generating pauses above the one and goes on below the other. A client that
 * takes too long for that is given up by the HTTP server. */
enum {
    PAUSE_QUEUED_BYTES = 256 * 1024,
    RESUME_QUEUED_BYTES = 64 * 1024,
};

const char *service_endpoint_label(enum service_endpoint endpoint)
{
    static const char *const labels[] = {
#define SERVICE_ENDPOINT_LABEL(name, label) label,
        SERVICE_ENDPOINTS(SERVICE_ENDPOINT_LABEL)
#undef SERVICE_ENDPOINT_LABEL
    };
    return labels[endpoint];
}

struct response_head answer_head(const struct answer *answer)
{
    return (struct response_head){.id = answer->id,
                                  .created = answer->created_s,
                                  .model = answer->service->model_name,
                                  .fingerprint = answer->service->fingerprint};
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
void answer_sum_up(const struct answer *answer, struct response_usage *usage, struct response_timings *timings)
{
    memset(usage, 0, sizeof *usage);
    memset(timings, 0, sizeof *timings);
    for (int i = 0; i < answer->n_choices; i++) {
        const struct generation_usage *own = &answer->choices[i].usage;
        if (i % answer->n_per_prompt == 0) {
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
        answer->caches[i] = describe_cache(&own->cache);
    }
    timings->caches = answer->caches;
    timings->n_caches = answer->n_choices;
}

/* Of a request that came to its end by itself. */
static enum request_outcome natural_outcome(const struct answer *answer)
{
    if (answer->form->reads_only)
        return answer->form->read_outcome;
    for (int i = 0; i < answer->n_choices; i++) {
        if (answer->choices[i].reason != FINISH_STOP)
            return OUTCOME_LENGTH;
    }
    return OUTCOME_STOP;
}

static void log_request(const struct answer *answer)
{
    struct response_usage usage;
    struct response_timings timings;
    answer_sum_up(answer, &usage, &timings);
    double first_ms = -1;
    for (int i = 0; i < answer->n_choices; i++) {
        const struct generation_usage *own = &answer->choices[i].usage;
        if (own->completion_tokens > 0 && (first_ms < 0 || own->first_token_ms < first_ms))
            first_ms = own->first_token_ms;
    }
    char first[32] = "no token", rate[32] = "- tok/s";
    if (first_ms >= 0)
        snprintf(first, sizeof first, "first token %.1f ms", first_ms);
    if (timings.predicted_n > 1 && timings.predicted_ms > 0)
        snprintf(rate, sizeof rate, "%.1f tok/s", (double)(timings.predicted_n - 1) * 1000 / timings.predicted_ms);
    log_info(answer->service->log,
             "%s: %" PRId64 " prompt tokens, %" PRId64 " cached, %" PRId64 " generated, %s, %s, %.0f ms in all, %s",
             answer->id, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, first, rate,
             (double)(uv_hrtime() - answer->started_ns) / 1e6, request_outcome_words(answer->outcome));
}

static void set_outcome(struct answer *answer, enum request_outcome outcome)
{
    answer->outcome = outcome;
    answer->has_outcome = true;
}

static void destroy(struct answer *answer)
{
    struct service *service = answer->service;
    service->requests[answer->form->endpoint][answer->outcome]++;
    for (int i = 0; i < answer->n_choices; i++)
        choice_clear(&answer->choices[i]);
    free(answer->choices);
    free(answer->caches);
    free(answer->body);
    answer->form->clear(answer);
    free(answer);
    service_request_done(service);
}

/* ---- ending early ---- */

static void cancel_running(struct answer *answer)
{
    for (int i = 0; i < answer->n_choices; i++) {
        struct choice *choice = &answer->choices[i];
        if (answer->n_running > 0 && !choice->finished && choice->generation != NULL)
            engine_cancel(answer->service->model.engine, choice->generation);
    }
}

static void on_gone(void *context)
{
    struct answer *answer = context;
    bool unread = http_request_was_unread(answer->http);
    answer->http = NULL;
    set_outcome(answer, unread ? OUTCOME_CLIENT_UNREAD : OUTCOME_CLIENT_GONE);
    if (answer->working)
        uv_cancel((uv_req_t *)&answer->work);
    else
        cancel_running(answer);
}

/* Tells the client, in whatever way is left, and stops what still runs. retry_after_ms 0: trying again is of no use. */
static void fail(struct answer *answer, const struct api_error *error, uint32_t retry_after_ms,
                 enum request_outcome outcome)
{
    struct http_request *http = answer->http;
    answer->http = NULL;
    set_outcome(answer, outcome);
    if (http != NULL && !answer->stream_begun) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%u", (retry_after_ms + 999) / 1000);
        if (retry_after_ms > 0)
            http_response_add_header(http, "Retry-After", seconds);
        http_response_send_error(http, error);
    } else if (http != NULL) {
        size_t length;
        char *frame = answer->form->error_frame != NULL ? answer->form->error_frame(answer, error, &length)
                                                        : completion_error_frame(error, &length);
        if (frame != NULL) {
            http_response_write(http, frame, length);
            free(frame);
            http_response_end(http);
        } else {
            http_response_abort(http);
        }
    }
    cancel_running(answer);
}

static void fail_for_memory(struct answer *answer)
{
    struct api_error error;
    api_error_set(&error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the answer");
    fail(answer, &error, 0, OUTCOME_OUT_OF_MEMORY);
}

/* ---- whole answers ---- */

bool answer_fill_choice(const struct answer *answer, struct choice *choice, size_t text_from,
                        struct response_choice *response)
{
    response->index = choice->index;
    response->text = choice->text != NULL ? choice->text + text_from : "";
    response->text_length = choice->text_length - text_from;
    response->finish_reason = choice_finish_reason(choice);
    struct response_token *tokens;
    if (!choice_take_tokens(choice, answer->service->model.tokenizer, &tokens, &response->n_tokens))
        return false;
    response->tokens = tokens;
    return true;
}

static void send_whole(struct answer *answer)
{
    size_t length = 0;
    char *body = answer->form->whole(answer, &length);
    if (body == NULL) {
        fail_for_memory(answer);
        return;
    }
    struct http_request *http = answer->http;
    answer->http = NULL;
    service_send_json(http, body, length);
}

/* ---- streams ---- */

static void set_paused(struct answer *answer, bool paused)
{
    answer->paused = paused;
    for (int i = 0; i < answer->n_choices; i++) {
        struct choice *choice = &answer->choices[i];
        if (!choice->finished)
            engine_pause(answer->service->model.engine, choice->generation, paused);
    }
}

static void on_drained(void *context)
{
    set_paused(context, false);
}

static void begin_stream(struct answer *answer)
{
    answer->stream_begun = true;
    http_response_add_header(answer->http, "Cache-Control", "no-cache");
    http_response_add_header(answer->http, "X-Accel-Buffering", "no"); /* proxies must not collect the stream */
    http_response_set_probe(answer->http, SSE_COMMENT);
    http_response_begin(answer->http, 200, SSE_CONTENT_TYPE);
}

bool answer_write_frame(struct answer *answer, char *frame, size_t length)
{
    if (frame == NULL) {
        fail_for_memory(answer);
        return false;
    }
    if (!answer->stream_begun)
        begin_stream(answer);
    http_response_write(answer->http, frame, length);
    free(frame);
    if (!answer->paused && http_response_queued(answer->http) > PAUSE_QUEUED_BYTES &&
        http_response_on_drained(answer->http, RESUME_QUEUED_BYTES, on_drained, answer))
        set_paused(answer, true);
    return true;
}

static void stream_event(struct answer *answer, struct choice *choice, size_t text_from)
{
    bool last = answer->n_running == 0;
    if (!answer->form->stream(answer, choice, text_from, last)) {
        if (answer->http != NULL)
            fail_for_memory(answer);
        return;
    }
    if (!last)
        return;
    struct http_request *http = answer->http;
    answer->http = NULL;
    if (answer->form->stream_end != NULL)
        http_response_write(http, answer->form->stream_end, strlen(answer->form->stream_end));
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
    [FAILURE_CONSTRAINT] = {API_ERROR_INVALID_VALUE, OUTCOME_REFUSED},
};

static void fail_for_event(struct answer *answer, const struct generation_event *event)
{
    struct api_error error;
    if (event->reason == FINISH_CANCELLED) {
        api_error_set(&error, API_ERROR_STOPPING, NULL, "the server is stopping");
        fail(answer, &error, 1000, OUTCOME_CANCELLED);
        return;
    }
    enum api_error_kind kind = failures[event->failure].kind;
    if (event->failure == FAILURE_CONSTRAINT)
        api_error_set(&error, kind, answer->grammar_field, "%s: %s", answer->grammar_field, event->message);
    else
        api_error_set(&error, kind, event->failure == FAILURE_TOO_LONG ? answer->form->too_long_field : NULL, "%s",
                      event->message);
    if (api_error_status(error.kind) == 500)
        log_error(answer->service->log, "%s: %s", answer->id, event->message);
    fail(answer, &error, event->retry_after_ms, failures[event->failure].outcome);
}

static void on_event(struct generation_event *event, void *context)
{
    struct choice *choice = context;
    struct answer *answer = choice->owner;
    size_t text_from = choice->text_length;
    bool failed = event->finished && (event->reason == FINISH_ERROR || event->reason == FINISH_CANCELLED);
    bool added = choice_add(choice, event, answer->with_tokens);
    if (event->finished)
        answer->n_running--;
    if (event->finished && !failed && added && answer->form->finished != NULL)
        answer->form->finished(answer, choice);
    if (answer->http != NULL) {
        if (!added)
            fail_for_memory(answer);
        else if (failed)
            fail_for_event(answer, event);
        else if (answer->is_stream)
            stream_event(answer, choice, text_from);
        else if (answer->n_running == 0)
            send_whole(answer);
    }
    bool finished = event->finished;
    generation_event_destroy(event);
    if (!finished)
        return;
    generation_destroy(choice->generation);
    choice->generation = NULL;
    if (answer->n_running == 0) {
        if (!answer->has_outcome)
            answer->outcome = natural_outcome(answer);
        log_request(answer);
        destroy(answer);
    }
}

/* ---- beginning ---- */

static void prepare(uv_work_t *work)
{
    struct answer *answer = work->data;
    answer->error.kind = API_ERROR_NONE;
    answer->form->prepare(answer);
}

static void end_before_begun(struct answer *answer)
{
    set_outcome(answer, OUTCOME_CLIENT_GONE);
    log_info(answer->service->log, "%s: client gone before it began", answer->id);
    destroy(answer);
}

static void on_prepared(uv_work_t *work, int status)
{
    struct answer *answer = work->data;
    answer->working = false;
    free(answer->body);
    answer->body = NULL;
    if (answer->http == NULL || status != 0) { /* the client left, or the work was cancelled for that reason */
        end_before_begun(answer);
        return;
    }
    if (answer->error.kind != API_ERROR_NONE) {
        struct api_error error = answer->error;
        log_info(answer->service->log, "%s: refused, %d: %s", answer->id, api_error_status(error.kind), error.message);
        fail(answer, &error, 0, api_error_status(error.kind) < 500 ? OUTCOME_REFUSED : OUTCOME_OUT_OF_MEMORY);
        destroy(answer);
        return;
    }
    if (answer->awaits) {
        answer->awaits = false;
        answer->form->fetch(answer);
        return;
    }
    answer->n_running = answer->n_choices;
    for (int i = 0; i < answer->n_choices; i++) {
        struct choice *choice = &answer->choices[i];
        choice->generation->on_event = on_event;
        choice->generation->context = choice;
        engine_submit(answer->service->model.engine, choice->generation);
    }
}

static bool queue_work(struct answer *answer)
{
    answer->work.data = answer;
    answer->working = uv_queue_work(answer->service->loop, &answer->work, prepare, on_prepared) == 0;
    return answer->working;
}

static void fail_to_begin(struct answer *answer)
{
    struct api_error error;
    api_error_set(&error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
    fail(answer, &error, 0, OUTCOME_OUT_OF_MEMORY);
    destroy(answer);
}

void answer_go_on(struct answer *answer)
{
    if (answer->http == NULL)
        end_before_begun(answer);
    else if (!queue_work(answer))
        fail_to_begin(answer);
}

void answer_begin(struct http_request *http, struct service *service, const struct answer_form *form)
{
    struct answer *answer = calloc(1, form->bytes);
    if (answer == NULL) {
        service_send_json(http, NULL, 0);
        return;
    }
    answer->service = service;
    answer->form = form;
    answer->http = http;
    answer->created_s = (int64_t)time(NULL);
    answer->started_ns = uv_hrtime();
    service_set_id(answer->id, sizeof answer->id, form->id_prefix);
    service_request_begun(service);
    answer->body = http_request_take_body(http, &answer->body_length);
    if (answer->body != NULL && queue_work(answer))
        http_request_set_on_gone(http, on_gone, answer);
    else
        fail_to_begin(answer);
}
