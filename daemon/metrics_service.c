/* GET /metrics: the engine's numbers and the service's own, for Prometheus. */
#include <stdio.h>
#include <stdlib.h>

#include "daemon/engine.h"
#include "daemon/engine_metrics.h"
#include "daemon/service_internal.h"
#include "npu/executor.h"
#include "proto/prometheus.h"

static void write_info(struct prometheus *writer, const struct service *service)
{
    const struct service_model *model = &service->model;
    char numerics[20];
    snprintf(numerics, sizeof numerics, "%016llx", (unsigned long long)model->executor->numerics);
    const struct prometheus_label labels[] = {{"version", NPUD_VERSION},         {"model", service->model_name},
                                              {"device", model->device},         {"platform", model->platform},
                                              {"driver_version", model->driver}, {"numerics", numerics}};
    prometheus_family(writer, "npud_info", PROMETHEUS_GAUGE, "What is running, and on which device; always 1.");
    prometheus_sample(writer, 1, labels, sizeof labels / sizeof *labels);
    prometheus_gauge(writer, "npud_start_time_seconds", "When the daemon started, in seconds since 1970.",
                     (double)service->started_s);
}

static void write_requests(struct prometheus *writer, const struct service *service)
{
    prometheus_family(writer, "npud_requests_total", PROMETHEUS_COUNTER,
                      "Requests for generation that have ended, by endpoint and outcome.");
    for (int i = 0; i < N_SERVICE_ENDPOINTS; i++) {
        for (int j = 0; j < N_REQUEST_OUTCOMES; j++) {
            const struct prometheus_label labels[] = {{"endpoint", service_endpoint_label((enum service_endpoint)i)},
                                                      {"outcome", request_outcome_label((enum request_outcome)j)}};
            prometheus_sample(writer, (double)service->requests[i][j], labels, 2);
        }
    }
    prometheus_family(writer, "npud_http_responses_total", PROMETHEUS_COUNTER,
                      "Answers of the HTTP server, by status.");
    for (int status = 0; status < (int)(sizeof service->responses / sizeof *service->responses); status++) {
        char code[8];
        snprintf(code, sizeof code, "%d", status);
        const struct prometheus_label label = {"code", code};
        if (service->responses[status] > 0)
            prometheus_sample(writer, (double)service->responses[status], &label, 1);
    }
    prometheus_gauge(writer, "npud_connections", "Open HTTP connections.", http_server_connections(service->server));
}

static void write_histogram(struct prometheus *writer, const char *name, const char *help,
                            const struct histogram *histogram)
{
    prometheus_family(writer, name, PROMETHEUS_HISTOGRAM, help);
    prometheus_histogram(writer, histogram_bounds_s, histogram->counts, HISTOGRAM_BOUNDS, histogram->sum_s, NULL, 0);
}

static void write_generations(struct prometheus *writer, const struct engine_metrics *metrics)
{
    prometheus_gauge(writer, "npud_generations_running", "Generations that hold a place and KV memory.",
                     metrics->running);
    prometheus_gauge(writer, "npud_generations_waiting", "Generations in the queue.", metrics->waiting);
    prometheus_gauge(writer, "npud_requests_waiting", "Requests in the queue, which --queue bounds.",
                     metrics->waiting_requests);
    prometheus_gauge(writer, "npud_generations_paused", "Running generations whose clients do not read.",
                     metrics->paused);
    prometheus_counter(writer, "npud_generations_moved_out_total",
                       "Running generations that gave their KV memory up for older ones and continued later.",
                       (double)metrics->moved_out);
    prometheus_counter(writer, "npud_prompt_tokens_total", "Tokens of the prompts that began to run.",
                       (double)metrics->prompt_tokens);
    prometheus_counter(writer, "npud_cached_tokens_total", "Of these, tokens that came from the KV cache.",
                       (double)metrics->cached_tokens);
    prometheus_counter(writer, "npud_generated_tokens_total", "Tokens generated.", (double)metrics->output_tokens);
    write_histogram(writer, "npud_queue_wait_seconds", "Time from arrival to the first step.", &metrics->queue);
    write_histogram(writer, "npud_time_to_first_token_seconds", "Time from arrival to the first token.",
                    &metrics->first_token);
    write_histogram(writer, "npud_inter_token_seconds", "Time between two tokens of a generation.",
                    &metrics->token_gap);
}

static void write_steps(struct prometheus *writer, const struct service *service, const struct engine_metrics *metrics)
{
    prometheus_family(writer, "npud_step_seconds", PROMETHEUS_HISTOGRAM,
                      "Time of a step of the model, by the bucket of rows that it ran in.");
    for (int bucket = 0; bucket < STEP_COST_BUCKETS; bucket++) {
        char rows[8];
        snprintf(rows, sizeof rows, "%d", step_cost_bucket_rows(bucket));
        const struct prometheus_label label = {"rows", rows};
        const struct histogram *step = &metrics->step[bucket];
        prometheus_histogram(writer, histogram_bounds_s, step->counts, HISTOGRAM_BOUNDS, step->sum_s, &label, 1);
    }
    prometheus_counter(writer, "npud_steps_failed_total", "Steps that the device failed.",
                       (double)metrics->failed_steps);
    prometheus_family(writer, "npud_step_rows_total", PROMETHEUS_COUNTER, "Rows computed, by what they were for.");
    prometheus_sample(writer, (double)metrics->decode_rows, &(struct prometheus_label){"kind", "decode"}, 1);
    prometheus_sample(writer, (double)metrics->prompt_rows, &(struct prometheus_label){"kind", "prompt"}, 1);
    prometheus_counter(writer, "npud_launch_mode_switches_total",
                       "Changes from one launch a step to one launch an op, because steps had become slow.",
                       (double)executor_launch_switches(service->model.executor));
}

static void write_memory(struct prometheus *writer, const struct service *service, const struct engine_metrics *metrics)
{
    const struct kv_pool_counters *kv = &metrics->kv;
    prometheus_gauge(writer, "npud_kv_blocks", "KV blocks in all: used, cached and free.", kv->total);
    prometheus_gauge(writer, "npud_kv_blocks_used", "KV blocks that sessions hold.", kv->used);
    prometheus_gauge(writer, "npud_kv_blocks_shared", "Of the used ones: held by several sessions.", kv->shared);
    prometheus_gauge(writer, "npud_kv_blocks_active", "Of the used ones: held by running generations or pinned.",
                     kv->held);
    prometheus_gauge(writer, "npud_kv_blocks_pinned", "Of the used ones: held by pinned sessions.", kv->pinned);
    prometheus_gauge(writer, "npud_kv_blocks_cached", "KV blocks that no session holds but that would be found again.",
                     kv->cached);
    prometheus_gauge(writer, "npud_kv_blocks_free", "KV blocks that hold nothing.", kv->free);
    prometheus_gauge(writer, "npud_kv_block_bytes", "Size of a KV block.",
                     (double)service->model.executor->block_bytes);
    prometheus_counter(writer, "npud_kv_blocks_reclaimed_total", "Cached KV blocks given up for new ones.",
                       (double)kv->reclaimed);
}

static void write_sessions(struct prometheus *writer, const struct engine_metrics *metrics)
{
    prometheus_family(writer, "npud_sessions", PROMETHEUS_GAUGE,
                      "Sessions by what memory has of them: a generation at work, all K/V, or the tokens only.");
    prometheus_sample(writer, metrics->sessions_busy, &(struct prometheus_label){"state", "busy"}, 1);
    prometheus_sample(writer, metrics->sessions_idle, &(struct prometheus_label){"state", "resident"}, 1);
    prometheus_sample(writer, metrics->sessions_evicted, &(struct prometheus_label){"state", "evicted"}, 1);
    prometheus_gauge(writer, "npud_sessions_on_disk", "Sessions in the state folder, resident or not.",
                     metrics->sessions_on_disk);
    prometheus_gauge(writer, "npud_responses_on_disk", "Stored responses in the state folder.",
                     metrics->responses_on_disk);
    prometheus_counter(writer, "npud_session_evictions_total", "Sessions whose KV blocks were given up for others.",
                       (double)metrics->evictions);
    prometheus_counter(writer, "npud_session_saves_total", "Sessions written to the state folder.",
                       (double)metrics->saves);
    prometheus_counter(writer, "npud_session_saves_failed_total", "Sessions that could not be written.",
                       (double)metrics->failed_saves);
    prometheus_counter(writer, "npud_session_restores_total", "Requests that got tokens from the state folder.",
                       (double)metrics->restores);
    prometheus_counter(writer, "npud_session_restored_tokens_total", "The tokens that they got.",
                       (double)metrics->restored_tokens);
    prometheus_gauge(writer, "npud_state_bytes", "Size of the files in the state folder.",
                     (double)metrics->state_bytes);
    prometheus_gauge(writer, "npud_state_max_bytes", "What they may have in all; 0: no state folder.",
                     (double)metrics->state_max_bytes);
    prometheus_counter(writer, "npud_state_damaged_files_total", "Files of the state folder that could not be used.",
                       (double)metrics->damaged_files);
    prometheus_counter(writer, "npud_state_written_bytes_total", "Bytes written to the state folder.",
                       (double)metrics->written_bytes);
    prometheus_counter(writer, "npud_state_read_bytes_total", "Bytes read from the state folder.",
                       (double)metrics->read_bytes);
}

void metrics_service_handle(struct http_request *request, struct service *service)
{
    struct engine_metrics metrics;
    struct prometheus writer;
    size_t length = 0;
    char *text = NULL;
    engine_metrics_get(service->model.engine, &metrics);
    if (prometheus_begin(&writer)) {
        write_info(&writer, service);
        write_requests(&writer, service);
        write_generations(&writer, &metrics);
        write_steps(&writer, service, &metrics);
        write_memory(&writer, service, &metrics);
        write_sessions(&writer, &metrics);
        text = prometheus_end(&writer, &length);
    }
    if (text == NULL) {
        service_send_json(request, NULL, 0);
        return;
    }
    http_response_send(request, 200, PROMETHEUS_CONTENT_TYPE, text, length);
    free(text);
}
